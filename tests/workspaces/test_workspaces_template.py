"""A workspace that starts as a copy of a folder has all of it, and nothing that the folder only points at."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.workspaces.changes import digest_snapshot, take_snapshot
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.template import copy_tree, fill_workspace, template_digest
from pytest_agentbench.workspaces.workspace import TreeError, Workspace


@pytest.fixture
def template(tmp_path: Path) -> Path:
    (tmp_path / "template").mkdir()
    return tmp_path / "template"


@pytest.fixture
def workspace(tmp_path):
    workspaces = Workspaces(tmp_path)
    yield workspaces.create("case")
    workspaces.close()


def test_files_folders_modes_times_and_links_are_copied(template, workspace, tmp_path):
    (tmp_path / "secret").write_text("the key")
    (template / "src").mkdir()
    (template / "src" / "run.sh").write_text("#!/bin/sh\n")
    (template / "src" / "run.sh").chmod(0o4755)
    os.utime(template / "src" / "run.sh", ns=(1, 1_000_000_001))
    (template / "empty").mkdir()
    (template / "link").symlink_to("../secret")
    (template / "folder").symlink_to("src")
    (template / "read only").mkdir()
    (template / "read only" / "a").write_bytes(b"\0" * 3_000_000)
    (template / "read only").chmod(0o555)
    os.link(template / "src" / "run.sh", template / "twin")
    snapshot = fill_workspace(workspace, template)
    there = workspace.path / "src" / "run.sh"
    assert there.read_text() == "#!/bin/sh\n"
    assert (stat.S_IMODE(there.stat().st_mode), there.stat().st_mtime_ns) == (0o755, 1_000_000_001)
    assert stat.S_IMODE((workspace.path / "read only").stat().st_mode) == 0o555
    assert os.readlink(workspace.path / "link") == "../secret"
    assert os.readlink(workspace.path / "folder") == "src"
    assert (workspace.path / "twin").stat().st_nlink == 1
    assert digest_snapshot(snapshot) == digest_snapshot(take_snapshot(str(workspace.path))) == template_digest(template)
    owners = {(each.lstat().st_uid, each.lstat().st_gid) for each in workspace.path.rglob("*")}
    own = (workspace.owner, workspace.owner) if workspace.owner is not None else (os.getuid(), os.getgid())
    assert owners == {own}


def test_a_template_with_a_fifo_is_an_error_before_any_run(template, workspace):
    os.mkfifo(template / "fifo")
    with pytest.raises(ConfigError, match=r"template/fifo: found an entry that is not a readable file"):
        template_digest(template)
    with pytest.raises(ConfigError, match="template/fifo: found an entry that is not a readable file"):
        fill_workspace(workspace, template)


def test_the_error_of_a_large_template_names_the_limit(template, workspace):
    with (template / "hole").open("wb") as file:
        file.truncate(513 * 2**20)
    for made in (lambda: template_digest(template), lambda: fill_workspace(workspace, template)):
        with pytest.raises(
            ConfigError, match="too large: its files hold more than 512 MB; expected under 50,000 files"
        ):
            made()


def test_a_template_has_no_private_folder(template):
    (template / ".tmp").mkdir()
    with pytest.raises(ConfigError, match=r"\.tmp: this name is reserved for the run's temporary folder; rename it"):
        template_digest(template)


def test_a_copied_tree_keeps_links_and_leaves_out_pipes(template, workspace, tmp_path):
    (tmp_path / "secret").write_text("the key")
    (template / "a").symlink_to(tmp_path)
    os.mkfifo(template / "b")
    assert copy_tree(template, workspace) == ["b"]
    assert (workspace.path / "a").is_symlink()


def test_a_link_in_the_target_is_not_written_through(template, tmp_path):
    (template / "sub").mkdir()
    (template / "sub" / "a").write_text("new")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("old")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(PathRefusedError, match="links are not followed"):
        copy_tree(template, Workspace(tmp_path / "target"))
    assert (tmp_path / "outside" / "a").read_text() == "old"


def test_folders_nested_without_end_are_not_copied(template, workspace):
    template.joinpath(*["d"] * 101).mkdir(parents=True)
    with pytest.raises(TreeError, match="nested deeper than 100"):
        copy_tree(template, workspace)
