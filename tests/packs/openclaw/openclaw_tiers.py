"""The three kinds of OpenClaw that sessions are tried with: how a run profile names each, and what it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from support import stub_engine, stub_openclaw
from support.docker_here import needs_docker
from support.openclaw_here import OPENCLAW_IMAGE, needs_openclaw, stub_image

_KILL_ALL = (
    "cd /proc; for p in [0-9]*; do grep -qa relay.mjs $p/cmdline || [ $p = 1 ] || [ $p = $$ ] || kill -9 $p; done"
)
_LABEL = "pytest-agentbench.session"


@dataclass(frozen=True)
class Tier:
    """What is in place of OpenClaw. `settings` are those of a profile's `openclaw` block; sessions lie below `below`.

    `time_out` is a limit, in seconds, within which a run's first call is made where nothing else runs. `many` is how
    many runs fit on a small machine side by side, `memory_mb` a limit that OpenClaw itself keeps.
    """

    below: Path
    settings: Mapping[str, Any]
    time_out: int
    many: int
    memory_mb: int = 64

    @property
    def isolates(self) -> bool:
        return "docker_cli" not in self.settings

    @property
    def suicide(self) -> str:
        """What a shell of the agent runs to end the agent: OpenClaw's own tools are children of a child of its."""
        return _KILL_ALL if self.isolates else "kill -9 $PPID"

    def containers(self) -> list[str]:
        """The containers of its sessions that are there, by the folders of the sessions."""
        if self.isolates:
            with closing(docker.from_env()) as client:
                found = [each["Labels"] for each in client.api.containers(all=True, filters={"label": _LABEL})]
        else:
            notes = Path(self.settings["docker_cli"]).parent.glob("containers/*/made.json")
            found = [json.loads(note.read_text())["Labels"] for note in notes]
        return [labels[_LABEL] for labels in found if labels[_LABEL].startswith(str(self.below))]


def put_on_path(monkeypatch: pytest.MonkeyPatch, *folders: str | Path) -> None:
    """Makes what lies in the folders programs that profiles may name."""
    monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], *map(str, folders)]))


def stub(below: Path) -> Tier:
    """The stub programs on the stub engine: no isolation, a fraction of a second."""
    programs = below / "programs"
    programs.mkdir()
    stub_openclaw.install(programs)
    engine = stub_engine.installed(below / "engine", {"localhost/stub:1": programs})
    return Tier(below, {"image": "localhost/stub:1", "docker_cli": engine}, time_out=2, many=4)


def stub_in_docker(below: Path) -> Tier:
    """The stub programs in containers."""
    return Tier(below, {"image": stub_image()}, time_out=2, many=4)


def real(below: Path) -> Tier:
    """OpenClaw."""
    return Tier(below, {"image": OPENCLAW_IMAGE}, time_out=25, many=2, memory_mb=1024)


STUB = pytest.param(stub, id="stub")
SLOW_STUB = pytest.param(stub, id="stub", marks=pytest.mark.slow)
IN_DOCKER = pytest.param(stub_in_docker, id="docker", marks=[pytest.mark.slow, needs_docker])
REAL = pytest.param(real, id="real", marks=[pytest.mark.full, needs_openclaw])
