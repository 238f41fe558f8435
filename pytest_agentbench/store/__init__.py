"""The store: fingerprints that tell what a result depends on, and the output folder with its artifacts.

A session asks its `Store` for one `Lane` per model and writes each run and evaluation through it. What is written is
whole or not there, and holds no secrets.

Others use: artifacts, contents, database, documents, files, fingerprints, judgements, maintenance, redaction, remote,
remote_results, repair
"""
