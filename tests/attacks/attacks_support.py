"""What the attacks share: a sandbox of each kind, and the outcomes that docs/security.md states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.docker_here import needs_bubblewrap, needs_docker
from support.outer_bound import bound_containers, bounded
from support.started_sandbox import started

from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
SECRET = "zebra-crossing-4711"
MARKS = {"docker": [needs_docker, pytest.mark.slow], "bubblewrap": [needs_bubblewrap], "local": []}


@dataclass(frozen=True)
class Row:
    """An attack of the page's tables: its outcome by sandbox, or by `outcome` where there is no choice of sandboxes."""

    section: str
    attack: str
    outcomes: dict[str, str]
    test: str


def rows() -> Iterator[Row]:
    """The attacks of docs/security.md: the rows of tables whose last column is `test`."""
    head: list[str] = []
    section = ""
    for line in SECURITY.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if not cells or cells[-1] == "test":
            head = cells or (head if line.startswith("|-") else [])
        elif head:
            yield Row(section, cells[0], dict(zip(head[1:-1], cells[1:-1], strict=True)), cells[-1].strip("`"))


def attack(test: Callable[..., None]) -> Callable[..., None]:
    """Runs the test on each `kind` of sandbox; `isolated` is what the page says of it: the attack gets nowhere."""
    found = [row.outcomes for row in rows() if row.test == test.__name__]
    assert len(found) == 1, f"{SECURITY}: found {len(found)} rows for {test.__name__}, expected one"
    params = [
        pytest.param(kind, outcome != "not isolated", id=kind, marks=MARKS[kind]) for kind, outcome in found[0].items()
    ]
    return pytest.mark.parametrize(("kind", "isolated"), params)(test)


def run(
    kind: str,
    base: Path,
    command: str = "python3 attack.py",
    *,
    program: str = "",
    seconds: float = 30,
    outer_bound: bool = False,
    **settings: Any,
) -> ExecResult:
    """What a shell command gives in a sandbox of its own, where `program` lies as attack.py."""

    async def attempt() -> ExecResult:
        async with started(kind, base, **settings) as sandbox:
            await sandbox.put("attack.py", program.encode())
            with _containers_bounded(sandbox) if outer_bound else nullcontext():
                return await shell(sandbox, command, seconds)

    return asyncio.run(attempt())


def run_bounded(kind: str, base: Path, *args: Any, **kwargs: Any) -> ExecResult:
    """`run` for what would take this machine with it: an outer bound holds where the sandbox does not."""
    return bounded(run, kind, base, *args, outer_bound=True, **kwargs)


async def shell(sandbox: Sandbox, command: str, seconds: float = 30) -> ExecResult:
    """Run a shell command."""
    return await sandbox.exec(["/bin/sh", "-c", command], seconds=seconds)


@contextmanager
def _containers_bounded(sandbox: Sandbox) -> Iterator[None]:
    if sandbox.kind != "docker":
        yield
        return
    import docker

    with closing(docker.from_env()) as client:
        filters = {"volume": str(sandbox.workspace.path)}
        [container] = client.containers.list(filters=filters, ignore_removed=True)
        pid = container.attrs["State"]["Pid"]
    with bound_containers(pid):
        yield
