"""Bounded reading of files, archives, JSON, replies, patterns, schemas and queries of others; writing files whole.

All that reads what a user, a case, a dataset, an artifact, a server or a model names or sends goes through here; a lint
rule and `tests/bounded/` refuse what would go around it.

Others use: archives, columns, files, folders, json_files, locks, patterns, replies, schemas, writing
"""
