"""What the page shows of one run beyond its row: its trace, verdict and files, as they are stored.

A detail is `{run, evaluation, notes}`: the two stored documents as their records have them (`records.RunArtifact`,
`records.Evaluation`), null where they are not to be had, and sentences that say why. They are read as JSON and not
checked against the records, so that a report of 10,000 runs is made in seconds and old and damaged files are shown as
far as they go; who shows them must not rely on their form. NaN and infinities are null.

Of long texts the beginning stands for the whole: `{"cut": text, "of": characters}`. Of a list that is too long the
first items do, then `{"cut": items shown, "of": items}`; of a trace the first and the last events, with such a mark in
between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from pytest_agentbench.bounded import read_file
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.text import sendable
from pytest_agentbench.store import lies_below

Detail = dict[str, Any]

ROOM = 500_000
"""Characters of one run: as much again is for the beginnings of what finds no more room."""
TEXT = 40_000
"""Characters of one text."""
LEAST = 200
"""Characters of each text where a run has no more room."""
FIRST_EVENTS, LAST_EVENTS = 5_000, 100
_LEVELS = 64
_USAGES = ("usage", "judge_usage")


def run_detail(row: Row, output: Path | None, room: int = ROOM) -> Detail:
    """The detail of a row of report.json, of about `2 * room` characters at most. Never raises.

    `output` is the output folder that the row's paths are relative to, None where nobody knows it.
    """
    notes: list[str] = []
    run = _run(row, output, notes)
    evaluation = _evaluation(row, run[0] if run is not None else None, output, notes)
    left = _Room(room)
    return {
        "evaluation": evaluation and left.evaluation(*evaluation),
        "run": run and left.run(*run),
        "notes": [sendable(note) for note in notes],
    }


Stored = tuple[dict[str, Any], int]
"""A document, and the bytes of its file."""


def _run(row: Row, output: Path | None, notes: list[str]) -> Stored | None:
    """The stored run of a row: in its place, or aside where another one has taken that since."""
    path, wanted = row.get("artifact"), row.get("fingerprint")
    if not isinstance(path, str):
        if row.get("outcome") != "skipped":
            notes.append("Nothing was stored of this run.")
        return None
    found = _read(path, output, notes)
    if found is None or not isinstance(wanted, str):
        return found
    if found[0].get("fingerprint") != wanted:
        found = _read(f"{path.removesuffix('.json')}.{wanted[:8]}.json", output, [])
        if found is None or found[0].get("fingerprint") != wanted:
            notes.append(f"{path}: another run has taken its place since this report was made.")
            return None
    if not _is_that_draw(row, found[0]):
        notes.append(f"{path}: the case was run again since this report was made; what follows is the later run.")
    return found


def _is_that_draw(row: Row, run: Mapping[str, Any]) -> bool:
    """Whether a stored run is the row's own: a second run of the same fingerprint takes the place of the first."""
    if (of := row.get("run_id")) is not None:
        return bool(of == run.get("run_id"))
    seconds = row.get("duration_seconds")
    return seconds is None or bool(seconds == run.get("duration_seconds"))


def _evaluation(row: Row, run: Mapping[str, Any] | None, output: Path | None, notes: list[str]) -> Stored | None:
    """The stored verdict of a row, if it is on this run."""
    if "evaluation" not in row:
        if row.get("status") is not None:
            notes.append("The report was written by an older version, which does not say where the verdict is stored.")
        return None
    path = row["evaluation"]
    if not isinstance(path, str):
        return None
    found = _read(path, output, notes)
    if found is None:
        return None
    document = found[0]
    of = document.get("run_id")
    if run is not None and of is not None and of != run.get("run_id"):
        notes.append(f"{path}: the verdict that is stored there now is on another run.")
        return None
    if document.get("final_score") != row.get("final_score"):
        notes.append(f"{path}: the run was judged again since this report was made; what follows is the later verdict.")
    return found


def _read(path: str, output: Path | None, notes: list[str]) -> Stored | None:
    """The JSON object in a file below the output folder. What keeps it from being shown is noted."""
    if output is None:
        notes.append(f"{path}: not shown, as the page was made without the output folder.")
        return None
    try:
        if not lies_below(str(output), path):
            notes.append(f"{path}: not read, as it does not lie in the output folder.")
            return None
        content = read_file(f"{output}/{path}")
    except FileNotFoundError:
        notes.append(f"{path}: missing in {output}.")
        return None
    except OSError as error:
        notes.append(f"{path}: cannot be read in {output}: {error.strerror or error}.")
        return None
    except ValueError as error:
        notes.append(f"{path}: is no name of a file: {error}.")
        return None
    try:
        document = from_json(content, cache_strings="keys")
        if b"NaN" in content or b"Infinity" in content:  # numbers that a browser cannot read, or words of a text
            document = from_json(to_json(document, inf_nan_mode="null"))
    except ValueError as error:
        notes.append(f"{path}: broken in {output}: {error}.")
        return None
    if not isinstance(document, dict):
        notes.append(f"{path}: broken in {output}: found no JSON object.")
        return None
    return document, len(content)


class _Room:
    """What is left of a detail's characters: below 0 for the beginnings of texts, below `floor` for nothing."""

    def __init__(self, characters: int) -> None:
        self.left = characters
        self.floor = -characters

    def evaluation(self, document: dict[str, Any], size: int) -> dict[str, Any]:
        """A stored verdict without what its judges' providers said of their usage."""
        _drop_raw(document)
        judge = document.get("judge")
        if isinstance(judge, dict):
            _drop_raw(judge)
            for each in _objects(judge.get("iterations")):
                _drop_raw(each)
        return document if self._has_room_for(size) else self._members(document)

    def run(self, document: dict[str, Any], size: int) -> dict[str, Any]:
        """A stored run: where it is long, room goes to its answer first, then to what it changed, then to its trace."""
        _drop_raw(document)
        if self._has_room_for(size):
            return document
        trace = document.pop("trace", None)
        answer = next((e for e in reversed(_objects(trace)) if e.get("type") == "final_output"), None)
        told = None if answer is None else self._value(answer)
        shown = {name: self._value(document.pop(name, None)) for name in ("error", "changes")}
        rest = self._members(document)
        if isinstance(trace, list):
            shown["trace"] = [told if event is answer else self._value(event) for event in self._events(trace)]
        return {**rest, **shown}

    def _has_room_for(self, size: int) -> bool:
        """Whether a document of so many bytes fits as it is: then nothing in it has to be looked at."""
        if size > TEXT or size > self.left:
            return False
        self.left -= size
        return True

    def _events(self, trace: list[Any]) -> Iterator[Any]:
        """The events of a trace; of one that is too long the first and the last, and between them a mark."""
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
        return text if len(text) <= most else {"cut": text[:most], "of": len(text)}

    def _members(self, value: dict[str, Any], levels: int = _LEVELS) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, member in value.items():
            if self.left < self.floor or not levels:
                return {**shown, "cut": len(shown), "of": len(value)}
            name = key if len(key) <= LEAST else f"{key[:LEAST]}…"
            self.left -= len(name)
            shown[name] = self._value(member, levels - 1)
        return shown

    def _items(self, items: list[Any], levels: int) -> list[Any]:
        shown: list[Any] = []
        for item in items:
            if self.left < self.floor or not levels:
                return [*shown, {"cut": len(shown), "of": len(items)}]
            shown.append(self._value(item, levels - 1))
        return shown


def _objects(values: Any) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _drop_raw(document: dict[str, Any]) -> None:
    """Leaves out what a provider said of the usage: the sums are shown."""
    for name in _USAGES:
        if isinstance(usage := document.get(name), dict):
            usage.pop("raw", None)
