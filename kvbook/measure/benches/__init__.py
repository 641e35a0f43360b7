"""What `python -m kvbook measure --what decode` times: a module for each bench."""
