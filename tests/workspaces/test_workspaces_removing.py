"""Removing what an agent has left, which may be anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.other_user import NOBODY, as_nobody

from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "run").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("kept")
    return Workspace(tmp_path / "run")


def test_files_trees_and_nothing(workspace: Workspace) -> None:
    workspace.write_text("file", "x")
    workspace.write_text("/tmp/openclaw/a/b/c", "x")
    os.mkfifo(workspace.path / ".tmp/openclaw/fifo")
    for path in ("file", "/tmp/openclaw", "/tmp/openclaw", "none/at/all", "file/below"):
        workspace.remove(path)
    assert workspace.kind("file") is None
    assert os.listdir(workspace.private_tmp()) == []
    with pytest.raises(IsADirectoryError):
        workspace.remove(".")


def test_links_are_removed_and_never_followed(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_text("tree/file", "x")
    outside = tmp_path / "outside"
    (workspace.path / "tree/folder").symlink_to(outside)
    (workspace.path / "tree/hard").hardlink_to(outside / "kept")
    (workspace.path / "link").symlink_to(outside)
    with pytest.raises(PathRefusedError):
        workspace.remove("link/kept")
    with pytest.raises(PathRefusedError):
        workspace.remove("../outside/kept")
    workspace.remove("link")
    workspace.remove("tree")
    assert os.listdir(workspace.path) == []
    assert (outside / "kept").read_text() == "kept"


@pytest.mark.slow
def test_nested_as_deep_as_can_be(workspace: Workspace) -> None:
    """Deeper than a path can say, than Python recurses, and than a process may have files open."""
    here = os.open(workspace.path, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
    workspace.remove("d")
    assert os.listdir(workspace.path) == []


def test_folders_that_their_owner_has_closed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.write_text("a/b/c/d", "x")
    workspace.write_text("a/e/f", "x")
    for path, mode in (("a/b/c", 0o000), ("a/b", 0o500), ("a/e", 0o100), ("a", 0o400)):
        (workspace.path / path).chmod(mode)
    monkeypatch.chdir(workspace.path)
    with as_owner_of(workspace.path):
        Workspace(Path()).remove("a")
    assert os.listdir(workspace.path) == []


@contextmanager
def as_owner_of(tree: Path) -> Iterator[None]:
    """As a user who is not root, whom no mode stops."""
    if os.getuid() != 0:
        yield
        return
    for folder, _, files in os.walk(tree):
        for path in (folder, *(os.path.join(folder, each) for each in files)):
            os.chown(path, NOBODY, NOBODY)
    with as_nobody():
        yield
