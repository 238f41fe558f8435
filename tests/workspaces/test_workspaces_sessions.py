"""What a killed session left is removed by the next one, and nothing of a session that lives, or of anybody else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem
from pytest_agentbench.workspaces.sessions import Workspaces, _take_session, host_mark, session_is_dead
from pytest_agentbench.workspaces.workspace import Workspace

SESSION = """
import sys
from pathlib import Path
from pytest_agentbench.workspaces.sessions import Workspaces

workspaces = Workspaces(Path(sys.argv[1]))
for name in sys.argv[2:]:
    workspace = workspaces.create(name)
    workspace.write_text("notes.txt", name)
    if name == "keep":
        workspaces.keep(workspace)
# Its own clean-up is over by then: later it could hold the lock of a session that the test has killed meanwhile
workspaces._sweep.join()
print(workspace.path.parent, flush=True)
sys.stdin.read()
"""
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to other users")


class Session:
    """Another process that has workspaces below `base`, until it is killed."""

    def __init__(self, base: Path, *names: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SESSION, str(base), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = Path(self.process.stdout.readline().strip())

    def kill(self) -> Path:
        self.process.kill()
        self.process.communicate()
        return self.folder


@pytest.fixture
def session(tmp_path):
    started: list[Session] = []

    def start(*names: str) -> Session:
        started.append(Session(tmp_path, *names))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def refuse(path: str) -> None:
    raise OSError(16, "Device or resource busy", path)


def swept(base: Path) -> list[str]:
    """What is left below `base` when another session came and went."""
    workspaces = Workspaces(base)
    workspaces.create("next")
    workspaces.close()
    return sorted(path.name for path in base.iterdir())


@pytest.mark.slow
def test_a_session_is_dead_when_its_process_is_and_not_before(tmp_path, session):
    other = session("a")
    assert not session_is_dead(str(other.folder))
    other.kill()
    assert session_is_dead(str(other.folder))
    shutil.rmtree(other.folder)
    assert session_is_dead(str(other.folder))


def test_a_sessions_own_folder_is_alive_until_it_closes(tmp_path):
    workspaces = Workspaces(tmp_path)
    folder = workspaces.session_folder()
    assert folder == workspaces.session_folder() == str(workspaces.create("a").path.parent)
    assert not session_is_dead(folder)
    workspaces.close()
    assert session_is_dead(folder)


@pytest.mark.slow
def test_the_next_session_removes_what_killed_ones_left_and_only_that(tmp_path, session):
    dead, alive = session("a", "b"), session("c")
    dead.kill()
    (tmp_path / "agentbench-mine").mkdir()
    (tmp_path / "agentbench-mine" / "notes").write_text("no session's")
    (tmp_path / "other").mkdir()
    assert swept(tmp_path) == sorted(["agentbench-mine", alive.folder.name, "other"])
    assert (alive.folder / "1-c" / "notes.txt").read_text() == "c"
    alive.kill()
    assert swept(tmp_path) == ["agentbench-mine", "other"]


@pytest.mark.slow
@pytest.mark.skipif(bubblewrap_problem() is not None, reason="needs bubblewrap")
def test_a_sandbox_that_a_killed_session_was_starting_is_ended_by_the_next(tmp_path, session):
    dead, alive = session("a"), session("b")
    dead.kill()
    bwrap = [shutil.which("bwrap"), "--ro-bind", "/", "/"]
    started = [
        subprocess.Popen([*bwrap, "--bind", folder, "/tmp", "cat"], stdin=subprocess.PIPE)
        for folder in (dead.folder / "1-a", alive.folder / "1-b")
    ]
    for each in started:
        while b"bwrap" not in Path(f"/proc/{each.pid}/cmdline").read_bytes():
            time.sleep(0.001)  # Linux returns to the parent of a program before its arguments can be read
    try:
        left = swept(tmp_path)
        assert started[0].wait(20) == -signal.SIGKILL
        assert left == [alive.folder.name]
        assert started[1].poll() is None
    finally:
        for each in started:
            each.communicate()


@pytest.mark.parametrize("while_closing", [False, True], ids=["at first", "to the end"])
def test_a_dead_session_that_cannot_be_removed_is_tried_again(tmp_path, session, caplog, monkeypatch, while_closing):
    """A container of a killed session may write in its folder until the next session has removed the container."""
    dead = session("a").kill()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        patched.setattr(subprocess, "run", lambda *_, **__: None)
        workspaces = Workspaces(tmp_path)
        own = workspaces.create("next").path
        workspaces._sweep.join()
        assert sorted(path.name for path in dead.iterdir()) == [".dead", ".lock", "1-a"]
        assert caplog.records == []
        if while_closing:
            workspaces.close()
    workspaces.close()
    warned = [dead, own] if while_closing else []
    assert [each.getMessage() for each in caplog.records] == [
        f"could not remove the folder {path}: remove it by hand" for path in warned
    ]
    if while_closing:
        assert swept(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_link_to_a_dead_session_leads_nowhere(tmp_path, session):
    (tmp_path / "elsewhere").mkdir()
    dead = session("a")
    moved = tmp_path / "elsewhere" / dead.folder.name
    dead.kill().rename(moved)
    dead.folder.symlink_to(moved)
    swept(tmp_path)
    assert (moved / "1-a" / "notes.txt").exists()


@pytest.mark.slow
@needs_root
def test_another_users_dead_session_is_left_alone(tmp_path, session):
    dead = session("a").kill()
    for path in (dead / ".lock", dead):
        os.chown(path, 12345, 12345)
    assert not session_is_dead(str(dead))
    assert swept(tmp_path) == [dead.name]


def test_kept_workspaces_survive_the_session_and_later_ones(tmp_path):
    workspaces = Workspaces(tmp_path)
    kept, other = workspaces.create("kept"), workspaces.create("other")
    for workspace in (kept, other):
        workspace.write_text("a", "x")
    workspaces.keep(kept)
    workspaces.close()
    assert kept.read_text("a") == "x"
    assert not other.path.exists()
    assert swept(tmp_path) == [kept.path.parent.name]
    assert kept.read_text("a") == "x"
    shutil.rmtree(kept.path)  # the user has seen enough
    assert swept(tmp_path) == []


@pytest.mark.slow
def test_of_a_killed_session_the_kept_workspaces_stay(tmp_path, session):
    folder = session("keep", "other").kill()
    assert swept(tmp_path) == [folder.name]
    assert sorted(path.name for path in folder.iterdir()) == [".dead", ".kept", ".lock", "1-keep"]


@pytest.mark.slow
def test_a_dead_session_is_dead_while_its_lock_is_held_to_remove_its_folder(session):
    """Its containers are looked for meanwhile, and must not pass for those of one that lives."""
    dead = str(session("a").kill())
    held = _take_session(dead)
    assert session_is_dead(dead)
    os.close(held)


@pytest.mark.slow
def test_the_mark_tells_temporary_folders_apart(tmp_path, monkeypatch):
    mark = host_mark()
    assert mark == host_mark()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert host_mark() != mark


def test_no_room_for_workspaces_is_said(tmp_path):
    with pytest.raises(SandboxError, match="set TMPDIR to another"):
        Workspaces(tmp_path / "missing").create("case")


@needs_root
def test_each_workspace_has_an_owner_of_its_own_who_gets_all_that_is_written(tmp_path):
    workspaces = Workspaces(tmp_path)
    one, other = workspaces.create("a"), workspaces.create("b")
    assert 0 not in (one.owner, other.owner)
    assert one.owner != other.owner
    one.write_text("deep/er/a.txt", "x")
    one.private_tmp()
    (one.path / "mine").write_text("x")
    one.write_text("mine", "y")
    for path in (one.path, *one.path.rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == (one.owner, one.owner)
    workspaces.close()


@pytest.mark.parametrize("path", ["/workspace/a/b.txt", "/workspace//a/./b.txt", "a/b.txt"])
def test_the_name_that_sandboxes_have_for_the_workspace_means_it(tmp_path, path):
    workspace = Workspace(tmp_path)
    workspace.write_text(path, "x")
    assert (tmp_path / "a" / "b.txt").read_text() == "x"
    assert [entry.name for entry in workspace.entries("/workspace")] == ["a"]
    with pytest.raises(PathRefusedError):
        workspace.kind("/workspace/../etc")
