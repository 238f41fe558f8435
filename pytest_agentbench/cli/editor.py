"""The line by which editors find a YAML file's JSON Schema, for what commands write."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_agentbench.cli.places import project_of

SCHEMAS = ".schemas"
"""The folder of a project's schemas; `agentbench schema --output .schemas` renews them."""


def schema_line(kind: str, path: Path) -> str:
    """The first line of the YAML file to be written at `path`; empty where the project keeps no schema of the kind.

    `kind` is the schema's name: dataset, test_case, agent, ...
    """
    folder = path.absolute().parent
    schema = project_of(folder) / SCHEMAS / f"{kind}.schema.json"
    if not schema.is_file():
        return ""
    return f"# yaml-language-server: $schema={Path(os.path.relpath(schema, folder)).as_posix()}\n"
