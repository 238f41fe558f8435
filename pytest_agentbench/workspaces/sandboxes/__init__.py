"""Sandboxes for the commands of runs."""
