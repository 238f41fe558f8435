"""Column files of others (Parquet, Arrow), in which a few kilobytes can expand to a terabyte.

A dictionary with one text of a megabyte and a run of a million references to it is a legal page of Parquet, so the
sizes in the file prove nothing. The file is unpacked once, in a process with little memory, a few rows at a time, and
counted. This module is the program of that process too, which imports nothing else of this package.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path

MAX_GROUP = 2**30
"""Bytes that a row group or batch unpacks to: who reads a file holds one at a time."""
MAX_RATIO = 100
"""How many times a file's size it unpacks to, where that is more than MAX_GROUP."""
_MEMORY = 4 * 2**30
_SECONDS = 600
_ROWS = 64


def require_bounded_columns(path: Path) -> None:
    """Raise ValueError, with a reason for people, for a file of columns that unpacks to more than it may."""
    found = os.stat(path)
    if (problem := _find_problem(os.fspath(path), found.st_size, found.st_mtime_ns)) is not None:
        raise ValueError(f"{path}: {problem}")


@lru_cache(maxsize=256)
def _find_problem(path: str, _size: int, _mtime_ns: int) -> str | None:
    """Return why the file is refused, or None. Errors of the format are left to the library that reads it."""
    import subprocess

    # Arrow's other pools reserve address space ahead of need, which counts against RLIMIT_AS.
    environment = {"PATH": os.defpath, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-I", __file__, path]
    try:
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"found columns that take over {_SECONDS} s to unpack, expected fewer"
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace").strip()[:300] or None
    return f"found columns that cannot be unpacked in {_MEMORY // 2**30} GiB of memory, expected smaller ones"


def _measure(path: str) -> str:
    """Unpack the file. Return which bound it exceeds, or "" if none or if it is not such a file."""
    import pyarrow
    import pyarrow.ipc
    import pyarrow.parquet

    most, total = max(MAX_GROUP, MAX_RATIO * os.path.getsize(path)), 0
    try:
        if path.lower().endswith(".parquet"):
            file = pyarrow.parquet.ParquetFile(path, memory_map=True)
            groups = (
                file.iter_batches(batch_size=_ROWS, row_groups=[at], use_threads=False)
                for at in range(file.num_row_groups)
            )
        else:
            with open(path, "rb") as opened:
                is_file = opened.read(6) == b"ARROW1"
            source = pyarrow.memory_map(path)
            reader = pyarrow.ipc.open_file(source) if is_file else pyarrow.ipc.open_stream(source)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            groups = ([batch] for batch in batches)
        for group in groups:
            size = 0
            for batch in group:
                size += batch.nbytes
                if size > MAX_GROUP:
                    return f"found a row group of more than {MAX_GROUP:,} bytes unpacked, the most that is read"
                if total + size > most:
                    return f"found columns that unpack to more than {most:,} bytes, the most for a file of its size"
            total += size
    except pyarrow.ArrowInvalid:
        return ""
    return ""


def _main(path: str) -> None:
    import resource

    for limit, wanted in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        hard = resource.getrlimit(limit)[1]
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (wanted, wanted))
    os.write(1, _measure(path).encode())


if __name__ == "__main__":
    _main(sys.argv[1])
