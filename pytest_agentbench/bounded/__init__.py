"""Read others' files, archives, JSON, replies, patterns, schemas and queries with bounds; write files whole.

All data that a user, a case, a dataset, an artifact, a server or a model names or sends are read by this room; a lint
rule and `tests/bounded/` refuse other ways to read them.

Others use: archives, columns, digests, files, folders, json_files, locks, patterns, replies, schemas, writing
"""
