"""What is wrong with the files that research reports are scored by and from, each alone and together."""
