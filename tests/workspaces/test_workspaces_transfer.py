"""Folders as archives to another machine and back: nothing of an untrusted archive leads out of its folder."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_agentbench import pack_folder, unpack_folder
from pytest_agentbench.workspaces import transfer
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.workspace import TreeError

Write = Callable[[tarfile.TarFile], None]


def make_archive(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """Return an archive of members by name, type and content, which is a link's target."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o644
            content = text.encode() if kind == tarfile.REGTYPE else b""
            member.size = len(content)
            member.linkname = "" if content else text
            archive.addfile(member, io.BytesIO(content))
    return io.BytesIO(stream.getvalue())


def test_a_folder_arrives_with_links_modes_and_times(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "below").mkdir(parents=True)
    target.mkdir()
    (source / "below" / "program").write_text("#!/bin/sh\n")
    (source / "below" / "program").chmod(0o755)
    (source / "twice").hardlink_to(source / "below" / "program")
    os.utime(source / "below" / "program", (1, 1_000_000_000))
    (source / "link").symlink_to("/etc/passwd")
    (source / "below").chmod(0o500)
    os.mkfifo(source / "pipe")
    stream = io.BytesIO()
    pack_folder(source, stream)
    unpack_folder(io.BytesIO(stream.getvalue()), target)
    assert sorted(entry.name for entry in target.iterdir()) == ["below", "link", "twice"]
    assert os.readlink(target / "link") == "/etc/passwd"
    status = (target / "below" / "program").stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o755, 1_000_000_000)
    assert (target / "below").stat().st_mode & 0o777 == 0o500


def test_a_hard_link_of_another_program_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    unpack_folder(make_archive(("./a", tarfile.REGTYPE, "text"), ("./b", tarfile.LNKTYPE, "./a")), tmp_path)
    assert (tmp_path / "b").read_text() == "text"
    assert (tmp_path / "b").stat().st_nlink == 1


def test_devices_are_left_out_and_absolute_names_stay_inside(tmp_path: Path) -> None:
    members = (("null", tarfile.CHRTYPE, ""), ("pipe", tarfile.FIFOTYPE, ""), ("/etc/name", tarfile.REGTYPE, "in"))
    unpack_folder(make_archive(*members), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["etc"]
    assert (tmp_path / "etc" / "name").read_text() == "in"


@pytest.mark.parametrize(
    "members",
    [
        [("../outside", tarfile.REGTYPE, "x")],
        [("link", tarfile.SYMTYPE, ".."), ("link/outside", tarfile.REGTYPE, "x")],
        [("link", tarfile.SYMTYPE, ".."), ("link", tarfile.REGTYPE, "x"), ("link/outside", tarfile.DIRTYPE, "")],
        [("hard", tarfile.LNKTYPE, "../secret")],
        [("link", tarfile.SYMTYPE, "../secret"), ("hard", tarfile.LNKTYPE, "link")],
    ],
    ids=["climbs", "through a link", "over a link", "hard link", "hard link to a link"],
)
def test_names_and_links_that_lead_out_are_refused(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    (tmp_path / "secret").write_text("secret")
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises((PathRefusedError, OSError)):
        unpack_folder(make_archive(*members), target)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["secret", "target"]
    assert not (target / "hard").exists()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a", tarfile.REGTYPE, "x" * 60), ("b", tarfile.REGTYPE, "x" * 60)], "more than 100 bytes"),
        ([("a", tarfile.REGTYPE, "x" * 60), ("b", tarfile.LNKTYPE, "a")], "more than the limit by 20 bytes at 'b'"),
        ([(str(number), tarfile.DIRTYPE, "") for number in range(11)], "more than 10 members"),
        ([("/".join("d" * 101), tarfile.DIRTYPE, "")], "nested deeper than"),
    ],
    ids=["bytes", "hard links", "members", "depth"],
)
def test_an_archive_over_a_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[tuple[str, bytes, str]], message: str
) -> None:
    monkeypatch.setattr(transfer, "_MAX_MEMBERS", 10)
    with pytest.raises(TreeError, match=message):
        unpack_folder(make_archive(*members), tmp_path, limit=100)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    stream = make_archive(("a", tarfile.REGTYPE, "text")).getvalue()
    for damaged in (b"x" * 1024, stream[:600]):
        with pytest.raises(TreeError, match="the archive cannot be unpacked"):
            unpack_folder(io.BytesIO(damaged), tmp_path)
