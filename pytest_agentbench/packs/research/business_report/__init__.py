"""Business report over the results of all stages."""
