"""The kit of sandbox providers: it passes what we have, and it notices what breaks the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker
from support.remote_sandbox import Link, Remote

from pytest_agentbench import (
    ResourceLimits,
    Sandbox,
    SandboxProvider,
    SandboxRequest,
    SandboxSession,
    SandboxSpec,
    check_sandbox_provider,
    check_sandbox_session,
)
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.workspaces.sandboxes.base import Connection, provider_of
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

pytestmark = pytest.mark.slow


class OfOurs(SandboxProvider):
    """The sandboxes of this package, which a session opens by their kinds."""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        provider = provider_of(spec.kind)
        self.isolation, self.switches_users = provider.isolation, provider.switches_users

    def open(self) -> SandboxSession:
        return Sandboxes(Workspaces())._open(self.spec)


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec("local"),
        pytest.param(SandboxSpec("bubblewrap"), marks=needs_bubblewrap),
        pytest.param(SandboxSpec("docker", image=IMAGE), marks=needs_docker),
    ],
    ids=lambda spec: spec.kind,
)
def test_our_sandboxes_pass(spec: SandboxSpec) -> None:
    check_sandbox_provider(OfOurs(spec), spec)


def test_the_samples_sandbox_passes() -> None:
    check_sandbox_provider(find_extension("sandbox", "plain"), SandboxSpec("plain"))


@needs_docker
def test_the_samples_containers_pass() -> None:
    check_sandbox_provider(find_extension("sandbox", "crate"), SandboxSpec("crate", image=IMAGE))


@needs_docker
def test_a_command_in_the_samples_container_may_remove_all_files() -> None:
    async def remove_all() -> list[str]:
        workspaces, session = Workspaces(), find_extension("sandbox", "crate").open()
        try:
            request = SandboxRequest(SandboxSpec("crate", image=IMAGE), workspaces.create("one"))
            sandbox = await session.start(request)
            commands = (
                "echo one; rm -rf /workspace/* /workspace/.tmp /tmp/* /run/agentbench-outputs/*; true",
                "echo two",
            )
            return [(await sandbox.exec(["sh", "-c", command], seconds=60)).output for command in commands]
        finally:
            await session.close()
            workspaces.close()

    assert [output.splitlines()[0] for output in asyncio.run(remove_all())] == ["one", "two"]


def test_a_provider_that_has_none_here_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = find_extension("sandbox", "plain")
    monkeypatch.setattr(plain, "problem", lambda: "the farm is closed; open it", raising=False)
    with pytest.raises(pytest.skip.Exception, match="the farm is closed"):
        check_sandbox_provider(plain, SandboxSpec("plain"))


def leave_children(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("agentbench_sample.plain.kill_marked", lambda mark: None)


def keep_environment(patch: pytest.MonkeyPatch) -> None:
    import os

    from agentbench_sample.plain import PlainSandbox

    start = PlainSandbox._start
    patch.setattr(
        PlainSandbox,
        "_start",
        lambda self, argv, given, *rest, **more: start(self, argv, dict(os.environ), *rest, **more),
    )


def forget_stdin(patch: pytest.MonkeyPatch) -> None:
    changed_exec(patch, lambda given: given.update(stdin=b""))


def keep_all(patch: pytest.MonkeyPatch) -> None:
    changed_exec(patch, lambda given: given.update(output_limit=10**9))


def ignore_cwd(patch: pytest.MonkeyPatch) -> None:
    changed_exec(patch, lambda given: given.update(cwd=None))


def ignore_user(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(find_extension("sandbox", "plain"), "switches_users", True, raising=False)
    changed_exec(patch, lambda given: given.update(user=None))


def end_services(patch: pytest.MonkeyPatch) -> None:
    changed_exec(patch, lambda given: given.update(leave_running=False))


def changed_exec(
    patch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None], with_services: list[Any] | None = None
) -> None:
    """Change the options of each `exec`, and collect the sandboxes in which a command leaves processes running."""
    from agentbench_sample.plain import PlainSandbox

    real = PlainSandbox.exec

    async def changed(self: PlainSandbox, argv: Any, **given: Any) -> Any:
        change(given)
        if with_services is not None and given["leave_running"]:
            with_services.append(self)
        return await real(self, argv, **given)

    patch.setattr(PlainSandbox, "exec", changed)


def write_anywhere(patch: pytest.MonkeyPatch) -> None:
    async def put(self: Any, path: str, content: bytes) -> None:
        if not path.startswith(("..", "/etc")):
            self.workspace.write_bytes(path, content)

    patch.setattr("agentbench_sample.plain.PlainSandbox.put", put, raising=False)


def say_reset(patch: pytest.MonkeyPatch) -> None:
    async def write(self: Any, data: bytes) -> None:
        self._input.write(data)
        await self._input.drain()

    patch.setattr("agentbench_sample.plain_process.PlainProcess.write", write)


def drop_uploads(patch: pytest.MonkeyPatch) -> None:
    async def upload(self: Any, folder: Path, target: str) -> None:
        self.workspace.split(target)

    patch.setattr("agentbench_sample.plain.PlainSandbox.upload", upload, raising=False)


def replace_links(folder: Path) -> None:
    for link in filter(Path.is_symlink, folder.iterdir()):
        content = link.read_bytes()
        link.unlink()
        link.write_bytes(content)


def follow_links(patch: pytest.MonkeyPatch) -> None:
    from agentbench_sample.plain import PlainSandbox

    real = PlainSandbox.download

    async def download(self: PlainSandbox, path: str, folder: Path) -> None:
        await real(self, path, folder)
        await asyncio.to_thread(replace_links, folder)

    patch.setattr(PlainSandbox, "download", download)


def serve_for_ever(patch: pytest.MonkeyPatch) -> None:
    from agentbench_sample.plain import PlainSandbox

    real = PlainSandbox.serve
    open_for_ever = []

    @asynccontextmanager
    async def serve(self: PlainSandbox, path: str, answer: Any) -> AsyncIterator[None]:
        open_for_ever.append(real(self, path, answer))
        await open_for_ever[-1].__aenter__()
        yield

    patch.setattr(PlainSandbox, "serve", serve)


def leave_connections_open(patch: pytest.MonkeyPatch) -> None:
    from agentbench_sample.plain import PlainSandbox

    real = PlainSandbox.serve

    def serve(self: PlainSandbox, path: str, answer: Any) -> AbstractAsyncContextManager[None]:
        async def answer_and_wait(connection: Connection) -> None:
            await answer(connection)
            await asyncio.Event().wait()

        return real(self, path, answer_and_wait)

    patch.setattr(PlainSandbox, "serve", serve)
    patch.setattr("pytest_agentbench.testing.sandbox_files._PATIENCE_SECONDS", 0.5)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (drop_uploads, r"upload: found .*not found.* after the upload of a folder"),
        (follow_links, "download: it followed a link"),
        (serve_for_ever, "serve: an answer is not cancelled at the end of its block"),
        (leave_connections_open, "serve: a connection is open after its answer has returned"),
        (leave_children, "a process that a command had started was running after its end"),
        (keep_environment, "the variable of `environment`"),
        (forget_stdin, "stdin came as ''"),
        (keep_all, "`truncated` is false"),
        (ignore_cwd, "cwd: a command with cwd='inner' did not run in that folder"),
        (ignore_user, "user: a command with user='12345' has the ids"),
        (end_services, "leave_running: a process that a command had left did not continue"),
        (write_anywhere, "out of the workspace: returned None"),
        (say_reset, "write.. to a program that has ended: raised SandboxError .*ConnectionResetError"),
    ],
)
def test_a_broken_sandbox_is_noticed(break_it: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = find_extension("sandbox", "plain")
    with monkeypatch.context() as patch:
        break_it(patch)
        with pytest.raises(AssertionError, match=said):
            check_sandbox_provider(plain, SandboxSpec("plain"))


def test_a_sandbox_that_leaves_services_after_its_stop_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentbench_sample.plain import PlainSandbox

    sandboxes: list[PlainSandbox] = []
    changed_exec(monkeypatch, lambda given: None, sandboxes)
    stop = PlainSandbox.stop

    async def stop_without_services(self: PlainSandbox) -> None:
        if self not in sandboxes:
            await stop(self)

    monkeypatch.setattr(PlainSandbox, "stop", stop_without_services)
    try:
        with pytest.raises(AssertionError, match="stop: a process that a command had left with `leave_running`"):
            check_sandbox_provider(find_extension("sandbox", "plain"), SandboxSpec("plain"))
    finally:
        for sandbox in sandboxes:
            asyncio.run(stop(sandbox))


@needs_bubblewrap
def test_a_provider_on_another_machine_passes() -> None:
    check_sandbox_provider(Remote(), SandboxSpec("remote"))


@needs_bubblewrap
def test_sandboxes_of_one_workspace_that_share_no_files_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real, numbers = Link.call, count()

    async def call(self: Link, do: str, body: bytes = b"", **fields: Any) -> Any:
        if do == "start":
            fields["workspace"] += str(next(numbers))
        return await real(self, do, body, **fields)

    monkeypatch.setattr(Link, "call", call)
    with pytest.raises(AssertionError, match=r"a server in a run's workspace finds .*No such file"):
        check_sandbox_provider(Remote(), SandboxSpec("remote"))


def test_a_provider_elsewhere_without_places_of_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remote, "isolation", "none")
    with pytest.raises(AssertionError, match="isolation: found 'none', expected container or machine if"):
        check_sandbox_provider(Remote(), SandboxSpec("remote"))


class Changed(SandboxSession):
    """Sandboxes of bubblewrap for requests that are changed first."""

    def __init__(self, change: Callable[[SandboxRequest], SandboxRequest]) -> None:
        self._change, self._workspaces = change, Workspaces()
        self._sandboxes = Sandboxes(self._workspaces)

    async def start(self, request: SandboxRequest) -> Sandbox:
        changed = self._change(request)
        return await self._sandboxes.start(changed.spec, changed.workspace)


def without(**fields: Any) -> Callable[[SandboxRequest], SandboxRequest]:
    return lambda request: replace(request, spec=replace(request.spec, **fields))


def in_another_workspace(request: SandboxRequest) -> SandboxRequest:
    return replace(request, workspace=Workspaces().create("other"))


@needs_bubblewrap
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without(mounts=()), "mounts: a command finds"),
        (without(network=True), "network: a command reaches a port"),
        (without(limits=ResourceLimits()), "limits: a command wrote a file"),
        (without(kind="local"), "kind: found 'local'"),
        (in_another_workspace, "workspace: found"),
    ],
    ids=["mounts", "network", "limits", "kind", "workspace"],
)
def test_a_provider_that_ignores_a_part_of_the_request_is_noticed(change: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_sandbox_session(Changed(change), SandboxSpec("bubblewrap"), isolation="process")


@pytest.mark.parametrize("method", ["exec", "spawn", "put", "get", "stop"])
def test_a_provider_that_loses_its_connection_is_noticed_by_the_method(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(self: Any, *args: Any, **options: Any) -> None:
        raise ConnectionResetError("the machine hung up")

    monkeypatch.setattr(f"agentbench_sample.plain.PlainSandbox.{method}", lose, raising=False)
    with pytest.raises(AssertionError, match=f"sandbox plain: {method}: ConnectionResetError: the machine hung up"):
        check_sandbox_provider(find_extension("sandbox", "plain"), SandboxSpec("plain"))


@pytest.mark.parametrize("method", ["prepare", "start", "describe", "close"])
def test_a_session_that_loses_its_connection_is_noticed_by_the_method(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(self: Any, *args: Any) -> None:
        raise OSError("the machine hung up")

    monkeypatch.setattr(f"agentbench_sample.plain.PlainSession.{method}", lose, raising=False)
    with pytest.raises(AssertionError, match=f"sandbox plain: {method}: OSError: the machine hung up"):
        check_sandbox_session(find_extension("sandbox", "plain").open(), SandboxSpec("plain"))


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("settings", dict, "settings: found"),
        ("takes", frozenset({"kernel"}), "takes: found .'kernel'."),
        ("isolates_like", "docker", "one with the attribute 'isolates_like' of an earlier version; write `isolation`"),
    ],
)
def test_wrong_declarations_of_a_provider_are_noticed(
    attribute: str, value: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = find_extension("sandbox", "plain")
    monkeypatch.setattr(plain, attribute, value, raising=False)
    with pytest.raises(AssertionError, match=said):
        check_sandbox_provider(plain, SandboxSpec("plain"))
