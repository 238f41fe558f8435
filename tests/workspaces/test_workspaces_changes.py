"""What a run did to its workspace: every change is told, links are facts, and no content keeps the comparison busy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.records import FileChange
from pytest_agentbench.workspaces import TreeError, Workspace
from pytest_agentbench.workspaces.diff import MAX_CHANGES, MAX_DIFF, MAX_DIFFS, MAX_TEXT, compare
from pytest_agentbench.workspaces.snapshot import EMPTY, digest, take_snapshot


class Folder:
    """A folder with what it held before: `changes()` is what was done to it since."""

    def __init__(self, path: Path) -> None:
        self.path, self.old = path / "now", path / "old"
        self.path.mkdir()
        self.old.mkdir()

    def begin(self) -> None:
        shutil.rmtree(self.old)
        shutil.copytree(self.path, self.old, symlinks=True)

    def compared(self) -> tuple[list[FileChange], int]:
        before, after = take_snapshot(str(self.old)), take_snapshot(str(self.path))
        return compare(before, after, Workspace(self.old), Workspace(self.path))

    def changes(self) -> dict[str, FileChange]:
        return {change.path: change for change in self.compared()[0]}

    def told(self) -> dict[str, str]:
        return {path: change.change for path, change in self.changes().items()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_every_kind_of_change_is_told_once(folder):
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


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12), st.booleans())
def test_the_diff_makes_the_new_text_of_the_old_one(tmp_path_factory, old, new, ended):
    folder = Folder(tmp_path_factory.mktemp("diff"))
    one, other = "\n".join(old) + ("\n" if old else ""), "\n".join(new) + ("\n" if new and ended else "")
    (folder.path / "f").write_text(one)
    folder.begin()
    (folder.path / "f").write_text(other)
    change = folder.changes().get("f")
    assert applied(one, change.diff if change is not None else None) == other


def applied(text: str, diff: str | None) -> str:
    """What `patch` would make of it, written anew."""
    old, made, at = text.splitlines(keepends=True), [], 0
    for line in (diff or "").splitlines(keepends=True):
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            begin = int(start) - (count != "0")
            made += old[at:begin]
            at = begin
        elif line.startswith("\\"):
            made[-1] = made[-1].removesuffix("\n")
        elif line[0] == "-":
            at += 1
        else:
            made.append(line[1:])
            at += line[0] == " "
    return "".join(made + old[at:])


def test_what_is_no_text_is_told_by_its_hash(folder):
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


def test_long_diffs_are_cut_and_say_so(folder):
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
    assert folder.changes()["f"].note == "not compared: 40,000 lines became 198 others"


@pytest.mark.slow
def test_changes_without_end_are_counted(folder):
    for number in range(MAX_CHANGES + 7):
        (folder.path / str(number)).touch()
    changes, more = folder.compared()
    assert (len(changes), more) == (MAX_CHANGES, 7)


def test_the_private_folder_is_no_part_of_it(folder):
    Workspace(folder.path).write_text("/tmp/x", "x")
    (folder.path / "sub" / ".tmp").mkdir(parents=True)
    assert folder.told() == {"sub/.tmp": "added"}


def test_folders_nested_without_end_are_refused(folder):
    deep = folder.path.joinpath(*["d"] * 101)
    deep.mkdir(parents=True)
    with pytest.raises(TreeError, match="nested deeper than 100"):
        take_snapshot(str(folder.path))


def test_equal_folders_have_equal_digests(tmp_path):
    assert digest(EMPTY) == digest(take_snapshot(str(tmp_path)))
    (tmp_path / "a").mkdir()
    for name in ("one", "two"):
        (tmp_path / "a" / name / "sub").mkdir(parents=True)
        (tmp_path / "a" / name / "sub" / "f").write_text("x")
    one, two = (take_snapshot(str(tmp_path / "a" / name)) for name in ("one", "two"))
    assert digest(one) == digest(two)
    (tmp_path / "a" / "two" / "sub" / "f").chmod(0o755)
    assert digest(one) != digest(take_snapshot(str(tmp_path / "a" / "two")))
