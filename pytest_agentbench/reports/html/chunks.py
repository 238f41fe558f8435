"""Where the details of runs are kept: in the page while they are few, else in scripts beside it, loaded on demand.

Either way they are chunks: gzip in base64 of a JSON array of the details of some runs, in the report's order.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.html.details import LEAST, ROOM, run_detail
from pytest_agentbench.reports.html.reproducing import deciding_options
from pytest_agentbench.reports.report import Report
from pytest_agentbench.reports.rows import Row

EMBEDDED = 8 * 2**20
"""Characters of all chunks together that a page may hold."""
CHUNK = 2**20
"""Bytes of a chunk's JSON, about: what opening one run of many unpacks."""
TOTAL = 500_000_000
"""Characters of all details together, about: each run of 10,000 has a tenth of the room that each of 1,000 has."""

_LEVEL = 1
_THREADS = 2
_NAME = re.compile(r"runs-[0-9a-f]{16}\.js")


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the details of a page's runs are. `facts` tells its script, `blocks` are what the page holds, by id."""

    facts: dict[str, Any]
    blocks: dict[str, str]


def place_details(report: Report, page: Path, output: Path | None) -> Placed:
    """Reads the details of a report's runs and puts them into blocks, or into files in `<page>_files`.

    `facts`: `kind` ("embedded" or "chunks"), `starts` (the number of each chunk's first run), `blocks` or `files` (ids,
    or addresses relative to the page), `output` (the output folder as it was given) and `base` (its address relative to
    the page; both null where nobody knows it), `options` (see `deciding_options`). Raises UnwritableError.
    """
    starts: list[int] = []
    kept: list[str] = []
    files: list[str] = []
    folder = _folder(page)
    size = 0
    for first, text in _chunks(report["runs"], output):
        starts.append(first)
        kept.append(text)
        size += len(text)
        if size > EMBEDDED:
            files += _write(folder, kept)
            kept.clear()
    if files:
        files += _write(folder, kept)
    facts = {
        "starts": starts,
        "output": None if output is None else str(output),
        "base": _base(page, output),
        "options": deciding_options(report["session"]["command"]),
    }
    if files:
        addresses = [f"{quote(folder.name)}/{name}" for name in files]
        return Placed({"kind": "chunks", "files": addresses, **facts}, {})
    blocks = {f"runs-{at}": text for at, text in enumerate(kept)}
    return Placed({"kind": "embedded", "blocks": list(blocks), **facts}, blocks)


def remove_earlier(page: Path, placed: Placed) -> None:
    """Removes the chunks of an earlier page in this place, and their folder where nothing is left in it.

    To be called once the page is written: until then the earlier one needs them.
    """
    folder, ours = _folder(page), {address.rpartition("/")[2] for address in placed.facts.get("files", ())}
    if folder.is_symlink():
        return
    with suppress(OSError):
        earlier = [name for name in os.listdir(folder) if _NAME.fullmatch(name) and name not in ours]
        for name in earlier:
            (folder / name).unlink()
        if earlier and not ours:
            folder.rmdir()


def _chunks(rows: Sequence[Row], output: Path | None) -> Iterator[tuple[int, str]]:
    """Chunks, each with the number of its first run; threads pack them while the next are read."""
    with ThreadPoolExecutor(_THREADS) as pool:
        packing: deque[tuple[int, Future[str]]] = deque()
        for first, details in _groups(rows, output):
            packing.append((first, pool.submit(_packed, details)))
            if len(packing) > 2 * _THREADS:
                first, packed = packing.popleft()
                yield first, packed.result()
        for first, packed in packing:
            yield first, packed.result()


def _groups(rows: Sequence[Row], output: Path | None) -> Iterator[tuple[int, list[bytes]]]:
    """The details of some runs each, as JSON, with the number of the first."""
    room = max(50 * LEAST, min(ROOM, TOTAL // max(1, len(rows))))
    first, group, size = 0, list[bytes](), 0
    for number, row in enumerate(rows):
        detail = to_json(run_detail(row, output, room))
        if group and size + len(detail) > CHUNK:
            yield first, group
            first, group, size = number, [], 0
        group.append(detail)
        size += len(detail)
    if group:
        yield first, group


def _packed(details: Iterable[bytes]) -> str:
    return b64encode(gzip.compress(b"[" + b",".join(details) + b"]", _LEVEL, mtime=0)).decode()


def _write(folder: Path, chunks: Iterable[str]) -> list[str]:
    """The names of the files that hold the chunks: equal ones have equal names."""
    names: list[str] = []
    for text in chunks:
        name = f"runs-{hashlib.sha256(text.encode()).hexdigest()[:16]}.js"
        try:
            if folder.is_symlink():
                raise OSError(errno.ELOOP, "it is a link to another folder, which is not followed")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f'agentbenchChunk("{name}","{text}");\n', encoding="ascii")
        except OSError as error:
            raise UnwritableError(
                f"{folder / name}: the page's details cannot be written there: {error.strerror or error}; "
                "name another place for the page with --agentbench-html"
            ) from error
        names.append(name)
    return names


def _folder(page: Path) -> Path:
    return page.with_name(f"{page.name}_files")


def _base(page: Path, output: Path | None) -> str | None:
    """The output folder's address relative to the page; None where it has none, as on another drive."""
    if output is None:
        return None
    try:
        return quote(Path(os.path.relpath(output, page.parent)).as_posix())
    except ValueError:
        return None
