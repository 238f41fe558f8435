"""Write a project in pytester's folder, and run sessions on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

_OTHERS = ("hypothesispytest", "anyio", "timeout", "pytest_cov")
_IDLE = ("doctest", "faulthandler", "pastebin", "stepwise", "unittest", "xdist.looponfail")
LEAN = ["--assert=plain", *(f"-pno:{plugin}" for plugin in (*_OTHERS, *_IDLE))]
"""Options without parts that no session here uses: foreign plugins cost a process a second, rewriting of
assertions in the package a third of its start, own plugins milliseconds. Pages of docs/ run without these options.
"""

ECHO = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: case.metadata.get("says", "Paris")
"""
"""A conftest.py whose agent answers with the text in the case's metadata, by default Paris."""

ECHO_TO_FILE = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        with open("runs.txt", "a") as file:
            file.write(case.case_id + "\\n")
        return case.metadata.get("says", "Paris")
    return agent
"""
"""A conftest.py like ECHO, which also appends the id of each asked case to a file."""

HEAD = """
import asyncio, os, threading, time
import pytest
from pytest_agentbench import RunOutput, Usage

def note(name, line=""):
    with open(name, "a") as file:
        file.write(line + "\\n")

@pytest.fixture(scope="session")
def agentbench_runner():
    return agent

"""
"""The beginning of a conftest.py, to be followed by its `agent`."""

COUNTING = (
    HEAD
    + """
busy = most = 0

async def agent(case):
    global busy, most
    busy += 1
    most = max(most, busy)
    for _ in range(20):
        await asyncio.sleep(0)
    busy -= 1
    return "Paris"

def pytest_unconfigure(config):
    if most:
        note("most.txt", str(most))
"""
)
"""A conftest.py that records the highest number of concurrent runs in its process."""


def case_yaml(case_id: str, **fields: Any) -> dict[str, Any]:
    """Return a case that passes if the answer is Paris; fields replace or add keys, None removes one."""
    case = {
        "schema_version": 1,
        "case_id": case_id,
        "title": f"Case {case_id}",
        "runner": {"type": "llm_probe"},
        "input": {"messages": [{"role": "user", "content": f"The capital of France? ({case_id})"}]},
        "deterministic_checks": [check("paris", kind="regex_match", pattern="Paris")],
    }
    return {key: value for key, value in (case | fields).items() if value is not None}


def check(check_id: str, **declarative: Any) -> dict[str, Any]:
    return {"check_id": check_id, "declarative": declarative}


@dataclass
class Finished:
    """A session that has ended. `runs` are the rows of report.json, by the part of the node id after `::`."""

    result: pytest.RunResult
    report: dict[str, Any] | None
    runs: dict[str, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        rows = self.report["runs"] if self.report else []
        self.runs = {row["nodeid"].partition("::")[2]: row for row in rows}

    @property
    def exit(self) -> int:
        return int(self.result.ret)

    @property
    def text(self) -> str:
        return self.result.stdout.str() + self.result.stderr.str()

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: row["outcome"] for name, row in self.runs.items()}


class Bench:
    """Write the project and run pytest on it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester, self.path = pytester, pytester.path
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, content: str | Mapping[str, Any]) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(dict(content)), encoding="utf-8")
        return path

    def case(self, case_id: str, *, folder: str = "cases", **fields: Any) -> Path:
        return self.write(f"{folder}/{case_id}/test.yaml", case_yaml(case_id, **fields))

    def rows(self, name: str, *rows: Mapping[str, Any] | str) -> Path:
        return self.write(name, "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))

    def questions(self, count: int, *, name: str = "cases/many.jsonl", answer: str = "Paris") -> Path:
        return self.rows(name, *({"id": f"q{i}", "question": f"question {i}?", "answer": answer} for i in range(count)))

    def agent(self, source: str = ECHO, *, folder: str = "") -> Path:
        return self.write(f"{folder}/conftest.py".lstrip("/"), source)

    def profile(self, name: str, *, policy: Mapping[str, Any] | None = None, **fields: Any) -> Path:
        profile = {"schema_version": 1, "run_profile_id": name, "title": name, **fields}
        profile["execution_policy"] = {"stop_on_runner_error": False, **(policy or {})}
        return self.write(f"cases/run_profiles/{name}.yaml", profile)

    def models(self, *models: Mapping[str, Any]) -> Path:
        return self.write("cases/models.yaml", {"schema_version": 1, "models": list(models)})

    def run(self, *args: str) -> Finished:
        """Run a session in this process."""
        return self._finished(self.pytester.runpytest_inprocess(*LEAN, *args))

    def spawn(self, *args: str, timeout: float = 180) -> Finished:
        """Run a session in a new process."""
        return self._finished(self.pytester.runpytest_subprocess(*LEAN, *args, timeout=timeout))

    def _finished(self, result: pytest.RunResult) -> Finished:
        path = self.path / "outputs" / "report.json"
        report = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if report is not None:
            path.unlink()
        return Finished(result, report)

    def lines(self, name: str) -> list[str]:
        """Return the lines that agents appended to a file."""
        path = self.path / name
        return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
