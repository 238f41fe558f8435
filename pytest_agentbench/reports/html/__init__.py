"""The report as a page for people: one file that asks nothing of elsewhere, or live from `agentbench watch`."""
