"""The business report over the results of all stages."""
