"""Task files of MCP-Bench (seed 004): detection of their JSON files, and the cases made from their tasks.

Shapes: `{"server_tasks": [group, ...]}`, where a group has `tasks` or one `task`; `{"tasks": [...]}`;
`{"combinations": [{"generated_tasks": [...]}]}`; a list of tasks or of groups. A task inherits its group's
servers and combination, unless it has its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, model_validator

from pytest_agentbench.bounded.json_files import (
    NoJSONValueError,
    constant,
    expect_end,
    explain_error,
    first_element,
    first_keys,
    list_elements,
    list_pairs,
    locate_value,
    parse_value,
    place,
    scan_value,
    skip_blanks,
)
from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import Document, Loc, read_bytes
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import ServerName
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.records import MCP_TASK, TASK_TEXT, McpTask
from pytest_agentbench.records.base import Record, Tags, Text
from pytest_agentbench.records.case import Case, McpServer, Message, RunnerSpec, legal_id
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    OpenedSource,
    SourceCase,
    SourceRequest,
    StoredAnswers,
    limit_bad,
)
from pytest_agentbench.sources.dataset import dataset_name
from pytest_agentbench.sources.items import describe_kind
from pytest_agentbench.sources.rows import short_title
from pytest_agentbench.terminal_text import visible

_LARGEST = 256 * 2**20
_LISTS = ("server_tasks", "combinations", "tasks", "generated_tasks")
_SHARED = ("server_name", "servers", "combination_name", "combination_type")
_OF_TASKS = ("task_id", "task_description", "fuzzy_description")
_MOST_LEVELS = 16
"""Maximum levels of lists and groups: MCP-Bench has four."""
_TEXTS = re.compile(r'"(?:task_description|fuzzy_description)"\s*:')


def _as_text(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, indent=2)
    return value


def _require_server(servers: tuple[str, ...]) -> tuple[str, ...]:
    if not servers:
        raise ValueError("found none, expected at least one server")
    return servers


class TaskEntry(Record):
    """A task of a file, with the fields of its group. Other fields are its metadata."""

    model_config = ConfigDict(frozen=True, extra="allow")

    task_id: Text
    servers: Annotated[tuple[ServerName, ...], AfterValidator(_require_server)]
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
    def _named_servers(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Fill `servers` from `server_name` if it is missing: MCP-Bench joins several by `+`."""
        name = fields.get("server_name")
        if "servers" in fields or not isinstance(name, str):
            return fields
        # A name may itself contain a plus, such as "C++": then a part is empty.
        parts = [part.strip() for part in name.split("+")]
        return {**fields, "servers": parts if all(parts) else [name]}

    @model_validator(mode="after")
    def _has_a_text(self) -> Self:
        if not any(text and text.strip() for text in (self.task_description, self.fuzzy_description)):
            raise ValueError("found neither task_description nor fuzzy_description, expected at least one of the texts")
        return self


class FoundTask(NamedTuple):
    """A task of a file; `line` is 1-based, `raw` its JSON with the fields of its groups."""

    line: int
    entry: TaskEntry
    raw: bytes


def shows_tasks(head: str) -> bool:
    """Return whether the head of a JSON file, which may be cut off, is that of a task file."""
    has_texts = _TEXTS.search(head) is not None
    if not has_texts and '"server_tasks"' not in head:
        return False  # fast: a folder may contain many other JSON files
    keys = first_keys(head)
    if keys.get("server_tasks") == "[":
        return True
    keys = keys or first_element(head) or {}
    return has_texts and ("task_id" in keys or _has_tasks(keys))


def read_tasks(path: Path) -> Iterator[FoundTask | BadRow]:
    """Yield every task of the file, in order. Raises ConfigError if it cannot be read or is not JSON."""
    try:
        text = read_bytes(path, _LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}:1:1: {explain_error(error)[1]}") from error
    try:
        start = skip_blanks(text, 0)
        # The whole text is scanned before the first task is yielded: a broken end is an error, not fewer tasks.
        expect_end(text, scan_value(text, start)[1])
    except (ValueError, RecursionError) as error:
        offset, reason = explain_error(error)
        line, column = place(text, constant(text, 0) if isinstance(error, NoJSONValueError) else offset)
        raise ConfigError(f"{path}:{line}:{column}: {reason}") from error
    return _Reader(path, text).read(start)


class _Reader:
    """One pass over the text of a file. It counts lines as it proceeds, because the text may be long."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        # `_line` is the line of the offset `_seen`, the beginning of the current task. Both only grow.
        self._seen, self._line = 0, 1
        self._firsts: dict[str, int] = {}

    def read(self, start: int) -> Iterator[FoundTask | BadRow]:
        """Yield every task below the value that begins at `start`."""
        for at, shared in _walk(self.text, start, {}):
            self._line += self.text.count("\n", self._seen, at)
            self._seen = at
            try:
                yield self._task(scan_value(self.text, at)[0], shared)
            except ConfigError as error:
                yield BadRow(self._line, str(error), self.path)

    def _task(self, own: Any, shared: dict[str, Any]) -> FoundTask:
        """Return the value as a task. Raises ConfigError with all problems of the value."""
        if not isinstance(own, dict):
            raise self._problem(
                (), f"found {describe_kind(own)}, expected a task (an object with a task_id) or a group of tasks"
            )
        fields = _join_fields(shared, own)
        if not own.keys().isdisjoint(_SHARED) and own.keys().isdisjoint(_OF_TASKS):
            raise self._problem((), "found servers without tasks, expected a list of them: tasks: [...]")
        try:
            # `encode` fails for half of a surrogate pair, which JSON may contain, but no file and no request.
            raw = json.dumps(fields, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise self._problem((), "found half of a surrogate pair (\\ud800-\\udfff), which is not text") from error
        entry = validate(Document(self.path, b"", fields, place=self._place), TaskEntry, Scope(str(self.path.parent)))
        if entry.task_id in self._firsts:
            reason = f"found {entry.task_id[:80]!r} again, first on line {self._firsts[entry.task_id]}"
            raise self._problem(("task_id",), f"{reason}; give each task its own id")
        self._firsts[entry.task_id] = self._line
        return FoundTask(self._line, entry, raw)

    def _problem(self, loc: Loc, message: str) -> ConfigError:
        document = Document(self.path, b"", None, place=self._place)
        return document.error([document.problem(loc, message)])

    def _place(self, loc: Loc) -> tuple[int, int]:
        """Return line and column of a value of the current task.

        A value inherited from a group has the place of the task's beginning.
        """
        offset = locate_value(self.text, self._seen, loc)
        line = self._line + self.text.count("\n", self._seen, offset)
        return line, offset - self.text.rfind("\n", 0, offset)


def _walk(text: str, at: int, shared: dict[str, Any], level: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the place where each task of the value at `at` begins, and the fields of the groups around it.

    A value that nests too deeply is yielded like a task.
    """
    if text[at] == "[" and level < _MOST_LEVELS:
        for start, _, _ in list_elements(text, at):
            yield from _walk(text, start, shared, level + 1)
        return
    starts = dict(list_pairs(text, at)) if text[at] == "{" and level < _MOST_LEVELS else {}
    if "task_id" in starts or not _has_tasks({key: text[start] for key, start in starts.items()}):
        yield at, shared
        return
    fields = {name: scan_value(text, starts[name])[0] for name in (*_SHARED, "name") if name in starts}
    if "generated_tasks" in starts:
        # `name` is the name of combinations; in other groups the field is for people.
        fields.setdefault("combination_name", fields.get("name"))
    fields.pop("name", None)
    openings = {**dict.fromkeys(_LISTS, "["), "task": "{"}
    for name, opening in openings.items():
        if name in starts and text[starts[name]] == opening:
            yield from _walk(text, starts[name], _join_fields(shared, fields), level + 1)


def _join_fields(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a task: its own fields replace the group's, and its `server_name` replaces the group's
    `servers`.
    """
    if "server_name" in own:
        shared = {name: value for name, value in shared.items() if name != "servers"}
    return {**shared, **own}


def _has_tasks(keys: dict[str, str]) -> bool:
    """Return whether an object is a group, by its keys, each with the first character of its value."""
    return keys.get("task") == "{" or any(keys.get(name) == "[" for name in _LISTS)


_MANUAL = "manual"


@dataclass(frozen=True, eq=False)
class TaskSettings:
    """Settings by which cases are made of tasks.

    `detailed` selects the detailed text, `runner` runs the tasks, files near them declare `servers`. Further servers
    are chosen when a task runs.
    """

    detailed: bool = False
    runner: str = "mcp_planner"
    servers: Mapping[str, McpServer] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, root: ConfigRoot, profile: RunProfile | None = None) -> TaskSettings:
        """Return the settings for a task file below `root`; None is the default profile. Raises ConfigError."""
        profile = profile or RunProfile.default()
        root.require_servers(path)
        return cls(
            detailed=profile.section(TASK_TEXT) == "detailed",
            runner="llm_probe" if profile.runner_defaults.get("type") == "llm_probe" else cls.runner,
            servers=root.mcp_servers(path),
        )

    def tags(self, entry: TaskEntry) -> tuple[str, ...]:
        """Return the task's own tags, servers, categories and combination type, and whether it has several servers."""
        categories = {self.servers[name].category for name in entry.servers if name in self.servers}
        names = {*entry.servers, *categories, entry.combination_type}
        number = "multi_server" if len(entry.servers) > 1 else "single_server"
        return tuple(sorted({*entry.tags, *map(_make_tag, filter(None, names)), number}))

    def case_fields(self, entry: TaskEntry) -> dict[str, Any]:
        """Return the fields of the task's case except its id and place."""
        return {
            "runner": RunnerSpec(type=self.runner),
            "messages": (Message(role="user", content=self.text(entry)),),
            # Only names: files near the task, or the run profile, declare the servers.
            "mcp_servers": dict.fromkeys(entry.servers),
            "parts": {
                MCP_TASK: McpTask(
                    servers=entry.servers,
                    distraction_servers=entry.distraction_servers,
                    fuzzy=entry.fuzzy_description,
                    detailed=entry.task_description,
                    dependency_analysis=entry.dependency_analysis,
                    dependencies=entry.dependencies,
                    combination_name=entry.combination_name,
                    combination_type=entry.combination_type,
                )
            },
            "metadata": entry.model_extra or {},
        }

    def text(self, entry: TaskEntry) -> str:
        """Return the agent's question: the text that the profile selects, or else the only text."""
        texts = [entry.fuzzy_description, entry.task_description]
        if self.detailed:
            texts.reverse()
        return next(text for text in texts if text and text.strip())


def _make_tag(name: str) -> str:
    """Return the name in a form for -k and -m. `manual` is changed, because it would exclude the task by default."""
    tag = re.sub(r"[^\w.+]+", "-", name.lower()).strip("-_.+") or "server"
    if tag == _MANUAL:
        return f"{tag}-server"
    return tag


@dataclass(frozen=True, slots=True, eq=False)
class _CaseBuilder:
    """Build a task's case when its run begins. Until then only the JSON is in memory."""

    tasks: OpenedTasks
    case_id: str
    tags: tuple[str, ...]
    line: int
    raw: bytes

    def __call__(self) -> Case:
        settings, entry = self.tasks.settings, TaskEntry.model_validate(parse_value(self.raw))
        return Case(
            case_id=self.case_id,
            title=short_title(settings.text(entry)),
            path=self.tasks.path,
            line=self.line,
            dataset=self.tasks.name,
            tags=self.tags,
            metrics=self.tasks.metrics,
            **settings.case_fields(entry),
        )


class OpenedTasks(OpenedSource):
    """A task file. Case ids are the tasks' ids; files of predictions may still answer the tasks by their order."""

    own_ids = ordered = True

    def __init__(self, path: Path, request: SourceRequest) -> None:
        super().__init__(path)
        self.name = dataset_name(path, request.root)
        self.metrics = request.metrics or ()
        self.settings = TaskSettings.of(path, request.root, request.run_profile)

    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the tasks; after 100 bad ones the rest are only counted."""
        return limit_bad(self._rows(), lambda last, more: self._bad(last.line, f"{more} more items are bad"))

    def _rows(self) -> Iterator[SourceCase | BadRow]:
        number = -1
        for number, task in enumerate(read_tasks(self.path)):
            if isinstance(task, BadRow):
                yield task
                continue
            case_id, tags = legal_id(task.entry.task_id), self.settings.tags(task.entry)
            # A file may have thousands of tasks, and most of them wait: each case is built when its run begins.
            build = _CaseBuilder(self, case_id, tags, task.line, task.raw)
            yield SourceCase(case_id, tags, self.path, task.line, build, number)
        if number < 0:
            yield self._bad(1, "found no task, expected at least one with a task_id")

    def _bad(self, line: int, reason: str) -> BadRow:
        return BadRow(line, visible(f"{self.path}:{line}:1: {reason}"), self.path)

    def explain(self, row: SourceCase, problems: Sequence[tuple[Loc, str]]) -> ConfigError:
        """Return the error, which names the task's own field for its id."""
        texts = [f"task_id: {text}" if loc == ("case_id",) else text for loc, text in problems]
        return ConfigError(f"{row.path}:{row.line}:1: {'; '.join(texts)}")


class TaskFiles(CaseSource):
    """Task files of MCP-Bench."""

    holds = "tasks for MCP servers"

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return whether the head shows tasks, or groups of them."""
        return head is not None and shows_tasks(head)

    def open(self, path: Path, request: SourceRequest) -> OpenedTasks:
        """Return the task file, whose tasks are read with its rows. Raises ConfigError for a server that is refused."""
        return OpenedTasks(path, request)


TASKS = TaskFiles()
