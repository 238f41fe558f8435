"""Sandboxes of somebody else's: opened for each session, closed with it, and named wherever kinds are."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.checks.verifying.verifiers import choose_python, private_path
from pytest_agentbench.config.guests import RUN_LIMITS
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.extensions import SessionExtensions
from pytest_agentbench.records.case import McpServer, SandboxSettings
from pytest_agentbench.tools.mcp.launching import find_problem, list_mounts
from pytest_agentbench.workspaces.sandboxes.base import (
    Sandbox,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
    SandboxSpec,
)
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox
from pytest_agentbench.workspaces.sessions import Workspaces


class Farm(SandboxSession):
    def __init__(self) -> None:
        self.closed = False

    async def start(self, request: SandboxRequest) -> Sandbox:
        assert not self.closed, "a session got what another one had closed"
        return LocalSandbox(request.workspace, request.spec.limits)

    async def close(self) -> None:
        self.closed = True


class Farms(SandboxProvider):
    isolation = "process"

    def __init__(self) -> None:
        self.opened: list[Farm] = []

    def open(self) -> Farm:
        self.opened.append(Farm())
        return self.opened[-1]


@pytest.fixture
def farms() -> Iterator[Farms]:
    extensions, farms = SessionExtensions(), Farms()
    extensions.add("sandbox", "farm", farms)
    extensions.add("sandbox", "barn", SandboxProvider())
    yield farms
    extensions.close()


def test_each_session_opens_its_own(farms: Farms, tmp_path: Path) -> None:
    async def session() -> str:
        workspaces = Workspaces(tmp_path)
        sandboxes = Sandboxes(workspaces)
        spec = sandboxes.spec(SandboxSettings(type="farm"))
        await sandboxes.prepare(spec)
        sandboxes.expect(spec, 2)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        said = (await sandbox.exec(["echo", "hi"], seconds=10)).output
        assert (await sandboxes.describe(spec)).model_dump(exclude_none=True) == {"kind": "farm"}
        await sandbox.stop()
        await sandboxes.close()
        workspaces.close()
        return said

    assert [asyncio.run(session()), asyncio.run(session())] == ["hi\n", "hi\n"]
    assert [farm.closed for farm in farms.opened] == [True, True]


def test_errors_and_schemas_list_its_name(farms: Farms) -> None:
    with pytest.raises(ValueError, match="'auto', 'docker', 'bubblewrap', 'local', 'barn' or 'farm'"):
        SandboxSettings.model_validate({"type": "fram"})
    kinds = SandboxSettings.model_json_schema()["properties"]["type"]["enum"]
    assert kinds == ["auto", "docker", "bubblewrap", "local", "barn", "farm"]


@pytest.mark.parametrize(
    ("most", "found", "loosens"),
    [
        ("auto", "farm", False),
        ("auto", "barn", True),  # which does not say that it isolates
        ("farm", "farm", False),
        ("docker", "farm", True),
        ("bubblewrap", "farm", True),
        ("farm", "barn", True),
        ("local", "barn", True),  # which may be another machine, or cost money
        ("local", "farm", False),
        ("barn", "local", True),
        ("barn", "auto", False),
    ],
)
def test_a_guest_names_one_that_isolates_where_its_user_allows_any(
    farms: Farms, most: str, found: str, loosens: bool
) -> None:
    assert RUN_LIMITS["sandbox.type"](found, most) is loosens


def test_one_that_cannot_be_closed_keeps_no_other_from_its_end(farms: Farms, tmp_path: Path) -> None:
    class Stuck(Farm):
        async def close(self) -> None:
            raise SandboxError("the gate is stuck")

    class StuckFarms(SandboxProvider):
        def open(self) -> Stuck:
            return Stuck()

    extensions = SessionExtensions()
    extensions.add("sandbox", "first", StuckFarms())
    extensions.add("sandbox", "zlast", StuckFarms())
    sandboxes = Sandboxes(Workspaces(tmp_path))
    for name in ("first", "farm", "zlast"):
        sandboxes.expect(sandboxes.spec(SandboxSettings(type=name)), 1)
    with pytest.raises(SandboxError, match="stuck"):
        asyncio.run(sandboxes.close())
    extensions.close()
    assert [farm.closed for farm in farms.opened] == [True]


@pytest.mark.parametrize(
    ("isolation", "offline", "online", "programs", "workspace"),
    [
        ("none", "machine", "machine", "machine", None),
        ("process", "none", "machine", "mounted", "/workspace"),
        ("container", "none", "separate", "image", "/workspace"),
        ("machine", "none", "separate", "image", "/workspace"),
    ],
)
def test_the_isolation_of_a_provider_decides_its_network_programs_and_places(
    tmp_path: Path, isolation: Any, offline: str, online: str, programs: str, workspace: str | None
) -> None:
    provider = Farms()
    provider.isolation = isolation
    assert provider.network(SandboxSpec("farm")) == offline
    assert provider.network(SandboxSpec("farm", network=True)) == online
    assert provider.programs == programs
    folder = Workspaces(tmp_path).create("case")
    assert provider.places(folder).workspace == (workspace or str(folder.path))


def test_programs_and_paths_follow_the_isolation_of_a_provider(farms: Farms, tmp_path: Path) -> None:
    missing = McpServer(command="no-such-program", cwd=str(tmp_path))
    assert find_problem(missing, {"PATH": "/usr/bin"}, "farm") is not None
    assert find_problem(missing, {"PATH": "/usr/bin"}, "barn") is not None
    assert list_mounts(missing, "barn", {}) == ()
    farms.isolation = "container"  # whose programs nobody knows before one runs
    assert find_problem(missing, {"PATH": "/usr/bin"}, "farm") is None
    assert [mount.source for mount in list_mounts(missing, "farm", {})] == [tmp_path]
    assert choose_python(SandboxSpec("farm", network=True)) == ("python3", SandboxSpec("farm"))
    assert choose_python(SandboxSpec("barn"))[0] == sys.executable
    sandbox = LocalSandbox(Workspaces(tmp_path).create("case"))
    sandbox.kind = "farm"
    assert private_path(sandbox, "x") == "/tmp/x"
    sandbox.kind = "barn"
    assert private_path(sandbox, "x") == str(sandbox.workspace.path / ".tmp" / "x")
