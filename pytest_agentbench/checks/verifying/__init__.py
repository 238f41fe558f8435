"""Verifiers: hidden files, and the command or tests that decide a run once its agent has stopped."""
