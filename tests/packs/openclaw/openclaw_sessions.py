"""Projects with cases for OpenClaw of any tier, and the files that their sessions leave."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openclaw_tiers import Tier, put_on_path
from support.bench import Bench, Finished, check

REPORT = {"name": "write", "arguments": {"path": "report.md", "content": "# Report\n\nFirst.\n"}}
HAS_REPORT = check("report", kind="openclaw_workspace_file_present", relative_path="report.md", contains="# Report")


class Project:
    """Cases of the runner `openclaw` with one agent, whose workspace has a file in addition to AGENTS.md."""

    def __init__(self, bench: Bench, tier: Tier) -> None:
        self.bench, self.tier = bench, tier
        agent = {"agent": {"id": "report-writer", "prompt": "You write reports."}}
        bench.write(
            "cases/agents/writer/agent.yaml",
            {"schema_version": 1, "agent_id": "writer", "title": "W", "openclaw": agent},
        )
        bench.write("cases/agents/writer/workspace/AGENTS.md", "# Reports\n\nWrite report.md.\n")
        bench.write("cases/agents/writer/workspace/style.txt", "Short.\n")
        self.profile()

    def profile(
        self,
        *,
        seconds: int = 600,
        sandbox: dict[str, Any] | None = None,
        openclaw: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        openclaw = {"agent_id": "writer", "timeout_seconds": seconds, **self.tier.settings, **(openclaw or {})}
        self.bench.profile("contained", openclaw=openclaw, sandbox=sandbox or {"type": "auto"}, **fields)

    def case(
        self, case_id: str, *texts: str, checks: tuple[dict[str, Any], ...] = (HAS_REPORT,), **fields: Any
    ) -> None:
        """Write a case of one message, or of several turns."""
        messages = [{"role": "user", "content": text} for text in texts]
        asked = {"messages": messages} if len(texts) == 1 else {"messages": [], "turns": messages}
        self.bench.case(case_id, runner={"type": "openclaw"}, input=asked, deterministic_checks=list(checks), **fields)

    def script(self, case_id: str, *replies: dict[str, Any], **fields: Any) -> None:
        self.bench.write(f"cases/{case_id}/demo.yaml", {"schema_version": 1, "replies": list(replies), **fields})

    def run(self, *options: str, model: str = "demo") -> Finished:
        return self.bench.run(f"--model={model}", "--agentbench-run-profile=contained", "-rs", *options)

    def artifact(self, case_id: str) -> dict[str, Any]:
        [path] = (self.bench.path / "outputs/runs").rglob(f"{case_id}/run_1.json")
        artifact: dict[str, Any] = json.loads(path.read_text())
        return artifact

    def stored(self) -> Iterator[tuple[str, bytes]]:
        """Return every file below the output folder, and in its archives."""
        for path in (self.bench.path / "outputs").rglob("*"):
            if path.is_file():
                yield str(path), path.read_bytes()
            if path.suffix == ".tar":
                with tarfile.open(path) as archive:
                    for member in archive:
                        if (file := archive.extractfile(member)) is not None:
                            yield f"{path}: {member.name}", file.read()


@contextmanager
def openclaw_project(tier: Callable[[Path], Tier], bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Yield a project whose session has its files in a folder of the test, which identifies its containers.

    The folder's path is short: a socket's path has at most 107 bytes, and stub programs connect to one on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="oc-") as folder:
        (sessions := Path(folder, "t")).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(sessions))
        monkeypatch.setenv("TMPDIR", str(sessions))
        made = tier(Path(folder))
        put_on_path(monkeypatch, folder, Path(made.settings.get("docker_cli", folder)).parent)
        yield Project(bench, made)


def events(artifact: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in artifact["trace"] if event["type"] == kind]


def steps(*calls: dict[str, Any], says: str = "Done.") -> dict[str, Any]:
    """Return a reply that makes these calls, one after the other, and then answers."""
    return {"steps": [*({"tool_calls": [call]} for call in calls), {"content": says}]}


def shell(command: str) -> dict[str, Any]:
    return {"name": "exec", "arguments": {"command": command}}
