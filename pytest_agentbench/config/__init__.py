"""Configuration: YAML files to frozen models, with errors that name file, line and column; roots; JSON Schemas.

Others use: agent_file, agent_parts, base, canned_tools, case_context, case_file, case_messages, check_list,
client_servers, commands_file, data_files, dataset_file, dialects, documents, field_doubts, folders, functions,
grants, guests, keys, kinds, model_entries, pattern_doubts, plugins, policy_file, profiles, prompt_files,
pytest_files, request_fields, root_search, roots, sections, session_roots, skills, source_imports, variant_files,
variants
"""
