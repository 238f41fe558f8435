from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.small_disk import small_disk

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces import archive
from pytest_agentbench.workspaces import workspace as walking
from pytest_agentbench.workspaces.archive import MAX_ARCHIVE_BYTES, ArchiveError, pack_workspace, unpack_workspace
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace


@pytest.fixture
def workspaces(tmp_path):
    made = Workspaces(tmp_path)
    yield made
    made.close()


@pytest.fixture
def there(workspaces) -> Workspace:
    return workspaces.create("there")


@pytest.fixture
def back(workspaces) -> Workspace:
    return workspaces.create("back")


def packed(workspace: Workspace, path: Path, redact=str) -> list[str]:
    with path.open("w+b") as target:
        return pack_workspace(workspace, target, redact)


def tree(workspace: Workspace) -> dict[str, bytes | None]:
    """Every file's content, None for folders."""
    found = workspace.path.rglob("*")
    return {str(each.relative_to(workspace.path)): each.read_bytes() if each.is_file() else None for each in found}


def test_files_and_folders_come_back(there, back, tmp_path):
    there.write_text("answer.txt", "42")
    there.write_bytes("deep/er/data.bin", bytes(range(256)))
    there.write_text("/tmp/notes", "scratch")
    there.write_text("Ünïcode 🎉 \n" + "x" * 150, "long and odd")
    (there.path / "empty").mkdir()
    (there.path / "run.sh").write_text("#!/bin/sh\n")
    (there.path / "run.sh").chmod(0o755)
    assert packed(there, tmp_path / "a.tar") == []
    unpack_workspace(tmp_path / "a.tar", back)
    assert tree(back) == tree(there)
    assert (back.path / "run.sh").stat().st_mode & 0o777 == 0o755
    assert back.read_text("/tmp/notes") == "scratch"


names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)


@pytest.mark.slow
@given(st.dictionaries(st.tuples(names, names), st.binary(max_size=2_000), max_size=5))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_files_of_an_agent_survive_packing_and_unpacking(workspaces, tmp_path, written):
    there, back = workspaces.create("a"), workspaces.create("b")
    for (folder, name), content in written.items():
        there.write_bytes(f"{folder}/{name}", content)
    assert packed(there, tmp_path / "a.tar") == []
    unpack_workspace(tmp_path / "a.tar", back)
    assert tree(back) == tree(there)


def test_names_that_are_no_unicode_come_back(there, back, tmp_path):
    with open(os.fsencode(there.path) + b"/caf\xe9", "wb") as file:
        file.write(b"x")
    assert packed(there, tmp_path / "a.tar") == []
    unpack_workspace(tmp_path / "a.tar", back)
    assert os.listdir(os.fsencode(back.path)) == [b"caf\xe9"]


def test_links_pipes_and_hard_links_are_left_out(there, back, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    there.write_text("kept/a", "a")
    (there.path / "kept/link").symlink_to(secret)
    (there.path / "folder").symlink_to(tmp_path)
    os.link(secret, there.path / "hard")
    os.mkfifo(there.path / "pipe")
    assert sorted(packed(there, tmp_path / "a.tar")) == ["folder", "hard", "kept/link", "pipe"]
    unpack_workspace(tmp_path / "a.tar", back)
    assert tree(back) == {"kept": None, "kept/a": b"a"}
    assert b"hunter2" not in (tmp_path / "a.tar").read_bytes()


def test_a_workspace_that_is_a_link_by_now_is_left_out_whole(there, tmp_path):
    there.path.rmdir()
    there.path.symlink_to("/etc")
    assert packed(there, tmp_path / "a.tar") == [""]
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert archive.getnames() == []


def test_secrets_are_removed_from_text_and_names(there, back, tmp_path):
    there.write_text("hunter2.txt", "the key is hunter2, really")
    there.write_bytes("binary", b"\xff hunter2")
    packed(there, tmp_path / "a.tar", lambda text: text.replace("hunter2", "[redacted]"))
    unpack_workspace(tmp_path / "a.tar", back)
    assert tree(back) == {"[redacted].txt": b"the key is [redacted], really", "binary": b"\xff hunter2"}


def test_equal_workspaces_make_equal_archives(workspaces, tmp_path):
    for number in (1, 2):
        made = workspaces.create("x")
        for name in ("b", "a", "c/d") if number == 1 else ("c/d", "a", "b"):
            made.write_text(name, name)
            os.utime(made.path / name, (1, 1))
        os.utime(made.path / "c", (1, 1))
        packed(made, tmp_path / f"{number}.tar")
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_times_that_no_header_holds(there, tmp_path):
    there.write_text("old", "x")
    os.utime(there.path / "old", (-(10**9), -(10**9)))
    there.write_text("new", "x")
    os.utime(there.path / "new", (10**10, 10**10))
    assert packed(there, tmp_path / "a.tar") == []


# -- what is too large


def test_a_large_file_is_not_kept(there, tmp_path):
    with (there.path / "hole").open("wb") as file:
        file.truncate(100 * 2**30)
    with pytest.raises(ArchiveError, match="larger than 64 MB"):
        packed(there, tmp_path / "a.tar")


@pytest.mark.slow
def test_many_files_that_are_large_together_are_not_kept(there, tmp_path):
    for number in range(5):
        with (there.path / f"{number}").open("wb") as file:
            file.truncate(MAX_ARCHIVE_BYTES // 4)
    with pytest.raises(ArchiveError, match="larger than 64 MB"):
        packed(there, tmp_path / "a.tar")


def test_folders_without_end_are_not_kept(there, tmp_path):
    here = os.open(there.path, os.O_RDONLY)
    for _ in range(150):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(ArchiveError, match="nested deeper than 100"):
        packed(there, tmp_path / "a.tar")


@pytest.mark.slow
def test_paths_that_nobody_can_open_are_left_out(there, back, tmp_path):
    folder = os.open(there.path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=folder)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    left_out = packed(there, tmp_path / "a.tar")
    assert [path.count("/") for path in left_out] == [15, 16, 17, 18, 19]
    unpack_workspace(tmp_path / "a.tar", back)
    assert len(tree(back)) == 15


def test_files_without_end_are_not_kept(there, tmp_path, monkeypatch):
    monkeypatch.setattr(walking, "MAX_ENTRIES", 1_000)
    for number in range(1_001):
        (there.path / str(number)).touch()
    with pytest.raises(ArchiveError, match="1,000 files or more"):
        packed(there, tmp_path / "a.tar")


# -- archives that are none


def made_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes | None]) -> Path:
    with tarfile.open(path, "w") as archive:
        for header, content in members:
            header.size = len(content or b"")
            archive.addfile(header, io.BytesIO(content or b""))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, link
    return header


@pytest.mark.parametrize(
    "header",
    [
        member("../out"),
        member("a/../../out"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "here"),
        member("link", tarfile.LNKTYPE, "../out"),
        member("pipe", tarfile.FIFOTYPE),
        member("disk", tarfile.BLKTYPE),
    ],
    ids=lambda header: f"{header.name}-{header.type!r}",
)
def test_nothing_is_unpacked_outside_or_as_anything_but_a_file(back, tmp_path, header):
    archive = made_tar(tmp_path / "a.tar", (header, b""))
    with pytest.raises(ArchiveError, match=r"a\.tar"):
        unpack_workspace(archive, back)
    assert tree(back) == {}
    assert not (tmp_path / "out").exists()
    assert not (back.path.parent / "out").exists()


def test_an_absolute_name_stays_inside(back, tmp_path):
    unpack_workspace(made_tar(tmp_path / "a.tar", (member("/a"), b"x")), back)
    assert tree(back) == {"a": b"x"}


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00gzip", None])
def test_a_file_that_is_not_an_archive_is_an_error(back, tmp_path, there, content):
    path = tmp_path / "a.tar"
    if content is None:
        there.write_bytes("big", b"x" * 50_000)
        packed(there, path)
        os.truncate(path, 20_000)
    else:
        path.write_bytes(content)
    with pytest.raises(ArchiveError, match=r"a\.tar: cannot be unpacked"):
        unpack_workspace(path, back)


def test_a_missing_archive_is_a_clear_error(back, tmp_path):
    with pytest.raises(ArchiveError, match="No such file"):
        unpack_workspace(tmp_path / "a.tar", back)


def test_an_archive_that_unpacks_to_more_than_it_may_is_refused(back, tmp_path):
    header = member("sparse", b"S")  # GNU's sparse file: 64 GB in a block
    header.size = 0
    path = tmp_path / "a.tar"
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"%011o\0" % 2**33
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path.write_bytes(bytes(block) + bytes(10_240 - 512))
    with pytest.raises(ArchiveError):
        unpack_workspace(path, back)
    assert not any(each.stat().st_size for each in back.path.iterdir())


def test_an_archive_of_folders_without_end_is_refused(back, tmp_path):
    with pytest.raises(ArchiveError):
        unpack_workspace(made_tar(tmp_path / "a.tar", (member("a/" * 1_900 + "b"), b"x")), back)


def test_an_archive_of_files_without_end_is_refused(back, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_ENTRIES", 1_000)
    with pytest.raises(ArchiveError):
        unpack_workspace(made_tar(tmp_path / "a.tar", *((member(str(number)), b"") for number in range(1_001))), back)


def test_no_room_is_no_damaged_archive(there, tmp_path):
    there.write_bytes("big", b"x" * 500_000)
    packed(there, tmp_path / "a.tar")
    with small_disk(tmp_path / "small", "64k"), pytest.raises(SandboxError, match="TMPDIR"):
        unpack_workspace(tmp_path / "a.tar", Workspace(tmp_path / "small"))
