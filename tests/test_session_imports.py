"""Imports of a session of one callable case."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.startup import COUNTED, ENVIRONMENT, OURS, make_project

MOST_MODULES = 85
HEAVY = {"filelock", "openai", "mcp", "docker", "httpx2", "jinja2", "jsonschema", "rich"}


def test_one_case_imports_few_modules(tmp_path: Path) -> None:
    make_project(tmp_path)
    counted = COUNTED.replace('{"status"', '{"others": sorted(sys.modules), "status"')
    command = [sys.executable, "-c", counted, "counted.json", *OURS, "one"]
    subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
    found = json.loads((tmp_path / "counted.json").read_text())
    assert found["status"] == 0
    assert not HEAVY & set(found["others"])
    assert not [name for name in found["modules"] if name.startswith("pytest_agentbench.testing")]
    assert len(found["modules"]) <= MOST_MODULES, found["modules"]
