"""Task files of MCP-Bench (seed 004): which JSON files they are, and the tasks in them.

Shapes: `{"server_tasks": [group, ...]}`, where a group has `tasks` or one `task`; `{"tasks": [...]}`;
`{"combinations": [{"generated_tasks": [...]}]}`; a list of tasks or of groups. A task has what its group says of
servers and combination, unless it says so itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, model_validator

from pytest_agentbench.config import Document, Loc, Scope, ServerName, read_bytes, validate
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Record, Tags, Text
from pytest_agentbench.sources.json_items import first_element, first_keys
from pytest_agentbench.sources.json_text import (
    NoJSONValueError,
    constant,
    elements,
    expect_end,
    explain,
    locate,
    pairs,
    place,
    scan,
    skip,
)
from pytest_agentbench.sources.standard import kind

_LARGEST = 256 * 2**20
_LISTS = ("server_tasks", "combinations", "tasks", "generated_tasks")
_SHARED = ("server_name", "servers", "combination_name", "combination_type")
_OF_TASKS = ("task_id", "task_description", "fuzzy_description")
_MOST_LEVELS = 16
"""How deep lists and groups may nest: MCP-Bench has four levels."""
_TEXTS = re.compile(r'"(?:task_description|fuzzy_description)"\s*:')


def _as_text(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, indent=2) if isinstance(value, dict | list) else value


def _some(servers: tuple[str, ...]) -> tuple[str, ...]:
    if not servers:
        raise ValueError("found none, expected at least one server")
    return servers


class TaskEntry(Record):
    """A task as its file has it, with what its group says. Other fields are its metadata."""

    model_config = ConfigDict(frozen=True, extra="allow")

    task_id: Text
    servers: Annotated[tuple[ServerName, ...], AfterValidator(_some)]
    server_name: str | None = None
    task_description: str | None = None
    fuzzy_description: str | None = None
    dependency_analysis: Annotated[str | None, BeforeValidator(_as_text)] = None
    dependencies: dict[str, tuple[str, ...]] | None = None
    distraction_servers: tuple[ServerName, ...] = ()
    combination_name: str | None = None
    combination_type: str | None = None
    tags: Tags = ()

    @model_validator(mode="before")
    @classmethod
    def _named_servers(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Without `servers` they are those of `server_name`, in which MCP-Bench joins several by `+`."""
        name = given.get("server_name")
        if "servers" in given or not isinstance(name, str):
            return given
        parts = [part.strip() for part in name.split("+")]
        return {**given, "servers": parts if all(parts) else [name]}

    @model_validator(mode="after")
    def _has_a_text(self) -> Self:
        if not any(text and text.strip() for text in (self.task_description, self.fuzzy_description)):
            raise ValueError("found neither task_description nor fuzzy_description, expected at least one of the texts")
        return self


class FoundTask(NamedTuple):
    """A task of a file; `line` is 1-based, `raw` its JSON with what its groups say."""

    line: int
    entry: TaskEntry
    raw: bytes


class BadTask(NamedTuple):
    """What stands where a task should; `message` has a line `file:line:column: ...` for each problem."""

    line: int
    message: str


def shows_tasks(head: str) -> bool:
    """Whether the head of a JSON file, which may be cut off, is that of a task file."""
    has_texts = _TEXTS.search(head) is not None
    if not has_texts and '"server_tasks"' not in head:
        return False  # said quickly: a folder may hold many JSON files of other kinds
    keys = first_keys(head)
    if keys.get("server_tasks") == "[":
        return True
    keys = keys or first_element(head) or {}
    return has_texts and ("task_id" in keys or _has_tasks(keys))


def read_tasks(path: Path) -> Iterator[FoundTask | BadTask]:
    """Every task of the file, in order. Raises ConfigError where it cannot be read or is no JSON."""
    try:
        text = read_bytes(path, _LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}:1:1: {explain(error)[1]}") from error
    try:
        start = skip(text, 0)
        expect_end(text, scan(text, start)[1])
    except (ValueError, RecursionError) as error:
        offset, reason = explain(error)
        line, column = place(text, constant(text, 0) if isinstance(error, NoJSONValueError) else offset)
        raise ConfigError(f"{path}:{line}:{column}: {reason}") from error
    return _Reader(path, text).read(start)


class _Reader:
    """One pass over the text of a file. Lines are counted as it goes, as the text may be long."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self._seen, self._line = 0, 1
        self._firsts: dict[str, int] = {}

    def read(self, start: int) -> Iterator[FoundTask | BadTask]:
        """Every task below the value that begins at `start`."""
        for at, shared in _walk(self.text, start, {}):
            self._line += self.text.count("\n", self._seen, at)
            self._seen = at
            try:
                yield self._task(scan(self.text, at)[0], shared)
            except ConfigError as error:
                yield BadTask(self._line, str(error))

    def _task(self, own: Any, shared: dict[str, Any]) -> FoundTask:
        """The value as a task. Raises ConfigError with all that is wrong with it."""
        if not isinstance(own, dict):
            raise self._problem(
                (), f"found {kind(own)}, expected a task (an object with a task_id) or a group of tasks"
            )
        given = _joined(shared, own)
        if not own.keys().isdisjoint(_SHARED) and own.keys().isdisjoint(_OF_TASKS):
            raise self._problem((), "found servers without tasks, expected a list of them: tasks: [...]")
        try:
            raw = json.dumps(given, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise self._problem((), "found half of a surrogate pair (\\ud800-\\udfff), which is no text") from error
        entry = validate(Document(self.path, b"", given, place=self._place), TaskEntry, Scope(str(self.path.parent)))
        if entry.task_id in self._firsts:
            reason = f"found {entry.task_id[:80]!r} again, first on line {self._firsts[entry.task_id]}"
            raise self._problem(("task_id",), f"{reason}; give each task its own id")
        self._firsts[entry.task_id] = self._line
        return FoundTask(self._line, entry, raw)

    def _problem(self, loc: Loc, message: str) -> ConfigError:
        document = Document(self.path, b"", None, place=self._place)
        return document.error([document.problem(loc, message)])

    def _place(self, loc: Loc) -> tuple[int, int]:
        """Line and column of a value of the task that is being read; what its group says is told at its beginning."""
        offset = locate(self.text, self._seen, loc)
        line = self._line + self.text.count("\n", self._seen, offset)
        return line, offset - self.text.rfind("\n", 0, offset)


def _walk(text: str, at: int, shared: dict[str, Any], level: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Where each task of the value at `at` begins, and what the groups around it say of all their tasks.

    What nests too deeply is given as if it were a task.
    """
    if text[at] == "[" and level < _MOST_LEVELS:
        for start, _, _ in elements(text, at):
            yield from _walk(text, start, shared, level + 1)
        return
    starts = dict(pairs(text, at)) if text[at] == "{" and level < _MOST_LEVELS else {}
    if "task_id" in starts or not _has_tasks({key: text[start] for key, start in starts.items()}):
        yield at, shared
        return
    said = {name: scan(text, starts[name])[0] for name in (*_SHARED, "name") if name in starts}
    if "generated_tasks" in starts:
        said.setdefault("combination_name", said.get("name"))
    said.pop("name", None)
    for name in (*_LISTS, "task"):
        if text[starts.get(name, at)] == ("{" if name == "task" else "[") and name in starts:
            yield from _walk(text, starts[name], _joined(shared, said), level + 1)


def _joined(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What is said of a task: its own word wins, and its own `server_name` over its group's `servers` too."""
    if "server_name" in own:
        shared = {name: value for name, value in shared.items() if name != "servers"}
    return {**shared, **own}


def _has_tasks(keys: dict[str, str]) -> bool:
    """Whether an object is a group: told by its keys, each with the character that its value begins with."""
    return keys.get("task") == "{" or any(keys.get(name) == "[" for name in _LISTS)
