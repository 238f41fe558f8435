"""Whatever path an agent names, nothing outside its workspace is read, written or listed."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES, PathRefusedError
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "secret.txt").write_text("the key")
    (tmp_path / "ws").mkdir()
    return Workspace(tmp_path / "ws")


def test_writes_and_reads_text_and_makes_folders(workspace: Workspace) -> None:
    workspace.write_text("notes/day 1/./a.txt", "ñandú")
    assert workspace.read_text("notes//day 1/a.txt") == "ñandú"
    assert (workspace.path / "notes" / "day 1" / "a.txt").read_bytes() == "ñandú".encode()
    workspace.write_text("notes/day 1/a.txt", "x")
    assert workspace.read_text(f"{workspace.path}/notes/day 1/a.txt") == "x"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "a/../../secret.txt", "a/..", "/etc/passwd", "//etc/passwd", "/tmp/../etc/passwd", "a\0b"]
)
@pytest.mark.parametrize("act", ["read", "write", "kind", "entries"])
def test_refuses_paths_that_lead_out(workspace: Workspace, path: str, act: str) -> None:
    with pytest.raises(PathRefusedError):
        _act(workspace, act, path)


def test_never_reaches_the_neighbour_whose_name_begins_alike(workspace: Workspace) -> None:
    neighbour = workspace.path.with_name("ws2")
    neighbour.mkdir()
    with suppress(PathRefusedError):  # refused, or private where the neighbour lies below /tmp
        workspace.write_text(f"{neighbour}/x", "x")
    assert not list(neighbour.iterdir())


@pytest.mark.parametrize("act", ["read", "write", "entries"])
def test_never_follows_links(workspace: Workspace, act: str) -> None:
    (workspace.path / "file").symlink_to("../secret.txt")
    (workspace.path / "folder").symlink_to("..")
    for path in ("file", "folder/secret.txt", "folder/ws/file"):
        with pytest.raises((PathRefusedError, NotADirectoryError)):
            _act(workspace, act, path)
    assert (workspace.path.parent / "secret.txt").read_text() == "the key"
    assert workspace.kind("file") == "link"


def test_a_folder_swapped_for_a_link_never_lets_a_write_out(workspace: Workspace) -> None:
    outside = workspace.path.parent / "outside"
    outside.mkdir()
    spot, stop = workspace.path / "spot", threading.Event()

    def swap() -> None:
        for number in count():
            if stop.is_set():
                return
            for step in (
                lambda number=number: spot.rename(workspace.path / f"old{number}"),
                lambda: spot.symlink_to(outside),
                lambda: spot.unlink(),
                lambda: spot.mkdir(),
            ):
                with suppress(OSError):
                    step()

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes: Counter[str] = Counter()
    for _ in range(5000):
        try:
            workspace.write_text("spot/x.txt", "agent")
            outcomes["written"] += 1
        except PathRefusedError:
            outcomes["refused"] += 1
        except OSError:
            outcomes["gone"] += 1
        if outcomes["written"] > 20 and outcomes["refused"] > 20:
            break
    stop.set()
    swapper.join()
    assert outcomes["written"]
    assert outcomes["refused"]
    assert not list(outside.iterdir())


def test_refuses_hard_links_without_emptying_what_they_lead_to(workspace: Workspace) -> None:
    secret = workspace.path.parent / "secret.txt"
    os.link(secret, workspace.path / "mine.txt")
    for act in ("read", "write"):
        with pytest.raises(PathRefusedError, match="hard links"):
            _act(workspace, act, "mine.txt")
    assert secret.read_text() == "the key"


def test_refuses_a_path_that_is_not_a_plain_file_without_waiting(workspace: Workspace) -> None:
    os.mkfifo(workspace.path / "fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(workspace.path / "s"))
        for act in ("read", "write"):
            for name in ("fifo", "s"):
                with pytest.raises(PathRefusedError, match="expected a regular file"):
                    _act(workspace, act, name)
    assert workspace.kind("fifo") == "other"
    with pytest.raises(IsADirectoryError):
        workspace.write_text(".", "x")


def test_bounds_what_is_read_and_written(workspace: Workspace) -> None:
    with pytest.raises(PathRefusedError, match="over the limit"):
        workspace.write_bytes("big", bytes(MAX_FILE_BYTES + 1))
    with (workspace.path / "sparse").open("wb") as file:
        file.truncate(MAX_FILE_BYTES * 100)
    with pytest.raises(PathRefusedError, match="expected at most"):
        workspace.read_bytes("sparse")
    with pytest.raises(PathRefusedError):
        workspace.write_text("a/" * 5000 + "x", "x")


def test_lists_one_folder_and_the_kind_of_each_path(workspace: Workspace) -> None:
    workspace.write_text("b/c.txt", "12345")
    (workspace.path / "a").symlink_to("/etc")
    workspace.private_tmp()
    assert [(e.name, e.kind, e.size) for e in workspace.entries()] == [("a", "link", None), ("b", "folder", None)]
    assert [(e.name, e.size) for e in workspace.entries("b")] == [("c.txt", 5)]
    assert [workspace.kind(p) for p in (".", "b", "b/c.txt", "nope", "b/c.txt/d")] == [
        "folder",
        "folder",
        "file",
        None,
        None,
    ]
    with pytest.raises(FileNotFoundError):
        workspace.entries("nope")


def test_tmp_is_private_to_the_run(workspace: Workspace) -> None:
    workspace.write_text("/tmp/report.txt", "one\ntwo\n")
    assert not Path("/tmp/report.txt").exists()
    assert (workspace.private_tmp() / "report.txt").read_text() == "one\ntwo\n"
    assert workspace.kind("/tmp/report.txt") == "file"
    assert [entry.name for entry in workspace.entries("/tmp")] == ["report.txt"]
    assert workspace.entries() == []


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["a", "..", ".", "", "/", "tmp", "/tmp", "/etc", "link", "\udcff", "\ud800"]), max_size=6)
)
def test_no_path_ever_reaches_outside(parts: list[str]) -> None:
    workspaces = Workspaces()
    outside = workspaces.create("outside")
    workspace = workspaces.create("inside")
    (workspace.path / "link").symlink_to(outside.path)
    try:
        workspace.write_text("/".join(parts), "agent")
    except (PathRefusedError, OSError):
        assert workspace.path.exists()
    assert not list(outside.path.iterdir())
    workspaces.close()


def test_workspaces_are_fresh_private_and_swept(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    assert not list(tmp_path.iterdir())
    first, second = workspaces.create("Case / one"), workspaces.create("../..")
    assert first.path != second.path
    parent = first.path.parent
    assert parent == second.path.parent
    assert parent.parent == tmp_path
    assert {path.stat().st_mode & 0o777 for path in (parent, first.path, second.path)} == {0o700}
    first.write_text("x/y", "z")
    workspaces.remove(first)
    workspaces.remove(first)
    assert not first.path.exists()
    workspaces.close()
    workspaces.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_sweeps_trees_that_were_locked_or_nested_without_end(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    workspace = workspaces.create("deep")
    here = os.open(workspace.path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    locked = workspaces.create("locked")
    locked.write_text("a/b", "c")
    (locked.path / "a").chmod(0)
    workspaces.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("instead", ["link", "file", "nothing"])
def test_a_folder_that_its_agent_replaced_is_removed_and_nothing_behind_it(tmp_path, whole, instead):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    outside.chmod(0o500)
    workspaces = Workspaces(tmp_path / "base")
    (tmp_path / "base").mkdir()
    workspace = workspaces.create("c")
    replaced = workspace.path.parent if whole else workspace.path
    shutil.rmtree(replaced)
    if instead == "link":
        replaced.symlink_to(outside)
    elif instead == "file":
        replaced.write_text("x")
    workspaces.remove(workspace)
    workspaces.close()
    assert not list((tmp_path / "base").iterdir())
    assert (outside / "kept").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o500


def _act(workspace: Workspace, act: str, path: str) -> None:
    if act == "read":
        workspace.read_bytes(path)
    elif act == "write":
        workspace.write_text(path, "agent")
    elif act == "kind":
        workspace.kind(path)
    else:
        workspace.entries(path)
