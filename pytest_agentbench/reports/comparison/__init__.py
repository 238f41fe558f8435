"""Comparison of two reports: paired by case, tested exactly, and honest about what so many runs can tell."""
