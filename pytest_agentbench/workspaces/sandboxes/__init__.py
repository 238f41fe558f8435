"""Sandboxes: where the commands of a run are executed."""
