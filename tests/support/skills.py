"""Projects with a skill, for an agent program and for llm_probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.bench import Bench, check

from pytest_agentbench.records.run import RunnerEvent, TraceEvent

AGENT = Path(__file__).with_name("skill_agent.py")
ADAPTER: dict[str, Any] = {
    "schema_version": 1,
    "name": "stub",
    "title": "Stub",
    "licence": "MIT",
    "install": {"pypi": "stub==1.0.0"},
    "dialects": ["chat"],
    "argv": ["python3", "{workspace}/agent.py", "{message}"],
    "answer": {"from": "stdout_json", "path": "result"},
    "tools": {"shell": {"name": "sh", "arguments": {"command": "{command}"}}},
    "skills": {"folder": "{home}/.stub/skills", "tool": "skill", "argument": "name"},
}
BODY = "Run scripts/shout.sh of this skill to write the text of a sign into sign.txt."
CALL = {"tool_calls": [{"name": "skill", "arguments": {"name": "signs"}}]}
SHOUT = {"tool_calls": [{"name": "sh", "arguments": {"command": "~/.stub/skills/signs/scripts/shout.sh > sign.txt"}}]}
"""A call that works only if the skill is there, and its script is executable."""
ARMS = {"without": {}, "with": {"skills": ["../skills/signs"]}}


def write_skill(
    bench: Bench, folder_name: str = "signs", *, body: str = BODY, folder: str = "cases/skills", **keys: Any
) -> Path:
    """Write a skill with a script that prints SALE, and return its folder."""
    front = {
        "name": folder_name,
        "description": "Write the text of a sign. Use it for signs, posters and labels.",
        **keys,
    }
    lines = [f"{key}: {value}" for key, value in front.items() if value is not None]
    path = bench.write(f"{folder}/{folder_name}/SKILL.md", "\n".join(["---", *lines, "---", body, ""]))
    bench.write(f"{folder}/{folder_name}/scripts/shout.sh", "#!/bin/sh\necho SALE\n").chmod(0o755)
    bench.write(f"{folder}/{folder_name}/evals/notes.txt", "Not for agents.")
    return path.parent


def write_suite(bench: Bench, variants: Any = ARMS) -> None:
    suite = {"schema_version": 1, "suite_id": "ab", "title": "AB", "variants": variants}
    bench.write("cases/suites/ab.yaml", json.dumps(suite))  # in the order of the variants


def agent_case(bench: Bench, case_id: str = "sign", *, steps: Any = (CALL, SHOUT), **fields: Any) -> None:
    """Write a case for the stub agent, which passes if it wrote SALE into sign.txt."""
    given = {
        "runner": {"type": "agent", "agent": "stub", "sandbox": "local", "timeout_seconds": 60},
        "input": {"turns": [{"role": "user", "content": f"Write a sign ({case_id})."}]},
        "workspace": "ws",
        "deterministic_checks": [check("wrote", kind="file_contains", path="sign.txt", text="SALE")],
    }
    bench.case(case_id, **{**given, **fields})
    bench.write(f"cases/{case_id}/ws/agent.py", AGENT.read_text(encoding="utf-8"))
    write_script(bench, case_id, *steps, {"content": "Paris"})


def write_script(bench: Bench, case_id: str, *steps: Any) -> None:
    bench.write(f"cases/{case_id}/demo.yaml", {"schema_version": 1, "replies": [{"steps": [*steps]}]})


def write_adapter(bench: Bench, **fields: Any) -> None:
    bench.write("cases/agents/stub/agent.yaml", {**ADAPTER, **fields})


def read_artifact(bench: Bench, row: dict[str, Any]) -> dict[str, Any]:
    """Return the stored run of a row of report.json."""
    return dict(json.loads((bench.path / "outputs" / row["artifact"]).read_text(encoding="utf-8")))


def facts(artifact: dict[str, Any]) -> list[str]:
    """Return the facts about skills in a stored run."""
    return [event["data"]["fact"] for event in artifact["trace"] if event.get("name") == "skill" and "data" in event]


def make_events(*names: str, skill: str = "signs") -> tuple[TraceEvent, ...]:
    """Return runner events of these facts."""
    return tuple(
        RunnerEvent(sequence=number, at=0.0, name="skill", data={"skill": skill, "fact": name})
        for number, name in enumerate(names)
    )
