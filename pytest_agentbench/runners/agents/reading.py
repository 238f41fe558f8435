"""Read an agent's output: its answer, error, session, and its own token counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_agentbench.config.agent_file import Reading, Source, UsageReading
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import shorten_text

_MOST_VALUES = 10_000
"""Maximum JSON values of one output that are read, from its end: an agent may print any number."""

FIELDS = ("input", "cached", "output", "reasoning")
"""Kinds of tokens that readings count."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """The output of a program in a turn. `files` are the files that readings name, None for a missing file. `reply` is
    the model's last text, None if it gave none.
    """

    stdout: str
    stderr: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)
    reply: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's answer in a turn. Parts that were not found are None. `error` is the agent's own reason for a
    failure.
    """

    text: str | None
    error: str | None = None
    session: str | None = None


def make_answer(returned: object, reader: str) -> Answer:
    """Convert the result of an adapter's own reader: the answer's text, or a mapping of `Answer`'s fields.

    Raises ConfigError for anything else. `reader` is the reader's file.
    """
    if returned is None or isinstance(returned, str):
        return Answer(returned)
    if isinstance(returned, Mapping) and returned.keys() <= {"text", "error", "session"}:
        fields = dict(returned)
        if all(isinstance(value, str | None) for value in fields.values()):
            return Answer(fields.get("text"), fields.get("error"), fields.get("session"))
    raise ConfigError(
        f"{reader}: read() returned {shorten_text(repr(returned), 80)}, expected a text, None, or a mapping of text, "
        "error and session to texts"
    )


def read_answer(answer: Reading, error: Reading | None, session: Reading | None, output: ProgramOutput) -> Answer:
    """Return the program's answer, as the adapter's readings locate it."""
    source = answer.from_ or "stdout"
    text, problem, name = None, None, None
    if answer.path is None:
        texts = {"stdout": output.stdout, "reply": output.reply}
        text = texts[source] if source in texts else output.files.get(answer.file or "")
    else:
        for item in _matching(answer, source, output):
            text = next((_as_text(value) for value in look_up(item, answer.path)), None)
            if answer.error_path is not None:
                value = next((value for value in look_up(item, answer.error_path) if value), None)
                # A flag marks the text itself as the error
                problem = text if value is True else _as_text(value)
            if text is not None or problem is not None:
                break
    if error is not None and problem is None:
        problem = next((_as_text(value) for value in _read(error, source, output) if value), None)
    if session is not None:
        name = next((_as_text(value) for value in _read(session, source, output)), None)
    if text is not None:
        text = text.strip()
    return Answer(text, problem, name)


def read_usage(reading: UsageReading, source: Source, output: ProgramOutput) -> dict[str, int]:
    """Return the agent's own token counts by FIELDS, or {} if there are none."""
    counts: dict[str, int] = {}
    for item in _matching(reading, source, output):
        for usage in look_up(item, reading.path or ""):
            for name in FIELDS:
                paths = getattr(reading, name)
                for path in () if paths is None else paths.split("+"):
                    values = [value for value in look_up(usage, path.strip()) if type(value) is int]
                    counts[name] = counts.get(name, 0) + sum(values)
        # Only steps are added up. Otherwise the last report, which comes first here, is the whole
        if reading.of != "step" and counts:
            break
    return counts


def look_up(value: Any, path: str) -> Iterator[Any]:
    """Yield the values at a dotted path of names and indexes: none, one, or several with `*`."""
    name, _, below = path.partition(".")
    if not name:
        yield value
    elif name == "*":
        if isinstance(value, dict):
            value = [*value.values()]
        if isinstance(value, list):
            for item in value:
                yield from look_up(item, below)
    elif isinstance(value, dict) and name in value:
        yield from look_up(value[name], below)
    elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        yield from look_up(value[int(name)], below)


def _read(reading: Reading, source: Source, output: ProgramOutput) -> Iterator[Any]:
    for item in _matching(reading, source, output):
        yield from (value for value in look_up(item, reading.path or "") if value is not None)


def _matching(reading: Reading, source: Source, output: ProgramOutput) -> Iterator[Any]:
    """Yield the JSON values of the source that match the reading's `where`, the last one first."""
    for value in _values(reading, reading.from_ or source, output):
        if all(expected in look_up(value, path) for path, expected in reading.where.items()):
            yield value


def _values(reading: Reading, source: Source, output: ProgramOutput) -> Iterator[Any]:
    if source == "stdout_jsonl":
        yield from _read_lines(output.stdout)
        return
    texts = {
        "stderr_json": output.stderr,
        "file": output.files.get(reading.file or "") or "",
        "reply": output.reply or "",
    }
    text = texts.get(source, output.stdout)
    value = _read_value(text)
    # Some agents print all their events as one list, so its elements count, the last one first as for lines
    if isinstance(value, list):
        yield from reversed(value)
    elif value is not None:
        yield value


def _read_lines(text: str) -> Iterator[Any]:
    for number, line in enumerate(reversed(text.splitlines())):
        if number == _MOST_VALUES:
            return
        if line.startswith("{") and (value := _parse(line)) is not None:
            yield value


def _read_value(text: str) -> Any:
    """Return the whole text as JSON, else the last JSON value that begins a line, else None."""
    text = f"\n{text.strip()}"
    if text.startswith(("\n{", "\n[")) and (whole := _parse(text)) is not None:
        return whole
    end = len(text)
    for _ in range(_MOST_VALUES):
        # From the end, because logs may precede the value
        begin = max(text.rfind("\n{", 0, end), text.rfind("\n[", 0, end))
        if begin < 0:
            return None
        # Only up to the next value: text after a value does not belong to it
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
