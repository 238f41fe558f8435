"""kill -9 of a session with commands under way: they end, and the next session removes what it left, and only that.

SIGTERM leaves nothing.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from support.bench import LEAN, Bench, case_yaml, check
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker
from support.processes import running

pytestmark = pytest.mark.slow
KINDS = [
    pytest.param({"type": "bubblewrap"}, id="bubblewrap", marks=needs_bubblewrap),
    pytest.param({"type": "docker", "image": IMAGE}, id="docker", marks=needs_docker),
    pytest.param({"type": "local"}, id="local"),
]


class Project:
    """Two cases in a folder: one that has failed, its workspace kept, while the command of the other still runs."""

    def __init__(self, bench: Bench, name: str, sandbox: dict[str, Any]) -> None:
        self.bench, self.name, self.mark = bench, name, f"mark-{secrets.token_hex(8)}"
        self._case("fails", "echo kept > notes.txt")
        self._case("works", f"touch begun-{name}; sleep 300; : {self.mark}")
        profile = {"schema_version": 1, "run_profile_id": "sandboxed", "title": "Sandboxed", "sandbox": sandbox}
        bench.write(f"{name}/run_profiles/sandboxed.yaml", profile)

    def _case(self, case_id: str, command: str) -> None:
        messages = [{"role": "user", "content": "Go on."}]
        asked = {"messages": messages, "context": {"llm_probe": {"tools": ["exec_shell"]}}}
        never = check("never", kind="file_exists", path="never.txt")
        case = case_yaml(case_id, input=asked, deterministic_checks=[never])
        self.bench.write(f"{self.name}/{case_id}/test.yaml", case)
        steps = [{"tool_calls": [{"name": "exec_shell", "arguments": {"command": command}}]}, {"content": "Paris"}]
        self.bench.write(f"{self.name}/{case_id}/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})

    def command(self, *options: str) -> list[str]:
        """What runs its cases."""
        ours = ["--model=demo", "--agentbench-run-profile=sandboxed", f"--agentbench-output=out-{self.name}"]
        return [sys.executable, "-m", "pytest", *LEAN, self.name, "--agentbench-keep-workspaces", *ours, *options]


class Session:
    """A session on a project, in a process of its own."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.process = subprocess.Popen(
            project.command(), cwd=project.bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait(self, temporary: Path) -> None:
        """Until one case was decided, and the command of the other runs."""
        self.works = self._found(lambda: temporary.glob(f"agentbench-*/*/begun-{self.project.name}")).parent
        self.folder = self.works.parent
        self.kept = self.folder / self._found(lambda: self.folder.glob(".kept")).read_text().strip()
        assert running(self.project.mark)

    def _found(self, look: Callable[[], Iterable[Path]]) -> Path:
        deadline = time.monotonic() + 60
        while (path := next(iter(look()), None)) is None:
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return path

    def left(self) -> list[Path]:
        """The workspaces that are there."""
        return [path for path in self.folder.iterdir() if not path.name.startswith(".")]

    def end(self, how: int) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=60)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of all sessions."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def start(bench: Bench, temporary: Path) -> Iterator[Callable[[Project], Session]]:
    started: list[Session] = []

    def begin(project: Project) -> Session:
        started.append(Session(project))
        started[-1].wait(temporary)
        return started[-1]

    yield begin
    for session in started:
        if session.process.poll() is None:
            session.end(signal.SIGKILL)


def sessions_of_containers(below: Path) -> set[str]:
    """The folders of the sessions that have a container."""
    client = docker.from_env()
    try:
        found = client.api.containers(all=True, filters={"label": "pytest-agentbench.session"})
    finally:
        client.close()
    folders = {each["Labels"]["pytest-agentbench.session"] for each in found}
    return {folder for folder in folders if folder.startswith(str(below))}


@pytest.mark.parametrize("sandbox", KINDS)
def test_the_next_session_removes_what_a_killed_one_left_and_only_that(
    bench: Bench, temporary: Path, start: Callable[[Project], Session], sandbox: dict[str, Any]
) -> None:
    killed, living = (start(Project(bench, name, sandbox)) for name in ("killed", "living"))
    in_docker = sandbox["type"] == "docker"
    if in_docker:
        assert sessions_of_containers(temporary) == {str(killed.folder), str(living.folder)}
    killed.end(signal.SIGKILL)
    if not in_docker:  # a container ends when the next session removes it
        deadline = time.monotonic() + 20
        while running(killed.project.mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not running(killed.project.mark)
    assert killed.works.exists()

    following = Project(bench, "following", sandbox).command("-k", "fails")
    done = subprocess.run(following, cwd=bench.path, capture_output=True, text=True, check=False)
    assert "1 failed" in done.stdout, done.stdout + done.stderr

    assert killed.left() == [killed.kept]
    assert (killed.kept / "notes.txt").read_text() == "kept\n"
    assert not running(killed.project.mark)
    assert living.works.exists()
    assert running(living.project.mark)
    if in_docker:
        assert sessions_of_containers(temporary) == {str(living.folder)}

    living.end(signal.SIGTERM)
    if in_docker:
        assert sessions_of_containers(temporary) == set()
    assert not running(living.project.mark)
    assert living.left() == [living.kept]
