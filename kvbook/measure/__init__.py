"""What `python -m kvbook measure` runs: predicted against measured memory, over a grid of caches.

`plan` says what is measured, `points` measures one thing, `child` does that in a process of its own,
`runner` starts such processes, `record` keeps and checks what they found. A cache of a later lesson
joins with one line in `kinds`, another kind of record (`--what`) with one in `registry`. Importing the
package, or `command`, does not import torch.
"""
