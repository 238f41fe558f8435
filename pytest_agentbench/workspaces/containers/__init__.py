"""Containers as sandboxes: one for each run, made ahead of need by docker or podman, never used twice."""
