"""The engine: runs jobs ahead of pytest, within limits and budget, and splits them over xdist's workers."""
