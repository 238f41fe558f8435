"""Decide an agent's workspace by a case's verifier with hidden files, in a real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.verifying.run import run_verifiers
from pytest_agentbench.records.case import Case, RunnerSpec
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

HELD = [
    pytest.param("bubblewrap", marks=[needs_bubblewrap, pytest.mark.slow]),
    pytest.param("docker", marks=[needs_docker, pytest.mark.slow]),
]
KINDS = ["local", *HELD]
"""Sandboxes for verifying. `local` is for tests that do not depend on isolation."""

GOOD = "def median(values):\n    return sorted(values)[len(values) // 2]\n"
BAD = "def median(values):\n    return values[0]\n"
HIDDEN = """
import pytest
from solution import median

def test_odd():
    assert median([3, 1, 2]) == 2

@pytest.mark.parametrize("values", [[5], [5, 5, 5]])
def test_same(values):
    assert median(values) == 5
"""


class VerifierBench:
    """A bench. `left` are the agent's files: path to text. The case's folder is `folder`."""

    def __init__(self, kind: str, tmp_path: Path, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.folder = tmp_path / "case"
        self.folder.mkdir()
        self.sandboxes = Sandboxes(Workspaces(tmp_path))
        self.workspace = self.sandboxes.workspaces.create("left")
        self.template: Path | None = None
        self.answer: str | None = None
        """The run's final answer."""
        self.spec = SandboxSpec(kind, image=IMAGE if kind == "docker" else None)  # type: ignore[arg-type]

    def left(self, files: Mapping[str, str | bytes]) -> None:
        for path, content in files.items():
            self.workspace.write_bytes(path, content.encode() if isinstance(content, str) else content)

    def hidden(self, path: str, text: str) -> dict[str, Any]:
        """Return a hidden file in the form of `files` of a verifier."""
        source = self.folder / "verify" / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        return {"target": path, "source": source}

    def network(self) -> None:
        """Return whether the run's sandbox has a network."""
        self.spec = replace(self.spec, network=True)

    def tests(self, text: str = HIDDEN, **fields: Any) -> CheckResult:
        """Return the result of a verifier that runs hidden tests."""
        wanted = {"tests": ["tests/test_hidden.py"], **fields.pop("pytest", {})}
        files = [self.hidden("tests/test_hidden.py", text), *fields.pop("files", [])]
        return self.verify(pytest=wanted, files=files, **fields)

    def verify(self, **fields: Any) -> CheckResult:
        verifier = {"check_id": "verify", "timeout_seconds": 60.0, **fields}
        case = Case(
            case_id="c",
            title="C",
            path=self.folder / "test.yaml",
            runner=RunnerSpec(type="llm_probe"),
            workspace=self.template,
            verify=(verifier,),
        )
        artifact = RunArtifact(
            run_id="1",
            case_id="c",
            runner_type="llm_probe",
            model={},
            repetition=1,
            status="success",
            started_at=datetime.now(UTC),
            duration_seconds=1.0,
            trace=() if self.answer is None else (FinalOutputEvent(sequence=0, at=0.0, content=self.answer),),
        )
        context = CheckContext(case, artifact, self.workspace, {})
        [result] = self.runner.run(run_verifiers(context, self.sandboxes, self.spec))
        return result


def open_bench(kind: str, tmp_path: Path) -> Iterator[VerifierBench]:
    """Yield a bench in the sandbox of the test's parameter `kind`, and close it at the end; for a fixture."""
    with asyncio.Runner() as runner:
        bench = VerifierBench(kind, tmp_path, runner)
        yield bench
        runner.run(bench.sandboxes.close())
        bench.sandboxes.workspaces.close()
