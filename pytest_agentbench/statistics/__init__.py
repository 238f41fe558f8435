"""Pure arithmetic: intervals, tests, agreement. No reports, no files."""
