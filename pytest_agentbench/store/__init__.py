"""The store: the output folder with its database, its artifacts and the claims of sessions on runs.

A session opens one `ModelStore` per model and writes each run and evaluation through it. Writes are atomic, and stored
texts are redacted.

Others use: artifacts, contents, database, documents, judgements, layout, maintenance, output_folder, remote,
remote_results, repair
"""
