"""Compare two reports: pair cases, test the differences exactly, and state what the number of runs can show."""
