"""Details of runs on the page beyond their rows: stored traces, verdicts and files, within bounds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from pytest_agentbench.bounded.folders import lies_below
from pytest_agentbench.reports.rows import Row
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
    if isinstance(roles := document.get("roles"), dict):
        for use in roles.values():
            if isinstance(use, dict):
                _drop_raw(use)
