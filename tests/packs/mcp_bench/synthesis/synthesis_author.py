"""Serve a model on loopback that writes scripted tasks, and make a project for them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.cli import main

SERVER = Path(__file__).parents[4] / "cases" / "mcp" / "server.py"
NAMES = ("Timetable", "Exchange", "Library")

ENGLISH = {"Design one complex task": "generation", "Turn this detailed task": "fuzzing", "Assess the": "gate"}
CHINESE = {"请设计一个工具之间": "generation", "请把这个详细任务": "fuzzing", "请从两个维度评估": "gate"}


def task(scenario: str, **changed: object) -> str:
    """Return the reply to a request for a task."""
    reply = {
        "dependency_analysis": "Timetable:departures gives the train that Timetable:ticket_price needs.",
        "task_description": f"{scenario}: find a cheap train with Timetable:departures, and convert with Exchange.",
        "dependencies": [
            {"tool": "Timetable:ticket_price", "prerequisites": ["Timetable:departures"]},
            {"tool": "Exchange:convert", "prerequisites": ["Timetable:ticket_price"]},
        ],
    }
    return json.dumps({**reply, **changed})


def scores(solvability: object, utility: object) -> str:
    """Return the reply to a request for an assessment."""
    feedback = {"solvability_feedback": "about the tools", "utility_feedback": "about the need"}
    return json.dumps({**feedback, "solvability_score": solvability, "utility_score": utility})


@dataclass
class Author:
    """A model with a reply for each stage and prompt. Scenarios are named by `draft_of`."""

    generation: Callable[[str], str] = lambda prompt: task(f"Trip {draft_of(prompt)}")
    fuzzing: Callable[[str], str] = lambda prompt: f"I'm off on trip {scenario_of(prompt)}, what would that cost me?"
    gate: Callable[[str], str] = lambda prompt: scores(9.5, 7)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, body: dict) -> dict:
        """Return the reply to a request. Its stage and prompt are added to `asked`."""
        prompt = body["messages"][1]["content"]
        [stage] = [stage for start, stage in {**ENGLISH, **CHINESE}.items() if prompt.startswith(start)]
        self.asked.append((stage, "\n".join(message["content"] for message in body["messages"])))
        return {"role": "assistant", "content": getattr(self, stage)(self.asked[-1][1])}

    @property
    def stages(self) -> list[str]:
        return [stage for stage, _ in self.asked]


def scenario_of(prompt: str) -> str:
    """Return the scenario of the task in a prompt."""
    found = re.search(r"Trip ([\w-]+)", prompt)
    assert found is not None, prompt
    return found[1]


def draft_of(prompt: str) -> str:
    """Return the number of the requested task, and the number of reasons against its earlier drafts."""
    number = re.search(r"This is task (\d+) of", prompt)
    reasons = re.search(r" reasons>>>\n((?:- .*\n)*)", prompt)
    return f"{number[1] if number else 1}-{reasons[1].count(chr(10)) if reasons else 0}"


class Done(NamedTuple):
    """The result of a call of the command."""

    returncode: int
    stdout: str
    stderr: str


class Maker:
    """A folder with servers, and a model whose endpoint is the author."""

    def __init__(self, folder: Path, author: Author) -> None:
        self.folder, self.author = folder, author
        self.endpoint = FaultEndpoint(answer=author)
        self.file = folder / "tasks.json"
        self.drafts = folder / "tasks.json.drafts.jsonl"

    def __enter__(self) -> Maker:
        self.endpoint.__enter__()
        shutil.copy(SERVER, self.folder / "server.py")
        own = [
            f"  {name}: {{command: {sys.executable}, args: [server.py, {name.lower()}], cwd: ., sandbox: local}}"
            for name in NAMES
        ]
        others = [f"  Other {number:02}: {{command: not-installed-here}}" for number in range(14)]
        servers = "\n".join(["schema_version: 1", "servers:", *own, *others])
        (self.folder / "servers.yaml").write_text(servers, encoding="utf-8")
        model = f"{{model_id: author, base_url: '{self.endpoint.base_url}', api_key_env: none, prices: PRICES}}"
        prices = "{input_per_1m: 1000, output_per_1m: 1000}"
        models = f"schema_version: 1\nmodels:\n  - {model.replace('PRICES', prices)}\n"
        (self.folder / "models.yaml").write_text(models, encoding="utf-8")
        return self

    def __exit__(self, *exc: object) -> None:
        self.endpoint.__exit__(*exc)

    def options(self, *options: str, servers: str | None = "Timetable,Exchange") -> list[str]:
        """Return the options that make tasks of this folder."""
        chosen = [] if servers is None else ["--servers", servers]
        return ["mcp", "synthesize", "--model", "author", *chosen, *options]

    def command(self, *options: str) -> list[str]:
        """Return the command line of a process that makes tasks of this folder."""
        return [sys.executable, "-m", "pytest_agentbench.cli", *self.options(*options)]

    def make(self, *options: str, servers: str | None = "Timetable,Exchange") -> Done:
        """Run the command to its end in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(self.options(*options, servers=servers))
            except SystemExit as error:
                status = error.code
        return Done(status, out.getvalue(), err.getvalue())

    def tasks(self) -> list[dict]:
        """Return the tasks in the file."""
        if not self.file.exists():
            return []
        document = json.loads(self.file.read_text(encoding="utf-8"))
        return [task for group in document["server_tasks"] for task in group["tasks"]]

    def verdicts(self) -> Iterator[dict]:
        """Return the verdicts on drafts, from their file."""
        for line in self.drafts.read_text(encoding="utf-8").splitlines():
            kept = json.loads(line)
            if kept["kind"] == "verdict":
                yield kept
