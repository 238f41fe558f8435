"""Imports of a session of one callable case: what the case names, module by module, and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.startup import OPTIONS, OURS, make_project
from pytest_agentbench.collecting import import_plainly

MODULES = """
collecting ending entry_points errors extensions fixtures hookspecs options pack plugin seams session terminal_text
user_folder
bounded: files folders locks patterns writing
checks: base combined run texts
collection: arms items planning preconditions reporting roots start store_plugins variants walk
config: base case_context case_file case_messages check_list documents folders functions grants profiles pytest_files
config: pattern_doubts request_fields root_search roots sections session_roots short_forms variant_files
distributed: control_socket session_control
engine: agent_code agent_values attempt budget case_rules cassettes driver evaluation execution grading identities
engine: job lookahead run_plan running services user_code
identity: fingerprints
metrics: registry
records: base case check_specs evaluation gold run
packs: agents exporters importers mcp_bench openclaw plugin_evals research skill_evals
reports: failure_lists gate history_file journal kept_rows named_files report rows sections table terminal texts
runners: asking base kinds subjects
secrets: encodings redaction
sources: case_source discovery names test_yaml
statistics: estimates
store: artifacts claims connection database documents layout output_folder
tools: builtin
"""
"""Ours, by their rooms. A module that is new here is time that every session pays: import it where it is needed."""
OTHERS = {"annotated_types", "pydantic", "pydantic_core", "regex", "typing_extensions", "typing_inspection", "yaml"}
"""Top-level packages beside Python's own and those of plain pytest."""
PLUGINS = ("junitxml", "doctest", "unittest", "pastebin", "stepwise", "setuponly", "faulthandler", "logging", "recwarn")
"""Plugins of pytest that a session can do without."""
PROGRAM = """
import json, sys, pytest
status = pytest.main(sys.argv[1:])
with open("modules.json", "w") as file:
    json.dump([*sys.modules], file)
sys.exit(status)
"""


def allowed() -> set[str]:
    """Return the names of MODULES, with their packages."""
    found = {"pytest_agentbench"}
    for line in MODULES.strip().splitlines():
        room, _, names = line.partition(":")
        found |= {f"pytest_agentbench.{name}" for name in room.split()}
        found |= {f"pytest_agentbench.{room}.{name}" for name in names.split()}
    return found


def imported(folder: Path, arguments: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return what a session imports: modules of ours, and top-level packages of others."""
    # Nothing of this environment: variables may name plugins, options and models.
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    found = json.loads((folder / "modules.json").read_text())
    tops = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
    # What extension modules in C bring along has names of their makers.
    others = {name for name in tops if "cython" not in name and not name.startswith("_")} - {"pytest_agentbench"}
    return {name for name in found if name.partition(".")[0] == "pytest_agentbench"}, others


@pytest.mark.slow
@pytest.mark.parametrize("off", [(), PLUGINS], ids=["all of pytest", "less of pytest"])
def test_one_case_imports_what_it_names(tmp_path: Path, off: Sequence[str]) -> None:
    make_project(tmp_path)
    fewer = [word for name in off for word in ("-p", f"no:{name}")]
    modules, packages = imported(tmp_path, [*OURS, "-p", "agentbench", *fewer, "one"])
    _, plain = imported(tmp_path, [*OPTIONS, *fewer, "plain"])
    assert packages - plain - OTHERS == {"conftest"}
    assert (sorted(modules - allowed()), sorted(allowed() - modules)) == ([], []), "new, and no longer imported"


def test_pytests_finder_is_away_for_the_import_of_the_engine_alone() -> None:
    before = [*sys.meta_path]
    assert "AssertionRewritingHook" in {type(finder).__name__ for finder in before}
    with import_plainly():
        assert "AssertionRewritingHook" not in {type(finder).__name__ for finder in sys.meta_path}
        sys.meta_path.append(added := object())
    assert {*sys.meta_path} == {added, *before}
    sys.meta_path.remove(added)
    assert sys.meta_path == before
