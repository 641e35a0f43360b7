"""What the cache costs: the arithmetic, and the facts about models and GPUs that it is fed with."""
