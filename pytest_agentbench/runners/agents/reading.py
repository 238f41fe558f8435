"""Read what an agent leaves: its answer, an error, its session, and the tokens that it counted itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_agentbench.config.agent_file import Reading, Source, UsageReading
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import shorten_text

_MOST_VALUES = 10_000
"""How many JSON values of one output are looked at, from its end: an agent may print any number."""

FIELDS = ("input", "cached", "output", "reasoning")
"""What is told of tokens."""


@dataclass(frozen=True, slots=True)
class Left:
    """All that a program left in a turn. `files` are those that readings name, None where one is not there."""

    stdout: str
    stderr: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold what an agent said in a turn: None where it is not there. `error` is why it failed, as it says itself."""

    text: str | None
    error: str | None = None
    session: str | None = None


def make_answer(returned: object, reader: str) -> Answer:
    """Return what an adapter's own reader returned: the answer's text, or a mapping of `Answer`'s fields.

    Raises ConfigError for anything else; `reader` is its file.
    """
    if returned is None or isinstance(returned, str):
        return Answer(returned)
    known = isinstance(returned, Mapping) and returned.keys() <= {"text", "error", "session"}
    if isinstance(returned, Mapping) and known and all(isinstance(each, str | None) for each in returned.values()):
        return Answer(returned.get("text"), returned.get("error"), returned.get("session"))
    raise ConfigError(
        f"{reader}: read() returned {shorten_text(repr(returned), 80)}, expected a text, None, or a mapping of text, "
        "error and session to texts"
    )


def read_answer(answer: Reading, error: Reading | None, session: Reading | None, left: Left) -> Answer:
    """Return what the program said, by where an adapter says that it stands."""
    source = answer.from_ or "stdout"
    text, said = None, None
    if answer.path is None:
        text = left.stdout if source == "stdout" else left.files.get(answer.file or "")
    else:
        for found in _matching(answer, source, left):
            text = next((_as_text(value) for value in look_up(found, answer.path)), None)
            if answer.error_path is not None:
                told = next((value for value in look_up(found, answer.error_path) if value), None)
                said = text if told is True else _as_text(told)
            if text is not None or said is not None:
                break
    if error is not None and said is None:
        said = next((_as_text(value) for value in _read(error, source, left) if value), None)
    name = None if session is None else next((_as_text(value) for value in _read(session, source, left)), None)
    return Answer(None if text is None else text.strip(), said, name)


def read_usage(reading: UsageReading, source: Source, left: Left) -> dict[str, int]:
    """Return the tokens that the agent tells, by FIELDS; nothing where it tells none."""
    found: dict[str, int] = {}
    for each in _matching(reading, source, left):
        for counted in look_up(each, reading.path or ""):
            for name in FIELDS:
                paths = getattr(reading, name)
                for path in () if paths is None else paths.split("+"):
                    values = [value for value in look_up(counted, path.strip()) if type(value) is int]
                    found[name] = found.get(name, 0) + sum(values)
        if reading.of != "step" and found:
            break
    return found


def look_up(value: Any, path: str) -> Iterator[Any]:
    """Yield what stands at the path, names and indexes with dots between: nothing, one value, or several by `*`."""
    name, _, below = path.partition(".")
    if not name:
        yield value
    elif name == "*":
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from look_up(item, below)
    elif isinstance(value, dict) and name in value:
        yield from look_up(value[name], below)
    elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        yield from look_up(value[int(name)], below)


def _read(reading: Reading, source: Source, left: Left) -> Iterator[Any]:
    for found in _matching(reading, source, left):
        yield from (value for value in look_up(found, reading.path or "") if value is not None)


def _matching(reading: Reading, source: Source, left: Left) -> Iterator[Any]:
    """Yield the objects that a reading is about, the last one first."""
    for found in _values(reading, reading.from_ or source, left):
        if all(wanted in look_up(found, path) for path, wanted in reading.where.items()):
            yield found


def _values(reading: Reading, source: Source, left: Left) -> Iterator[Any]:
    if source == "stdout_jsonl":
        yield from _read_lines(left.stdout)
        return
    text = {"stderr_json": left.stderr, "file": left.files.get(reading.file or "") or ""}.get(source, left.stdout)
    value = _read_value(text)
    # A list is taken as its elements: some agents print one of all their events
    yield from (reversed(value) if isinstance(value, list) else [] if value is None else [value])


def _read_lines(text: str) -> Iterator[Any]:
    for number, line in enumerate(reversed(text.splitlines())):
        if number == _MOST_VALUES:
            return
        if line.startswith("{") and (value := _parse(line)) is not None:
            yield value


def _read_value(text: str) -> Any:
    """Return the JSON value that is the whole text, else the last one that begins a line of it; None for none."""
    text = f"\n{text.strip()}"
    if text.startswith(("\n{", "\n[")) and (whole := _parse(text)) is not None:
        return whole
    end = len(text)
    for _ in range(_MOST_VALUES):
        # From the end: logs may stand above it
        begin = max(text.rfind("\n{", 0, end), text.rfind("\n[", 0, end))
        if begin < 0:
            return None
        # Up to the next one only: what is printed behind a value is no part of it
        if (value := _parse_first(text[begin + 1 : end])) is not None:
            return value
        end = begin
    return None


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _parse_first(text: str) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        return str(value["message"])
    return json.dumps(value, ensure_ascii=False)
