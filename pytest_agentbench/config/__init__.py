"""Configuration: YAML files to frozen models, with errors that name file, line and column; roots; JSON Schemas."""
