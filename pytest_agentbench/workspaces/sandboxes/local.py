"""Commands as plain processes of this machine: limits and a clean end, but no isolation."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits, SandboxKind
from pytest_agentbench.workspaces.sandboxes.host import HostSandbox
from pytest_agentbench.workspaces.sandboxes.launcher import kill_session
from pytest_agentbench.workspaces.sandboxes.programs import Program
from pytest_agentbench.workspaces.sandboxes.watchdog import Watchdog
from pytest_agentbench.workspaces.workspace import Workspace

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_END_SECONDS = 8.0


class LocalSandbox(HostSandbox):
    """Runs commands in the workspace with a scrubbed environment, resource limits and a sure end.

    It is no isolation: a command has this user's rights to files, network and other processes.
    """

    kind: SandboxKind = "local"

    def __init__(
        self, workspace: Workspace, limits: ResourceLimits | None = None, watchdog: Watchdog | None = None
    ) -> None:
        super().__init__(workspace, limits or ResourceLimits(), watchdog or Watchdog())

    def _start(self, argv: Sequence[str], stdin: int, environment: Mapping[str, str], stderr: int) -> Program:
        folder = self.workspace.path
        own = {"HOME": str(folder), "TMPDIR": str(self.workspace.private_tmp()), **environment}
        return start(argv, folder=folder, limits=self.limits, stdin=stdin, environment=own, stderr=stderr)


class LocalProgram(Program):
    """A launcher with its command; its stdin is what holds it: closed, it ends all that the command started."""

    @property
    def root(self) -> int:
        """As Program says."""
        return self.process.pid

    def kill(self) -> None:
        """As Program says."""
        self.process.send_signal(signal.SIGTERM)

    async def _end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.to_thread(self.process.wait, _END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        finally:
            self.process.wait()
            if self.process.returncode < 0:  # the launcher was killed, by its command for one: do its work
                await asyncio.to_thread(kill_session, self.process.pid)


def start(
    argv: Sequence[str],
    *,
    folder: Path,
    limits: ResourceLimits,
    stdin: int,
    environment: Mapping[str, str],
    stderr: int = subprocess.STDOUT,
    keep: Sequence[int] = (),
) -> LocalProgram:
    """Run `argv` in a folder, with a descriptor as its stdin and `keep` open too. Raises SandboxError.

    Of this process's environment it has the PATH only: no key can be in it but those given.
    """
    plan = json.dumps({**asdict(limits), "stdin": stdin})
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _LAUNCHER, plan, *argv],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "TERM": "dumb", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=(stdin, *keep),
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise SandboxError(f"the local sandbox could not start a command: {error}") from error
    return LocalProgram(process)
