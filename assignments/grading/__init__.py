"""The class grader: finds submissions, grades each with Otter inside bubblewrap, writes one table."""
