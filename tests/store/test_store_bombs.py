"""Artifacts of others that ask for much memory, disk or time: a store that is shared, reports to be merged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from support.s3_server import S3Server

from pytest_agentbench.bounded.files import MAX_RECORD
from pytest_agentbench.cli import main
from pytest_agentbench.store.remote import open_object_store


def sparse(path: Path, size: int) -> Path:
    """A file that says it is large and takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_an_object_of_a_shared_folder_that_is_too_large_is_not_read(tmp_path):
    sparse(tmp_path / "runs/a/object", 2**40)
    place = open_object_store(f"file://{tmp_path}")
    try:
        reading = asyncio.run_coroutine_threadsafe(place.read("runs/a/object"), place.loop)
        with pytest.raises(OSError, match="expected at most 268,435,456"):
            reading.result(20)
    finally:
        place.close()


@pytest.mark.slow
def test_an_object_of_a_bucket_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_agentbench.store.remote.MAX_RECORD", 1000)  # 256 MB more take their time
    with S3Server(tmp_path) as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        for name, size in (("fits", 1000), ("large", 1001)):
            sparse(tmp_path / "bench/x" / name, size)
        place = open_object_store(server.url("x"))
        try:
            assert asyncio.run_coroutine_threadsafe(place.read("fits"), place.loop).result(20) == bytes(1000)
            with pytest.raises(OSError, match="more than 1,000 bytes"):
                asyncio.run_coroutine_threadsafe(place.read("large"), place.loop).result(20)
        finally:
            place.close()


@pytest.mark.parametrize("command", [["store", "verify"], ["store", "export"]])
def test_stored_files_that_ask_for_much_are_named(tmp_path, capsys, command):
    folder = tmp_path / "outputs/runs/suit_default/run_profile_abc123/m/c"
    sparse(folder / "run_1.json", MAX_RECORD + 1)
    (folder / "run_2.json").write_bytes(b'{"schema_version": 1, "trace": ' + b"[" * 200_000)
    os.mkfifo(folder / "run_3.json")
    main([*command, "--output", str(tmp_path / "outputs")])
    said = "".join(capsys.readouterr())
    for name in ("run_1.json", "run_2.json"):
        assert name in said


def test_a_report_that_is_nested_without_end_is_not_merged(tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(b'{"schema_version": 1, "runs": ' + b"[" * 500_000)
    assert main(["merge", str(tmp_path / "a.json")]) == 1
    assert "a.json: is no JSON" in capsys.readouterr().err
