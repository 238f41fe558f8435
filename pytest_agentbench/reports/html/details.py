"""Details of runs on the page beyond their rows, and the script files that contain them."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
import shlex
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json, to_json

from pytest_agentbench.bounded.folders import lies_below
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.rows import Report, Row
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.terminal_text import sendable

_DECIDING = (
    *("profile", "suite", "run-profile", "evaluation-profile", "repetitions", "metric", "predictions", "cassettes"),
    *("output", "store", "variant"),
)
"""Options that change a run or the place of its files. Commands for single runs repeat them and name the model."""
_OF_PYTEST = ("-c", "--config-file", "--rootdir", "--confcutdir", "-o", "--override-ini")
_KEPT = {*(f"--agentbench-{name}" for name in _DECIDING), *_OF_PYTEST}


def deciding_options(command: Sequence[str]) -> str:
    """Return the session's arguments that a single run needs too, quoted for a shell."""
    return shlex.join(_kept(command))


def _kept(command: Sequence[str]) -> Iterator[str]:
    arguments = iter(command)
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name not in _KEPT:
            continue
        yield argument
        if not equals and (value := next(arguments, None)) is not None:
            yield value


# The page shows of one run, beyond its row, its stored trace, verdict and files. A detail is `{run,
# evaluation, notes}`: the two stored documents (`records.RunArtifact`, `records.Evaluation`), null if
# unavailable, and sentences with the reasons. They are read as JSON and not validated. So a report of 10,000
# runs takes seconds, and old and damaged files are shown as far as possible; the page must not rely on their
# form. NaN and infinities are null. A long text is shortened to its beginning: `{"cut": text, "of":
# characters}`. A list that is too long keeps its first items and ends with `{"cut": items shown, "of":
# items}`. A trace keeps its first and last events, with such a mark in between.


Detail = dict[str, Any]

ROOM = 500_000
"""Maximum characters of one run. The beginnings of texts that exceed it may take as many again."""
TEXT = 40_000
"""Characters of one text."""
LEAST = 200
"""Characters kept of each text once a run has used its room."""
FIRST_EVENTS, LAST_EVENTS = 5_000, 100
_LEVELS = 64
_USAGES = ("usage", "judge_usage")


REASONING = 20_000
"""Characters of a model's reasoning before one reply."""


def _repeats(event: Any) -> bool:
    """Return whether the event is a raw reply, whose text and calls the trace repeats as separate events."""
    return isinstance(event, dict) and event.get("name") == "reply_message" and event.get("type") == "runner"


def _fold_reasoning(event: Any) -> Any:
    """Return an event; of much reasoning only the beginning."""
    if not isinstance(event, dict) or event.get("name") != "reasoning" or not isinstance(event.get("data"), dict):
        return event
    data = event["data"]
    text = data.get("text")
    if not isinstance(text, str) or len(text) <= REASONING:
        return event
    return {**event, "data": {**data, "text": {"cut": text[:REASONING], "of": len(text)}}}


def run_detail(row: Row, output: Path | None, room: int = ROOM) -> Detail:
    """Return the detail of a row of report.json, at most about `2 * room` characters. Never raises.

    `output` is the output folder that the row's paths are relative to, or None if unknown.
    """
    notes: list[str] = []
    run = _stored_run(row, output, notes)
    evaluation = _stored_evaluation(row, run[0] if run is not None else None, output, notes)
    budget = _CharacterBudget(room)
    return {
        "evaluation": evaluation and budget.evaluation(*evaluation),
        "run": run and budget.run(*run),
        "notes": [sendable(note) for note in notes],
    }


Stored = tuple[dict[str, Any], int]
"""A document, and the bytes of its file."""


def _stored_run(row: Row, output: Path | None, notes: list[str]) -> Stored | None:
    """Return the stored run of a row: in its place, or aside where another one has taken that since."""
    path, fingerprint = row.get("artifact"), row.get("fingerprint")
    if not isinstance(path, str):
        if row.get("outcome") != "skipped":
            notes.append("Nothing was stored of this run.")
        return None
    stored = _read_document(path, output, notes)
    if stored is None or not isinstance(fingerprint, str):
        return stored
    if stored[0].get("fingerprint") != fingerprint:
        # A superseded run stays next to its successor, named by the first digits of its fingerprint, until it
        # is pruned.
        stored = _read_document(f"{path.removesuffix('.json')}.{fingerprint[:8]}.json", output, [])
        if stored is None or stored[0].get("fingerprint") != fingerprint:
            notes.append(f"{path}: another run has replaced it since this report was made.")
            return None
    if not _is_that_draw(row, stored[0]):
        notes.append(f"{path}: the case was run again since this report was made; the later run is shown.")
    return stored


def _is_that_draw(row: Row, run: Mapping[str, Any]) -> bool:
    """Return whether a stored run is the row's own: a second run of the same fingerprint takes a first one's place."""
    if (of := row.get("run_id")) is not None:
        return bool(of == run.get("run_id"))
    seconds = row.get("duration_seconds")
    return seconds is None or bool(seconds == run.get("duration_seconds"))


def _stored_evaluation(row: Row, run: Mapping[str, Any] | None, output: Path | None, notes: list[str]) -> Stored | None:
    """Return the stored verdict of a row, if it is on this run."""
    path = row.get("evaluation")
    if not isinstance(path, str):
        return None
    stored = _read_document(path, output, notes)
    if stored is None:
        return None
    document = stored[0]
    of = document.get("run_id")
    if run is not None and of is not None and of != run.get("run_id"):
        notes.append(f"{path}: the stored verdict is now on another run.")
        return None
    if document.get("final_score") != row.get("final_score"):
        notes.append(f"{path}: the run was judged again since this report was made; the later verdict is shown.")
    return stored


def _read_document(path: str, output: Path | None, notes: list[str]) -> Stored | None:
    """Return the JSON object in a file below the output folder. If it cannot be read, add the reason to the notes."""
    if output is None:
        notes.append(f"{path}: not shown, as the page was made without the output folder.")
        return None
    try:
        if not lies_below(str(output), path):
            notes.append(f"{path}: not read, because it is outside the output folder.")
            return None
        content = open_documents(output).read(path)
        if content is None:
            notes.append(f"{path}: missing in {output}.")
            return None
    except OSError as error:
        notes.append(f"{path}: cannot be read in {output}: {error.strerror or error}.")
        return None
    except ValueError as error:
        notes.append(f"{path}: is not a file name: {error}.")
        return None
    try:
        document = from_json(content, cache_strings="keys")
        # Only then: to write a document and read it again takes longer than to read it once.
        if b"NaN" in content or b"Infinity" in content:  # numbers that a browser cannot read, or words of a text
            document = from_json(to_json(document, inf_nan_mode="null"))
    except ValueError as error:
        notes.append(f"{path}: broken in {output}: {error}.")
        return None
    if not isinstance(document, dict):
        notes.append(f"{path}: broken in {output}: found no JSON object.")
        return None
    return document, len(content)


class _CharacterBudget:
    """Characters that a detail has left: below 0 for the beginnings of texts, below `floor` for nothing."""

    def __init__(self, characters: int) -> None:
        self.left = characters
        self.floor = -characters

    def evaluation(self, document: dict[str, Any], size: int) -> dict[str, Any]:
        """Return a stored verdict without the raw usage data of its judges' providers."""
        _drop_raw(document)
        judge = document.get("judge")
        if isinstance(judge, dict):
            _drop_raw(judge)
            for iteration in _objects(judge.get("iterations")):
                _drop_raw(iteration)
        if self._has_room_for(size):
            return document
        return self._members(document)

    def run(self, document: dict[str, Any], size: int) -> dict[str, Any]:
        """Return a stored run. If it is long, the answer gets room first, then the changed files, then the trace."""
        _drop_raw(document)
        if isinstance(trace := document.get("trace"), list):
            document["trace"] = [_fold_reasoning(event) for event in trace if not _repeats(event)]
        if self._has_room_for(size):
            return document
        trace = document.pop("trace", None)
        answer = next((e for e in reversed(_objects(trace)) if e.get("type") == "final_output"), None)
        answer_text = None if answer is None else self._value(answer)
        # The order matters: each part uses the remaining room, and a page without the answer would be useless.
        parts = {name: self._value(document.pop(name, None)) for name in ("error", "changes")}
        rest = self._members(document)
        if isinstance(trace, list):
            parts["trace"] = [answer_text if event is answer else self._value(event) for event in self._events(trace)]
        return {**rest, **parts}

    def _has_room_for(self, size: int) -> bool:
        """Return whether a document of so many bytes fits as it is: then nothing in it has to be looked at."""
        if size > TEXT or size > self.left:
            return False
        self.left -= size
        return True

    def _events(self, trace: list[Any]) -> Iterator[Any]:
        """Yield the events of a trace; of one that is too long the first and the last, and between them a mark."""
        last = max(0, len(trace) - LAST_EVENTS)
        for at, event in enumerate(trace):
            if at < last and (at >= FIRST_EVENTS or self.left < self.floor // 2):
                yield {"cut": at + len(trace) - last, "of": len(trace)}
                yield from trace[last:]
                return
            yield event

    def _value(self, value: Any, levels: int = _LEVELS) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._members(value, levels)
        if isinstance(value, list):
            return self._items(value, levels)
        self.left -= 8
        return value

    def _text(self, text: str) -> Any:
        most = max(LEAST, min(TEXT, self.left))
        self.left -= min(len(text), most)
        if len(text) <= most:
            return text
        return {"cut": text[:most], "of": len(text)}

    def _members(self, value: dict[str, Any], levels: int = _LEVELS) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, member in value.items():
            if self.left < self.floor or not levels:
                return {**members, "cut": len(members), "of": len(value)}
            name = key if len(key) <= LEAST else f"{key[:LEAST]}…"
            self.left -= len(name)
            members[name] = self._value(member, levels - 1)
        return members

    def _items(self, items: list[Any], levels: int) -> list[Any]:
        values: list[Any] = []
        for item in items:
            if self.left < self.floor or not levels:
                return [*values, {"cut": len(values), "of": len(items)}]
            values.append(self._value(item, levels - 1))
        return values


def _objects(values: Any) -> list[dict[str, Any]]:
    if isinstance(values, list):
        return [each for each in values if isinstance(each, dict)]
    return []


def _drop_raw(document: dict[str, Any]) -> None:
    """Remove the provider's raw usage data: the page shows the sums."""
    for name in _USAGES:
        if isinstance(usage := document.get(name), dict):
            usage.pop("raw", None)


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


def place_details(report: Report, page: Path, output: Path | None) -> PlacedDetails:
    """Read the details of a report's runs and write them to blocks, or to files in `<page>_files`.

    `facts`: `kind` ("embedded" or "chunks"), `starts` (the number of each chunk's first run), `blocks` or `files` (ids,
    or addresses relative to the page), `output` (the output folder as given) and `base` (its address relative to
    the page; both null if unknown), `options` (see `deciding_options`). Raises UnwritableError.
    """
    starts: list[int] = []
    texts: list[str] = []
    files: list[str] = []
    folder = _folder(page)
    size = 0
    for first, text in _pack_chunks(report["runs"], output):
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


def _pack_chunks(rows: Sequence[Row], output: Path | None) -> Iterator[tuple[int, str]]:
    """Pack chunks, each with the number of its first run; threads pack them while the next are read."""
    with ThreadPoolExecutor(_THREADS) as pool:
        packing: deque[tuple[int, Future[str]]] = deque()
        for first, details in _group_details(rows, output):
            packing.append((first, pool.submit(_pack_text, details)))
            # No more than a few are in memory, packed or not; gzip works without the interpreter's lock
            if len(packing) > 2 * _THREADS:
                first, packed = packing.popleft()
                yield first, packed.result()
        for first, packed in packing:
            yield first, packed.result()


def _group_details(rows: Sequence[Row], output: Path | None) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the details of some runs each, as JSON, with the number of the first."""
    # The room of each run shrinks with the number of runs, so that a page of 10,000 runs can be opened.
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
