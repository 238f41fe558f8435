"""`agentbench ... --help` and `agentbench list` import no module that only other commands need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from benchmarks.startup import CASES, make_project
from pytest_agentbench.cli import COMMANDS
from pytest_agentbench.cli.commands import find_commands
from pytest_agentbench.extensions import GROUP

PACKS = find_commands({})
HEAVY = {"asyncio", "pydantic", "pytest", "regex", "rich", "yaml"}
SHARED = {
    *("cli", "cli.argument_types", "cli.commands", "cli.output", "cli.report_options"),
    *("entry_points", "errors", "extensions", "seams", "terminal_text"),
}
"""Modules of ours that any command may import."""
REGISTRATIONS = {"pack", "packs", *(f"packs.{entry.name}" for entry in entry_points(group=GROUP))}
"""The modules that have a Pack, which is all that is imported of a pack that is not used."""
LISTED = """
bounded.files bounded.patterns cli.additions cli.list cli.places cli.stand_ins records.base records.case
records.check_specs records.gold user_folder
config.base config.case_context config.case_file config.case_messages config.check_list
config.documents config.functions config.pattern_doubts config.profiles
config.request_fields config.roots config.short_forms config.variant_files
config.folders config.grants config.sections config.pytest_files config.root_search config.session_roots
sources.case_source sources.discovery sources.names sources.test_yaml
"""
"""Modules that read one test.yaml, in addition to SHARED."""
RUNNING = {"engine", "judging", "metrics", "models", "reports", "store", "tools", "workspaces"}
"""Rooms that run, grade and report."""
PROGRAM = """
import json, sys
from pytest_agentbench.cli import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(arguments: Sequence[str], expected: str = "") -> set[str]:
    # -I, else what the environment adds to the path of modules could bring imports of its own.
    command = [sys.executable, "-I", "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: agentbench" if "--help" in arguments else expected)
    return set(json.loads(done.stderr))


def ours(modules: set[str]) -> set[str]:
    return {name.removeprefix("pytest_agentbench.") for name in modules if name.startswith("pytest_agentbench.")}


def test_the_help_imports_no_command() -> None:
    found = imported(["--help"])
    assert not found & (HEAVY | {"dataclasses", "importlib.metadata", "pathlib", "typing"})
    assert ours(found) - SHARED == REGISTRATIONS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_imports_its_own_module_alone(command: str) -> None:
    found = imported([command, "--help"])
    assert not found & HEAVY
    rest = ours(found) - SHARED - {f"cli.{command}"}
    asks_packs = command in ("agents", "mcp")  # for sandboxes and commands
    assert rest == (REGISTRATIONS if asks_packs else set())


@pytest.mark.parametrize("command", PACKS)
def test_the_help_of_a_packs_command_imports_its_own_module_alone(command: str) -> None:
    found = imported([command, "--help"])
    assert not found & HEAVY
    module = PACKS[command].module.partition(":")[0].removeprefix("pytest_agentbench.")
    assert {name for name in ours(found) - SHARED if name.count(".") > 1} <= {module, "packs.research.stages"}


@pytest.mark.slow
def test_a_list_of_one_case_imports_only_its_readers(tmp_path: Path) -> None:
    make_project(tmp_path)
    found = imported(["list", str(tmp_path / "one")], expected="sum\t")
    assert not found & (HEAVY - {"pydantic", "regex", "yaml"})
    rooms = {name.partition(".")[0] for name in LISTED.split() if "." in name}
    listed = set(LISTED.split()) | rooms | REGISTRATIONS
    assert ours(found) - SHARED == listed - SHARED, "new here, or no longer imported"


@pytest.mark.slow
def test_a_list_of_the_samples_imports_nothing_that_runs_them() -> None:
    found = imported(["list", str(CASES)])
    assert not found & (HEAVY - {"pydantic", "regex", "yaml"})
    assert not {name.partition(".")[0] for name in ours(found)} & RUNNING
    assert not ours(found) & {"checks.run", "runners.base", "packs.research.grader", "packs.openclaw.turns"}
