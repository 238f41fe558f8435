"""Try an agent in a session: a scripted turn with tool calls, and a second turn if it has sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.runners.agents.adapter import Adapter

_TURNS = ("Write the word kingfisher into bird.txt, and read it.", "Say goodbye.")
_PER_REQUEST = {"input_tokens": 11, "cached_tokens": 2, "output_tokens": 3, "reasoning_tokens": 1}
_SECONDS = 180


class Finding(NamedTuple):
    """A check of the trial. `problem` is None if it passed."""

    what: str
    problem: str | None = None


def try_agent(adapter: Adapter, root: Path, sandbox: str) -> list[Finding]:
    """Run the agent with the scripted model and return the checks.

    It has no network, and its files are removed. Raises SandboxError if the session fails.
    """
    turns = 1 if adapter.program.resume_argv is None else len(_TURNS)
    with tempfile.TemporaryDirectory(prefix="agentbench-doctor-") as name:
        folder = Path(name)
        _write_case(folder, adapter.program.name, sandbox, turns)
        output = _run_session(folder, root)
        files_of_run = sorted(folder.glob("outputs/runs/**/run_1.json"))
        if not files_of_run:
            raise SandboxError(f"the trial session made no run:\n{output}")
        return list(_judge(json.loads(files_of_run[0].read_text(encoding="utf-8")), turns))


def _write_case(folder: Path, agent: str, sandbox: str, turns: int) -> None:
    place = folder / "cases" / "kingfisher"
    place.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    case = {
        "schema_version": 1,
        "case_id": "kingfisher",
        "title": "A trial",
        "runner": {"type": "agent", "agent": agent, "sandbox": sandbox, "timeout_seconds": _SECONDS},
        "input": {"turns": [{"role": "user", "content": text} for text in _TURNS[:turns]]},
        "deterministic_checks": [
            {"check_id": "file", "declarative": {"kind": "regex_match", "path": "bird.txt", "pattern": "kingfisher"}}
        ],
    }
    # JSON is YAML
    (place / "test.yaml").write_text(json.dumps(case, indent=2), encoding="utf-8")
    script = files("pytest_agentbench.runners.agents").joinpath("doctor_script.yaml").read_bytes()
    (place / "demo.yaml").write_bytes(script)


def _run_session(folder: Path, root: Path) -> str:
    options = ["-q", "-rs", "-p", "no:cacheprovider", "--agentbench-model", "demo", "-o", f"agentbench_configs={root}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "cases"],
        cwd=folder,
        # The user's own options could deselect the trial
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=2 * _SECONDS,
    )
    return done.stdout.strip()


def _compare(what: str, value: object, expected: object) -> Finding:
    if value == expected:
        return Finding(what)
    return Finding(what, f"found {value!r}, expected {expected!r}")


def _judge(run: Mapping[str, Any], turns: int) -> Iterator[Finding]:
    if run["status"] != "success":
        yield Finding("run", f"{run['status']}: {(run['error'] or {}).get('message')}")
        return
    output = next((e["content"] for e in reversed(run["trace"]) if e["type"] == "final_output"), "")
    answer = "Goodbye." if turns > 1 else "It says kingfisher."
    yield _compare("answer", output, answer)
    requests = sum(e["type"] == "runner" and e["name"] == "request" for e in run["trace"])
    # Two tool calls and the answer; one request for a further turn
    expected = 3 + (turns - 1)
    yield _compare("requests", requests, expected)
    usage = {name: run["usage"][name] for name in _PER_REQUEST}
    sums = {name: count * expected for name, count in _PER_REQUEST.items()}
    yield _compare("usage", usage, sums)
    mismatch = next((e["data"] for e in run["trace"] if e["type"] == "runner" and e["name"] == "usage_mismatch"), None)
    yield Finding("its own count of tokens", None if mismatch is None else f"found {mismatch}")
    changed = [change["path"] for change in run["changes"] or ()]
    yield Finding("file", None if "bird.txt" in changed else f"found changes of {changed}, expected bird.txt")
    yield Finding(f"{run['duration_seconds']:.1f} s")
