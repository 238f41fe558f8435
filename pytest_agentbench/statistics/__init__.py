"""Pure arithmetic: intervals, tests, agreement. No reports, no files.

Others use: agreement, estimates, flips, paired, resampling
"""
