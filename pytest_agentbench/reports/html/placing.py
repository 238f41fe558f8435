"""Places of runs' details: in the page, or in script files next to it that the page loads on demand."""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.html.details import LEAST, ROOM, Detail, deciding_options, run_detail
from pytest_agentbench.reports.rows import Report, Row

# Details are embedded in the page if they are few, else they are scripts next to it, loaded on demand. In both forms
# they are chunks: gzip in base64 of a JSON array with the details of some runs, in the report's order.


EMBEDDED = 8 * 2**20
"""Characters of all chunks together that a page may hold."""
CHUNK = 2**20
"""Approximate bytes of a chunk's JSON, all of which is unpacked to open one run."""
TOTAL = 500_000_000
"""Characters of all details together, about: each run of 10,000 has a tenth of the room that each of 1,000 has."""

_LEVEL = 1
_THREADS = 2
_NAME = re.compile(r"runs-[0-9a-f]{16}\.js")


@dataclass(frozen=True, slots=True)
class PlacedDetails:
    """Placed details of a page's runs: `facts` is data for its script; `blocks` are page elements by id."""

    facts: dict[str, Any]
    blocks: dict[str, str]


TOOLS_OF_A_RUN, TOOL_NAME = 50, 100
"""Most tools of a run that the page's search finds, and characters of a name."""


@dataclass(frozen=True, slots=True)
class CalledTools:
    """Tools that runs called, for the page's search: places of names, and for each run the places of its tools."""

    places: dict[str, int] = field(default_factory=dict)
    runs: list[list[int]] = field(default_factory=list)

    def add(self, detail: Detail) -> None:
        """Add the next run."""
        trace = (detail["run"] or {}).get("trace")
        events = [event for event in trace if isinstance(event, dict)] if isinstance(trace, list) else []
        names = [event.get("name") for event in events if event.get("type") == "tool_call"]
        tools = dict.fromkeys(name[:TOOL_NAME] for name in names if isinstance(name, str))
        self.runs.append([self.places.setdefault(name, len(self.places)) for name in [*tools][:TOOLS_OF_A_RUN]])


def place_details(report: Report, page: Path, output: Path | None) -> PlacedDetails:
    """Read the details of a report's runs and write them to blocks, or to files in `<page>_files`.

    `facts`: `kind` ("embedded" or "chunks"), `starts` (the number of each chunk's first run), `blocks` or `files` (ids,
    or addresses relative to the page), `output` (the output folder as given) and `base` (its address relative to
    the page; both null if unknown), `options` (see `deciding_options`), `tools` (`names`, and `runs`: for each run
    the places of the names that it called). Raises UnwritableError.
    """
    starts: list[int] = []
    texts: list[str] = []
    files: list[str] = []
    folder = _folder(page)
    size = 0
    tools = CalledTools()
    for first, text in _pack_chunks(report["runs"], output, tools):
        starts.append(first)
        texts.append(text)
        size += len(text)
        # All runs are either embedded or in files, so the chunks collected so far are written to files too.
        if size > EMBEDDED:
            files += _write(folder, texts)
            texts.clear()
    if files:
        files += _write(folder, texts)
    facts = {
        "starts": starts,
        "output": None if output is None else str(output),
        "base": _output_address(page, output),
        "options": deciding_options(report["session"]["command"]),
        "tools": {"names": [*tools.places], "runs": tools.runs},
    }
    if files:
        addresses = [f"{quote(folder.name)}/{name}" for name in files]
        return PlacedDetails({"kind": "chunks", "files": addresses, **facts}, {})
    blocks = {f"runs-{at}": text for at, text in enumerate(texts)}
    return PlacedDetails({"kind": "embedded", "blocks": list(blocks), **facts}, blocks)


def remove_earlier(page: Path, placed: PlacedDetails) -> None:
    """Remove the chunks of an earlier page at this path, and their folder if it is then empty.

    Call it after the new page is written: until then the earlier page needs its chunks.
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


def _pack_chunks(rows: Sequence[Row], output: Path | None, tools: CalledTools) -> Iterator[tuple[int, str]]:
    """Pack chunks, each with the number of its first run; threads pack them while the next are read."""
    with ThreadPoolExecutor(_THREADS) as pool:
        packing: deque[tuple[int, Future[str]]] = deque()
        for first, details in _group_details(rows, output, tools):
            packing.append((first, pool.submit(_pack_text, details)))
            # No more than a few are in memory, packed or not; gzip works without the interpreter's lock
            if len(packing) > 2 * _THREADS:
                first, packed = packing.popleft()
                yield first, packed.result()
        for first, packed in packing:
            yield first, packed.result()


def _group_details(rows: Sequence[Row], output: Path | None, tools: CalledTools) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the details of some runs each, as JSON, with the number of the first; add their tools."""
    # The room of each run shrinks with the number of runs, so that a page of 10,000 runs can be opened.
    room = max(50 * LEAST, min(ROOM, TOTAL // max(1, len(rows))))
    first, group, size = 0, list[bytes](), 0
    for number, row in enumerate(rows):
        document = run_detail(row, output, room)
        tools.add(document)
        detail = to_json(document)
        if group and size + len(detail) > CHUNK:
            yield first, group
            first, group, size = number, [], 0
        group.append(detail)
        size += len(detail)
    if group:
        yield first, group


def _pack_text(details: Iterable[bytes]) -> str:
    return b64encode(gzip.compress(b"[" + b",".join(details) + b"]", _LEVEL, mtime=0)).decode()


def _write(folder: Path, chunks: Iterable[str]) -> list[str]:
    """Write the chunks and return the names of their files: equal ones have equal names."""
    names: list[str] = []
    for text in chunks:
        name = f"runs-{hashlib.sha256(text.encode()).hexdigest()[:16]}.js"
        try:
            if folder.is_symlink():
                raise OSError(errno.ELOOP, "it is a link to another folder, which is not followed")
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(str(folder), name, f'agentbenchChunk("{name}","{text}");\n'.encode("ascii"))
        except OSError as error:
            raise UnwritableError(
                f"{folder / name}: the page's details cannot be written: {error.strerror or error}; "
                "name another place for the page with --agentbench-html"
            ) from error
        names.append(name)
    return names


def _folder(page: Path) -> Path:
    return page.with_name(f"{page.name}_files")


def _output_address(page: Path, output: Path | None) -> str | None:
    """Return the output folder's address relative to the page, or None if there is none (another drive)."""
    if output is None:
        return None
    try:
        return quote(Path(os.path.relpath(output, page.parent)).as_posix())
    except ValueError:
        return None
