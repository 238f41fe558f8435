"""`agentbench schema [NAME]`: JSON Schemas of the files that people write, and the line by which editors find them."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError

SCHEMAS = ".schemas"
"""The folder of a project's schemas; `agentbench schema --output .schemas` renews them."""


def schema_line(kind: str, path: Path) -> str:
    """Return the first line of a YAML file at `path`: a comment with its schema, empty if the project has no such
    schema.

    `kind` is the schema's name: dataset, test_case, agent, ...
    """
    from pytest_agentbench.cli.places import project_folder

    folder = path.absolute().parent
    schema = project_folder(folder) / SCHEMAS / f"{kind}.schema.json"
    if not schema.is_file():
        return ""
    # Relative and with slashes: the line is committed, and read on other machines.
    return f"# yaml-language-server: $schema={Path(os.path.relpath(schema, folder)).as_posix()}\n"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "schema",
        help="print JSON Schemas of cases, profiles, scripts and reports, for editors",
        description="Print the JSON Schema of one kind of file, or an object with all of them. An editor completes and "
        "checks a file that begins with: # yaml-language-server: $schema=PATH/test_case.schema.json",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="test_case, suite, run_profile, ... (default: all)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write DIR/<name>.schema.json instead of printing")


def run(args: argparse.Namespace) -> int:
    """Print or write the schemas."""
    from pytest_agentbench.config.base import suggest

    schemas = printed = all_schemas()
    if args.name is not None:
        if args.name not in schemas:
            raise ConfigError(f"there is no schema {args.name!r}{suggest(args.name, schemas.keys())}")
        printed = schemas[args.name]
        schemas = {args.name: printed}
    if args.output is None:
        print(schema_text(printed), end="")
        return 0
    from pytest_agentbench.bounded.writing import write_text

    for name, schema in schemas.items():
        print(write_text(args.output / f"{name}.schema.json", schema_text(schema)))
    return 0


def all_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of the configuration files, of scripts, of report.json and of records, by name."""
    from pytest_agentbench.config.kinds import json_schemas
    from pytest_agentbench.models.script_files import script_schemas
    from pytest_agentbench.reports.json_lines import json_lines_schema
    from pytest_agentbench.reports.reading import report_schema

    return {**json_schemas(), **script_schemas(), "report": report_schema(), "json_lines": json_lines_schema()}


def schema_text(value: object) -> str:
    """Return a schema, or an object with several, as the text of a file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
