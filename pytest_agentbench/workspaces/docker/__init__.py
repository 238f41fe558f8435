"""Containers as sandboxes: one for each run, made ahead of need, never used twice."""
