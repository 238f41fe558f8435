"""A finished session to export, and the call of the command."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, case_yaml

from pytest_agentbench.cli import main

TOOLED = {
    "input": {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Note it."}],
        "context": {"llm_probe": {"tools": ["write_file"]}},
    }
}
CALL = {"name": "write_file", "arguments": {"path": "a.txt", "content": "x", "append": False}}
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "tooled": [{"tool_calls": [CALL]}, {"content": "Paris, noted. \u2713"}],
    "wrong": [{"content": "Rome"}],
    "down": [{"error": {"status": 503, "message": "overloaded"}}],
}


@dataclass(frozen=True)
class Exporting:
    """A project with a report of two repetitions of each case in SCRIPTS."""

    bench: Bench
    capsys: pytest.CaptureFixture[str]

    @property
    def report(self) -> Path:
        return self.bench.path / "report.json"

    def change(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Apply a change to the report, as a stranger could."""
        report = json.loads(self.report.read_text())
        change(report)
        self.report.write_text(json.dumps(report))

    def call(self, *arguments: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = main(["export", *arguments, "--report", "report.json"])
        output = self.capsys.readouterr()
        return code, output.out, output.err


@pytest.fixture
def exporting(bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Exporting:
    monkeypatch.chdir(bench.path)
    for name, steps in SCRIPTS.items():
        fields = TOOLED if name == "tooled" else {}
        runner = {"runner": {"type": "llm_probe", "retries": 0}}
        bench.write(f"cases/{name}/test.yaml", case_yaml(name, **fields, **runner))
        bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})
    bench.run("--model", "demo", "--agentbench-repetitions", "2", "--agentbench-json", "report.json")
    return Exporting(bench, capsys)


def read_members(path: Path) -> dict[str, Any]:
    """Return the JSON members of a log by name."""
    with zipfile.ZipFile(path) as log:
        assert {member.compress_type for member in log.infolist()} == {zipfile.ZIP_DEFLATED}
        return {name: json.loads(log.read(name)) for name in log.namelist()}
