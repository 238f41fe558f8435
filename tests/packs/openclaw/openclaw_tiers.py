"""The three tiers of OpenClaw in tests of sessions, with their run profiles and containers."""

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
    """A stand-in for OpenClaw. `settings` are those of a profile's `openclaw` block; sessions are below `below`.

    `time_out` is a limit in seconds within which the first call of a run is made if nothing else runs. `many` is the
    number of concurrent runs for a small machine, `memory_mb` a limit that is enough for OpenClaw itself.
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
        """Return a shell command by which the agent kills itself: OpenClaw's tools are grandchildren of the agent."""
        return _KILL_ALL if self.isolates else "kill -9 $PPID"

    def containers(self) -> list[str]:
        """Return the existing containers of its sessions, by the folders of the sessions."""
        if self.isolates:
            with closing(docker.from_env()) as client:
                found = [each["Labels"] for each in client.api.containers(all=True, filters={"label": _LABEL})]
        else:
            notes = Path(self.settings["docker_cli"]).parent.glob("containers/*/made.json")
            found = [json.loads(note.read_text())["Labels"] for note in notes]
        return [labels[_LABEL] for labels in found if labels[_LABEL].startswith(str(self.below))]


def put_on_path(monkeypatch: pytest.MonkeyPatch, *folders: str | Path) -> None:
    """Put the programs of the folders on PATH, so that profiles may name them."""
    monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], *map(str, folders)]))


def stub(below: Path) -> Tier:
    """Return the stub programs on the stub engine: no isolation, a fraction of a second."""
    programs = below / "programs"
    programs.mkdir()
    stub_openclaw.install(programs)
    engine = stub_engine.installed(below / "engine", {"localhost/stub:1": programs})
    return Tier(below, {"image": "localhost/stub:1", "docker_cli": engine}, time_out=2, many=4)


def stub_in_docker(below: Path) -> Tier:
    """Return the stub programs in containers."""
    return Tier(below, {"image": stub_image()}, time_out=2, many=4)


def real(below: Path) -> Tier:
    """Return OpenClaw."""
    return Tier(below, {"image": OPENCLAW_IMAGE}, time_out=25, many=2, memory_mb=1024)


STUB = pytest.param(stub, id="stub")
SLOW_STUB = pytest.param(stub, id="stub", marks=pytest.mark.slow)
IN_DOCKER = pytest.param(stub_in_docker, id="docker", marks=[pytest.mark.slow, needs_docker])
REAL = pytest.param(real, id="real", marks=[pytest.mark.full, needs_openclaw])
