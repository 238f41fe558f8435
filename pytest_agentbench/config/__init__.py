"""Configuration: YAML files to frozen models, with errors that name file, line and column; roots; JSON Schemas.

Others use: annotations, base, case_file, commands_file, compose_file, dataset_file, documents, file_kinds, guests,
keys, kinds, loader, profiles, roots, sections, session_roots, shared_sections, suite
"""
