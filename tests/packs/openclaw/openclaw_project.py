"""A project with cases for OpenClaw's stub, one agent, and further ones."""

from __future__ import annotations

import json
from typing import Any

from support.bench import Bench, Finished, check

SAYS = (check("says", kind="final_response_present"),)


class Project:
    """Cases of the runner `openclaw` and its agents. Every agent's workspace contains the agent's name."""

    def __init__(self, bench: Bench, settings: dict[str, Any]) -> None:
        self.bench, self.settings = bench, settings
        self.agent("writer")
        self.profile()

    def agent(self, name: str, *, openclaw: dict[str, Any] | None = None, **fields: Any) -> None:
        told = {"schema_version": 1, "agent_id": name, "title": name, "openclaw": openclaw or {}, **fields}
        self.bench.write(f"cases/agents/{name}/agent.yaml", told)
        self.bench.write(f"cases/agents/{name}/workspace/AGENTS.md", f"# {name}\n")

    def profile(self, *, openclaw: dict[str, Any] | None = None, **fields: Any) -> None:
        block = {"agent_id": "writer", "timeout_seconds": 60, **self.settings, **(openclaw or {})}
        self.bench.profile("claw", openclaw=block, **fields)

    def case(self, case_id: str, text: str = "Go.", *, checks: Any = SAYS, **fields: Any) -> None:
        asked = {"messages": [{"role": "user", "content": text}], **fields.pop("asked", {})}
        fields = {"runner": {"type": "openclaw"}, "input": asked, **fields}
        self.bench.case(case_id, deterministic_checks=[*checks], **fields)
        self.script(case_id)

    def script(self, case_id: str, *steps: dict[str, Any]) -> None:
        replies = [{"steps": [*steps, {"content": "Done."}]}]
        self.bench.write(f"cases/{case_id}/demo.yaml", {"schema_version": 1, "replies": replies})

    def suite(self, *assignments: dict[str, Any], **fields: Any) -> None:
        told = {"schema_version": 1, "suite_id": "s", "title": "S", "openclaw": {"agent_assignments": [*assignments]}}
        self.bench.write("cases/suites/s.yaml", told | fields)

    def run(self, *options: str, model: str = "demo", profile: str = "claw") -> Finished:
        return self.bench.run(f"--model={model}", f"--agentbench-run-profile={profile}", "-rs", *options)

    def artifact(self, case_id: str) -> dict[str, Any]:
        [path] = (self.bench.path / "outputs/runs").rglob(f"{case_id}/run_1.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def write(path: str, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "write", "arguments": {"path": path, "content": text}}]}


def shell(command: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "exec", "arguments": {"command": command}}]}


def of_agent(case_id: str, agent: str) -> dict[str, Any]:
    """Return a check that the agent of that name ran the case: its AGENTS.md is in the workspace."""
    return check(case_id, kind="file_contains", path="AGENTS.md", text=f"# {agent}\n")
