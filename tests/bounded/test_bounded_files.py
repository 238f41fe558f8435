"""Paths that others name are refused at once unless they are plain files of a permitted size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest
from support.special_files import make

from pytest_agentbench.bounded.files import FileRefusedError, open_file, read_file, read_lines
from pytest_agentbench.errors import AgentbenchError

SPECIAL = {
    "pipe": "found a pipe, expected a file of at most 4,194,304 bytes",
    "socket": "found a socket or a device, expected a file of at most 4,194,304 bytes",
    "folder": "found a folder, expected a file of at most 4,194,304 bytes",
    "zero": "found a device, expected a file of at most 4,194,304 bytes",
    "tty": "expected a file of at most 4,194,304 bytes",
    "sparse": "found 2,147,483,648 bytes, expected at most 4,194,304",
}
MAIN = [sys.executable, "-m", "pytest_agentbench.cli"]


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_path_that_is_not_a_plain_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    make(kind, path)
    begun = perf_counter()
    for opened in (lambda: read_file(path, 4 * 2**20), lambda: open_file(path, 4 * 2**20)):
        with pytest.raises(FileRefusedError) as caught:
            opened()
        assert str(caught.value).startswith(f"{path}: ")
        assert SPECIAL[kind] in str(caught.value)
        assert isinstance(caught.value, AgentbenchError)
    assert perf_counter() - begun < 1


def test_a_plain_file_is_read_whole_and_a_missing_one_is_an_os_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_file(path, 100) == b"x" * 100
    with pytest.raises(FileRefusedError, match="found 100 bytes, expected at most 99"):
        read_file(path, 99)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "gone")


@pytest.mark.parametrize("limit", [5, 100])
def test_lines_come_as_they_are_and_a_longer_one_is_refused(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n\nlong" + b"x" * (limit - 4))
    with open_file(path, None) as file:
        assert list(read_lines(file, limit))[:3] == [b"one\n", b"two\n", b"\n"]
        next(iter(read_lines(file, limit)), None)
        assert file.seek(0) == 0  # still open, whoever stopped reading
    path.write_bytes(b"one\n" + b"x" * (limit + 1))
    with (
        open_file(path, None) as file,
        pytest.raises(FileRefusedError, match=f"a line of more than the limit of {limit} bytes"),
    ):
        list(read_lines(file, limit))


CASE = "schema_version: 1\ncase_id: c\ntitle: t\ninput:\n  prompt: q\n{}"
COMMANDS = {
    "test.yaml": ["validate", "."],
    "promptfooconfig.yaml": ["import", "promptfoo", "promptfooconfig.yaml", "--output", "out"],
    "report.json": ["report", "report.json"],
    "old.json": ["compare", "report.json", "old.json"],
    "log.eval": ["import", "inspect", "log.eval", "--output", "out"],
    "run_profiles/p.yaml": ["validate", "."],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipe", "zero", "sparse"])
def test_no_command_blocks_on_a_special_file_or_reads_it_whole(kind: str, tmp_path: Path) -> None:
    for name, arguments in COMMANDS.items():
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        make(kind, folder / name)
        if name == "old.json":
            make(kind, folder / "report.json")
        if name.startswith("run_profiles"):
            (folder / "test.yaml").write_text(CASE.format(""))
        done = subprocess.run(
            [*MAIN, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, preexec_fn=_little_memory
        )
        assert done.returncode != 0, (name, done.stdout)
        assert "Traceback" not in done.stderr, (name, done.stderr)
        assert "found " in done.stdout + done.stderr, (name, done.stdout, done.stderr)


def _little_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
