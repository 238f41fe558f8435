"""Bounded reading of what others made: files, archives, replies, patterns, schemas, queries.

All that reads what a user, a case, a dataset, an artifact, a server or a model names or sends goes through here; a lint
rule and `tests/bounded/` refuse what would go around it.

Others use: archives, columns, files, patterns, replies, schemas
"""
