"""The files of an output folder: whole or not there, and never outside of it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pytest_agentbench.bounded.folders import lies_below, make_folder
from pytest_agentbench.bounded.writing import (
    is_device,
    replace_file,
    require_writable,
    write_atomically,
    write_lines,
    write_text,
)
from pytest_agentbench.store.output_folder import explain_unwritable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "out" / "away").symlink_to(tmp_path / "outside")
    (tmp_path / "out" / "home").symlink_to(tmp_path / "out" / "deep")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("deep/run.json", True),
        ("no/such/file", True),
        ("deep/..run", True),
        ("", True),
        ("/etc/passwd", False),
        ("../outside/x", False),
        ("deep/../deep/x", False),
        ("deep\\..\\..\\x", False),
        ("away/x", False),
        ("away", False),
        ("home/x", True),
    ],
)
def test_a_path_is_below_a_folder_by_where_it_leads(folder, path, below):
    assert lies_below(str(folder), path) == below


def test_a_file_is_written_whole_in_place_of_another(tmp_path):
    large = os.urandom(3 * 2**20)
    write_atomically(str(tmp_path), "a", b"long content")
    write_atomically(str(tmp_path), "a", b"short")
    write_atomically(str(tmp_path), "c", large)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"short", "c": large}


def test_who_may_read_is_up_to_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(str(tmp_path), "a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_folder_is_made_once_with_its_parents(tmp_path):
    made = str(tmp_path / "a" / "b" / "c")
    assert make_folder(made) is True
    assert make_folder(made) is False
    assert make_folder(str(tmp_path / "a" / "d")) is True
    assert os.path.isdir(made)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (errno.EMFILE, "allow more open files"),
        (errno.ENFILE, "allow more open files"),
        (errno.ENOSPC, "make room or give write permission"),
        (errno.EACCES, "make room or give write permission"),
    ],
)
def test_the_advice_depends_on_the_reason_of_a_failed_write(error, advice):
    said = explain_unwritable("out", OSError(error, os.strerror(error)))
    assert said.startswith(f"cannot write to out: {os.strerror(error)}. Earlier results are kept; {advice}")


def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("this user can make no devices here")
    require_writable(device)
    write_text(device, "a text")
    write_lines(device, [b"a line\n"])
    with replace_file(device, sync=True) as file:
        file.write(b"more")
    assert stat.S_ISCHR(os.lstat(device).st_mode)


def test_files_of_dev_count_as_devices_even_if_they_are_links() -> None:
    assert is_device("/dev/stdout")
    assert is_device(Path("/dev/no-such-device"))
    assert not is_device("/tmp/dev/stdout")
