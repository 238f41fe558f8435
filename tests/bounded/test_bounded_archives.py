"""Archives that were made to do harm."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.zstd_zip import pack_frames, write_zip, write_zstd_zip

from pytest_agentbench.bounded.archives import ArchiveRefusedError, ZipReader, read_tar
from pytest_agentbench.bounded.files import FileRefusedError

MOST = 2**20


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for header, content in members:
            header.size = header.size or len(content)
            archive.addfile(header, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type = kind
    for field, value in fields.items():
        setattr(header, field, value)
    return header


def test_files_and_folders_of_a_tar_are_read(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "a.tar", (member("folder", tarfile.DIRTYPE), b""), (member("folder/file"), b"text"))
    found = {header.name: None if file is None else file.read() for header, file in read_tar(path, MOST)}
    assert found == {"folder": None, "folder/file": b"text"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (tarfile.SYMTYPE, {"linkname": "/etc/passwd"}),
        (tarfile.LNKTYPE, {"linkname": "../out"}),
        (tarfile.CHRTYPE, {"devmajor": 1, "devminor": 5}),
        (tarfile.BLKTYPE, {}),
        (tarfile.FIFOTYPE, {}),
        (tarfile.GNUTYPE_SPARSE, {}),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(kind: bytes, fields: dict[str, object], tmp_path: Path) -> None:
    path = tar_of(tmp_path / "a.tar", (member("evil", kind, **fields), b""))
    with pytest.raises((ArchiveRefusedError, tarfile.TarError)):
        list(read_tar(path, MOST))


def test_a_tar_bomb_is_refused(tmp_path: Path) -> None:
    claims = tar_of(tmp_path / "claims.tar", (member("a"), b"x"), (member("b"), b""))
    content = bytearray(claims.read_bytes())
    header = member("b", size=8 * 2**30).tobuf(tarfile.GNU_FORMAT)
    content[1024:1536] = header
    claims.write_bytes(content)
    with pytest.raises(
        (ArchiveRefusedError, tarfile.TarError), match=r"unpacks to more than 1,048,576 bytes|unexpected"
    ):
        list(read_tar(claims, MOST))
    many = tar_of(tmp_path / "many.tar", *((member(str(at)), b"") for at in range(11)))
    with pytest.raises(ArchiveRefusedError, match="unpacks to more than 10 members, at '10'"):
        list(read_tar(many, MOST, members=10))
    packed = tmp_path / "packed.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.addfile(member("zeros", size=64 * MOST), io.BytesIO(bytes(64 * MOST)))
    with pytest.raises(tarfile.ReadError):  # it is not unpacked at all
        list(read_tar(packed, MOST))
    with pytest.raises(FileRefusedError, match="expected at most 1,024"):
        list(read_tar(many, 1024))


def zip_of(path: Path, fill: Callable[[zipfile.ZipFile], None], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        fill(archive)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(method: int, tmp_path: Path) -> None:
    import tracemalloc

    path = zip_of(tmp_path / "a.zip", lambda archive: archive.writestr("zeros", bytes(64 * MOST)), method)
    content = path.read_bytes().replace((64 * MOST).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    path.write_bytes(content)  # it says that it has five bytes
    tracemalloc.start()
    with ZipReader(path) as archive, pytest.raises((ArchiveRefusedError, NotImplementedError)):
        archive.read("zeros", MOST)
    assert tracemalloc.get_traced_memory()[1] < 8 * MOST
    tracemalloc.stop()


def test_members_that_unpack_to_too_much_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_agentbench.bounded.archives.MAX_TOTAL", 2 * MOST)
    names = ["a", "b", "c"]
    path = zip_of(tmp_path / "a.zip", lambda archive: [archive.writestr(name, bytes(MOST)) for name in names] and None)
    with ZipReader(path) as archive:
        assert archive.names == names
        assert [len(archive.read(name, MOST)) for name in names[:2]] == [MOST, MOST]
        with pytest.raises(ArchiveRefusedError, match=r"a\.zip!c: it, or the archive, unpacks to more than its limit"):
            archive.read("c", MOST)


def test_a_file_that_is_not_a_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(ArchiveRefusedError, match="cannot be read as a zip archive"):
        ZipReader(tmp_path / "a.zip")


@pytest.mark.parametrize("size", [0, 1, 70_000, 300_000])
@pytest.mark.parametrize("frame", [1000, 65_536, 2**30])
def test_members_packed_with_zstandard_are_read_whole(size: int, frame: int, tmp_path: Path) -> None:
    content = random.Random(size).randbytes(size)  # which packs to its own size: several blocks are read
    path = write_zstd_zip(tmp_path / "a.zip", {"first": b"1", "it": content, "zeros": bytes(size)}, frame=frame)
    with ZipReader(path) as archive:
        assert archive.read("it", MOST) == content
        assert archive.read("zeros", MOST) == bytes(size)
        assert archive.read("first", 1) == b"1"
        with pytest.raises(ArchiveRefusedError, match="expected at most"):
            archive.read("it", size - 1)


PACKED = pack_frames(b"a" * 1000, 400)


@pytest.mark.parametrize(
    ("packed", "size", "crc", "reason"),
    [
        (PACKED, 999, zlib.crc32(b"a" * 1000), "its size or checksum is wrong"),
        (PACKED, 1001, zlib.crc32(b"a" * 1000), "its size or checksum is wrong"),
        (PACKED, 1000, 5, "its size or checksum is wrong"),
        (PACKED[:-1], 1000, zlib.crc32(b"a" * 1000), "it is cut off"),
        (b"", 0, 0, "it is cut off"),
        (b"no frame at all", 1000, 0, "cannot be read: "),
        (PACKED + b"xxxx", 1000, zlib.crc32(b"a" * 1000), "cannot be read: "),
        (pack_frames(b"", 1) * 10_001, 0, 0, "it has more than 10,000 frames"),
    ],
    ids=["shorter", "longer", "checksum", "cut", "empty", "garbage", "garbage behind", "frames"],
)
def test_damaged_zstandard_is_refused(packed: bytes, size: int, crc: int, reason: str, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"it": (packed, size, crc)})
    with ZipReader(path) as archive, pytest.raises(ArchiveRefusedError, match=reason):
        archive.read("it", MOST)


def test_a_zstandard_bomb_is_unpacked_to_its_declared_size_at_most(tmp_path: Path) -> None:
    import tracemalloc

    bomb = pack_frames(bytes(256 * MOST), 2**30)
    path = write_zip(tmp_path / "a.zip", {"it": (bomb, 5, 0)})
    tracemalloc.start()
    with ZipReader(path) as archive, pytest.raises(ArchiveRefusedError, match="its size or checksum is wrong"):
        archive.read("it", MOST)
    assert tracemalloc.get_traced_memory()[1] < MOST
    tracemalloc.stop()


def test_an_encrypted_or_misplaced_member_is_refused(tmp_path: Path) -> None:
    member = (PACKED, 1000, zlib.crc32(b"a" * 1000))
    path = write_zip(tmp_path / "a.zip", {"it": member}, flags=1)
    with ZipReader(path) as archive, pytest.raises(ArchiveRefusedError, match="it is encrypted"):
        archive.read("it", MOST)
    path = write_zip(tmp_path / "b.zip", {"it": member})
    path.write_bytes(b"XX" + path.read_bytes()[2:])
    with (
        ZipReader(path) as archive,
        pytest.raises(ArchiveRefusedError, match="does not begin at its place"),
    ):
        archive.read("it", MOST)
