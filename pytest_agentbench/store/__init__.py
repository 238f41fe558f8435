"""The store: the output folder with its database, its artifacts and the claims of sessions on runs.

A session asks its `Store` for one `Lane` per model and writes each run and evaluation through it. What is written is
whole or not there, and holds no secrets.

Others use: artifacts, contents, database, documents, judgements, maintenance, output_folder, remote, remote_results,
repair
"""
