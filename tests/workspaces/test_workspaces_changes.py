"""What a run did to its workspace: every change is told, links are facts, and no content keeps the comparison busy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.other_user import NOBODY, as_nobody, needs_root

from pytest_agentbench.records.run import FileChange
from pytest_agentbench.workspaces.changes import (
    EMPTY,
    MAX_CHANGES,
    MAX_DIFF,
    MAX_DIFFS,
    MAX_TEXT,
    compare_snapshots,
    digest_snapshot,
    take_snapshot,
)
from pytest_agentbench.workspaces.workspace import TreeError, Workspace


class Folder:
    """A folder with what it held before: `changes()` is what was done to it since."""

    def __init__(self, path: Path) -> None:
        self.path, self.old = path / "now", path / "old"
        self.path.mkdir()
        self.old.mkdir()

    def begin(self) -> None:
        shutil.rmtree(self.old)
        shutil.copytree(self.path, self.old, symlinks=True)

    def compared(self, *wanted: str) -> tuple[list[FileChange], int]:
        before, after = take_snapshot(str(self.old)), take_snapshot(str(self.path))
        return compare_snapshots(before, after, self.old, Workspace(self.path), wanted)

    def changes(self) -> dict[str, FileChange]:
        return {change.path: change for change in self.compared()[0]}

    def told(self) -> dict[str, str]:
        return {path: change.change for path, change in self.changes().items()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_every_kind_of_change_is_listed_once(folder):
    for name in ("same", "edited", "moved", "gone", "locked"):
        (folder.path / name).write_text(f"{name}\n")
    (folder.path / "was empty").touch()
    folder.begin()
    (folder.path / "edited").write_text("other\n")
    (folder.path / "deep" / "er").mkdir(parents=True)
    (folder.path / "moved").rename(folder.path / "deep" / "er" / "here")
    (folder.path / "gone").unlink()
    (folder.path / "locked").chmod(0o400)
    (folder.path / "new").write_text("n")
    (folder.path / "hollow").mkdir()
    (folder.path / "was empty").rename(folder.path / "still empty")
    assert folder.told() == {
        "deep/er/here": "renamed",
        "edited": "modified",
        "gone": "removed",
        "hollow": "added",
        "locked": "mode",
        "new": "added",
        "still empty": "added",
        "was empty": "removed",
    }
    found = folder.changes()
    assert found["deep/er/here"].renamed_from == "moved"
    assert (found["locked"].before.mode, found["locked"].after.mode) == (0o644, 0o400)
    assert found["gone"].after is None
    assert found["gone"].diff == "@@ -1 +0,0 @@\n-gone\n"


def test_links_fifos_and_devices_are_facts_and_never_opened(folder, tmp_path):
    (tmp_path / "secret").write_text("the key")
    os.mkfifo(folder.path / "fifo")
    (folder.path / "link").symlink_to("../secret")
    (folder.path / "folder").symlink_to("..")
    os.link(tmp_path / "secret", folder.path / "hard")
    found = folder.changes()
    assert {path: change.after.kind for path, change in found.items()} == {
        "fifo": "other",
        "link": "link",
        "folder": "link",
        "hard": "file",
    }
    assert found["link"].after.target == "../secret"
    assert found["hard"].note == "not compared: 'hard': a file with several hard links is not opened, copy it instead"
    assert "the key" not in repr(found)


def test_a_file_that_becomes_a_link_is_modified(folder):
    (folder.path / "a").write_text("text\n")
    folder.begin()
    (folder.path / "a").unlink()
    (folder.path / "a").symlink_to("/etc/passwd")
    change = folder.changes()["a"]
    assert (change.change, change.before.kind, change.after.kind) == ("modified", "file", "link")
    assert change.diff == "@@ -1 +0,0 @@\n-text\n"


def test_text_shows_as_a_unified_diff_with_the_lines_numbers(folder):
    lines = [f"line {n}\n" for n in range(1, 5001)]
    (folder.path / "a").write_text("".join(lines))
    folder.begin()
    lines[2499] = "changed\n"
    (folder.path / "a").write_text("".join(lines)[:-1])
    assert folder.changes()["a"].diff.splitlines() == [
        "@@ -2497,7 +2497,7 @@",
        " line 2497",
        " line 2498",
        " line 2499",
        "-line 2500",
        "+changed",
        " line 2501",
        " line 2502",
        " line 2503",
        "@@ -4997,4 +4997,4 @@",
        " line 4997",
        " line 4998",
        " line 4999",
        "-line 5000",
        "+line 5000",
        "\\ No newline at end of file",
    ]


LINES = st.sampled_from(["a", "b", "", "@@ -1 +1 @@", "--- a", "+++ b", "\\ No newline", "\r", "\f\u2028\x85", "é"])
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, st.lists(LINES, max_size=30), st.sampled_from(["", "\n"]))


@pytest.mark.slow
@given(TEXTS, TEXTS)
@example("a\na\na\na", "a\na\na\na\na")
@example("\na\nb\nb\nb\nb", "\nb\nb\nb\nb\nb")
@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
def test_patch_makes_the_new_text_of_the_old_one(tmp_path_factory, old, new):
    folder = Folder(tmp_path_factory.mktemp("diff"))
    (folder.path / "f").write_bytes(old.encode())
    folder.begin()
    (folder.path / "f").write_bytes(new.encode())
    change = folder.changes().get("f")
    if change is None:
        assert old == new
        return
    command = ["patch", "--silent", "--binary", "--fuzz=0", "--no-backup-if-mismatch", str(folder.old / "f")]
    done = subprocess.run(command, input=f"--- f\n+++ f\n{change.diff}".encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert (folder.old / "f").read_bytes() == new.encode()


def test_binary_and_large_files_are_described_by_their_hash(folder):
    (folder.path / "nul").write_bytes(b"a\0b")
    (folder.path / "latin").write_bytes(b"caf\xe9")
    (folder.path / "long").write_text("x" * (MAX_TEXT + 1))
    found = folder.changes()
    assert {path: change.note for path, change in found.items()} == {
        "latin": "binary",
        "long": "over 256 kB",
        "nul": "binary",
    }
    assert all(change.diff is None and len(change.after.sha256) == 64 for change in found.values())


def test_names_of_any_bytes_can_be_stored(folder):
    name = os.fsdecode(b"a\xff\nb")
    (folder.path / name).write_text("x")
    [change], _ = folder.compared()
    assert change.path == "a\\xff\nb"
    assert FileChange.model_validate_json(change.model_dump_json()) == change


def test_long_diffs_are_cut_with_a_note(folder):
    for number in range(20):
        (folder.path / f"f{number:02}").write_text("0123456789\n" * 10_000)
    found = folder.changes()
    first, last = found["f00"], found["f19"]
    assert len(first.diff) <= MAX_DIFF
    assert first.note == f"the diff is cut: {10_001 - len(first.diff.splitlines()):,} more lines"
    assert last.diff is None
    assert last.note == "not shown: too much text was changed"
    assert sum(len(change.diff or "") for change in found.values()) <= MAX_DIFFS


def test_texts_that_would_keep_the_comparison_busy_are_not_compared(folder):
    (folder.path / "f").write_text("x\np\n" * 20_000)
    folder.begin()
    (folder.path / "f").write_text("x\nq\n" * 99)
    assert folder.changes()["f"].note == "not compared: 39,999 lines became 197 others"


@pytest.mark.slow
def test_changes_without_end_are_counted(folder):
    for number in range(MAX_CHANGES + 7):
        (folder.path / str(number)).touch()
    changes, more = folder.compared()
    assert (len(changes), more) == (MAX_CHANGES, 7)
    (folder.path / "report.md").write_text("# Report\n")
    wanted, more = folder.compared("report.md", "never made")
    assert (len(wanted), more) == (MAX_CHANGES, 8)
    assert wanted[-1].path == "report.md"
    assert wanted[:-1] == changes[:-1]


def test_the_private_folder_is_no_part_of_it(folder):
    Workspace(folder.path).write_text("/tmp/x", "x")
    (folder.path / "sub" / ".tmp").mkdir(parents=True)
    assert folder.told() == {"sub/.tmp": "added"}


def test_nothing_in_the_private_folder_is_too_much(folder):
    folder.path.joinpath(".tmp", *["d"] * 101).mkdir(parents=True)
    (folder.path / "a").touch()
    assert folder.told() == {"a": "added"}


def test_a_file_that_moved_and_was_edited_is_gone_and_made(folder):
    (folder.path / "a").write_text("one\ntwo\n")
    folder.begin()
    (folder.path / "a").rename(folder.path / "b")
    (folder.path / "b").write_text("one\nthree\n")
    found = folder.changes()
    assert {path: (change.change, change.diff) for path, change in found.items()} == {
        "a": ("removed", "@@ -1,2 +0,0 @@\n-one\n-two\n"),
        "b": ("added", "@@ -0,0 +1,2 @@\n+one\n+three\n"),
    }


def test_a_template_of_hard_links_is_compared(folder):
    (folder.path / "a").write_text("one\n")
    folder.begin()
    os.link(folder.old / "a", folder.old.parent / "twin")
    (folder.path / "a").write_text("two\n")
    assert folder.changes()["a"].diff == "@@ -1 +1 @@\n-one\n+two\n"


@needs_root
def test_folders_and_files_that_the_agent_closed_are_not_gone(folder, monkeypatch):
    for name in ("closed", "hollow"):
        (folder.path / name).mkdir()
    (folder.path / "closed" / "inside").write_text("x")
    (folder.path / "file").write_text("x")
    folder.begin()
    for path in folder.path.iterdir():
        path.chmod(0)
    for path in (folder.path, *folder.path.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    monkeypatch.chdir(folder.path)  # the way here is root's
    with as_nobody():
        after = take_snapshot(".")
    assert set(after.unseen) == {"closed", "hollow"}
    changes, _ = compare_snapshots(take_snapshot(str(folder.old)), after, folder.old, Workspace(folder.path))
    assert [(change.path, change.change, change.after.mode) for change in changes] == [
        ("closed", "mode", 0),
        ("file", "modified", 0),
        ("hollow", "mode", 0),
    ]
    assert changes[1].note == "not compared: it was not read"


def test_folders_nested_without_end_are_refused(folder):
    deep = folder.path.joinpath(*["d"] * 101)
    deep.mkdir(parents=True)
    with pytest.raises(TreeError, match="nested deeper than 100"):
        take_snapshot(str(folder.path))


def test_equal_folders_have_equal_digests(tmp_path):
    assert digest_snapshot(EMPTY) == digest_snapshot(take_snapshot(str(tmp_path)))
    (tmp_path / "a").mkdir()
    for name in ("one", "two"):
        (tmp_path / "a" / name / "sub").mkdir(parents=True)
        (tmp_path / "a" / name / "sub" / "f").write_text("x")
    one, two = (take_snapshot(str(tmp_path / "a" / name)) for name in ("one", "two"))
    assert digest_snapshot(one) == digest_snapshot(two)
    for path in (tmp_path / "a" / "two" / "sub", tmp_path / "a" / "two" / "sub" / "f"):
        path.touch()
        path.chmod(path.stat().st_mode | 0o020)  # as another umask has it
    assert digest_snapshot(one) == digest_snapshot(take_snapshot(str(tmp_path / "a" / "two")))
    (tmp_path / "a" / "two" / "sub" / "f").chmod(0o755)
    assert digest_snapshot(one) != digest_snapshot(take_snapshot(str(tmp_path / "a" / "two")))
