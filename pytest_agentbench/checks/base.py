"""Checks: their context and verdict, files by path, and JSON values."""

from __future__ import annotations

import json
import re
import stat
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from pytest_agentbench.bounded.files import FileRefusedError, read_file
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Dimension, Record
from pytest_agentbench.terminal_text import shorten_text

if TYPE_CHECKING:
    from pytest_agentbench.metrics.registry import Metric
    from pytest_agentbench.records.case import Case, Compat
    from pytest_agentbench.records.check_specs import Check
    from pytest_agentbench.records.evaluation import CheckOutcome
    from pytest_agentbench.records.run import RunArtifact
    from pytest_agentbench.workspaces.workspace import Kind, Workspace

MAX_DEPTH = 64
"""Maximum depth of a text's JSON. Readers recurse, and an agent's answer must not break a check."""

_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:json)?[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def parse_json(text: str) -> Any:
    """Parse the text as JSON, or else its last fenced block.

    Raises ValueError with the reason if neither is JSON.
    """
    try:
        return loads(text)
    except ValueError as error:
        fenced = _FENCE.findall(text)
        if not fenced:
            raise ValueError(f"not JSON: {error}") from error
    try:
        return loads(fenced[-1])
    except ValueError as error:
        raise ValueError(f"its last fenced block is not JSON: {error}") from error


def json_equal(one: Any, other: Any) -> bool:
    """Return whether JSON values are equal: 1 equals 1.0, but true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(json_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return bool(one == other)


def includes(whole: Any, part: Any) -> bool:
    """Return whether `whole` has every pair of the mapping `part`, at any depth; other values must be equal."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            key in whole and includes(whole[key], value) for key, value in part.items()
        )
    return json_equal(whole, part)


def compact(value: Any) -> str:
    """Return the value on one line, for messages."""
    return json.dumps(value, ensure_ascii=False, default=str)


def normalized(text: str) -> str:
    """Return the NFKD of the case-folded text without combining characters; white space is kept."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def loads(text: str) -> Any:
    """Return the text as JSON: no NaN, nothing that nests too deep. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    from pytest_agentbench.bounded.json_files import lies_deep

    if lies_deep(value, MAX_DEPTH):
        raise ValueError("nested too deeply")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


_MAX_EXCERPT = 400
_MAX_LINES = 8


async def _run_in_thread(call: Callable[[], Any]) -> Any:
    import asyncio  # here: a case file that names a pack's kind imports this module, wherever the file is read

    return await asyncio.to_thread(call)


class CheckContext(NamedTuple):
    """Facts that a check may use.

    `workspace` is None if the run has no workspace; `compat` is the profile's, for metrics.

    `turn` is the number of the turn that is looked at, None for the whole run.

    `in_thread` runs slow functions off the event loop that all runs share. `decide` returns the verdict of another
    declarative check, without raising.
    """

    case: Case
    artifact: RunArtifact
    workspace: Workspace | None
    metrics: Mapping[str, Metric]
    compat: Compat | None = None
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = _run_in_thread
    decide: Callable[[Any], Awaitable[Verdict]] | None = None
    turn: int | None = None


class Verdict(NamedTuple):
    """Verdict of a check. `message` is a sentence; `expected` and `actual` are short texts, never a transcript."""

    outcome: CheckOutcome
    message: str
    expected: str | None = None
    actual: str | None = None
    outputs: Mapping[str, Any] = {}


CheckFunction = Callable[[Any, CheckContext], Verdict | Awaitable[Verdict]]
"""Decides a spec in a context; may be a coroutine function. Unmet means `failed`, any other exception `error`."""


class CheckSpec(Record):
    """Base class of check kinds: its fields are validated at load, `check` decides.

    A subclass has a field `kind: Literal["name"]` and further fields. Register it by that name, in the
    `checks` of a Pack or by the hook `pytest_agentbench_checks`.
    """

    default_dimensions: ClassVar[tuple[Dimension, ...]] = ("task",)
    """Dimensions that the kind counts for, unless the case sets others."""
    beyond_answers: ClassVar[bool] = False
    """It looks at more than the final output and the status, so predictions cannot be checked by it."""

    kind: str

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return the files of the workspace that it reads, by their paths there: they are kept with the run."""
        return ()

    def check(self, context: CheckContext) -> Verdict | Awaitable[Verdict]:
        """Return the verdict. Unmet is a `failed` result, any other exception an `error`."""
        raise NotImplementedError


def typed_spec(check: Check) -> CheckSpec | None:
    """Return the check's class with its fields, None for a kind that is a function."""
    spec: object = check.declarative
    if isinstance(spec, CheckSpec):
        return spec
    return None


CheckKind = CheckFunction | type[CheckSpec]
"""Type of a registered kind of check."""


class Unmet(Exception):
    """The run lacks the object of the check, so the check failed before any comparison."""

    def __init__(self, message: str, actual: str | None = None) -> None:
        super().__init__(message)
        self.actual = actual


def verdict(passed: bool, message: str, expected: str | None = None, actual: str | None = None) -> Verdict:
    """Return `passed` or `failed`, with the texts shortened for reports."""
    return Verdict("passed" if passed else "failed", message, _short(expected), _short(actual))


def excerpt(text: str) -> str:
    """Return the last lines of a text, where agents put their answer; `…` marks the omitted part."""
    last_lines = "\n".join(text.strip()[-_MAX_EXCERPT:].splitlines()[-_MAX_LINES:])
    if len(last_lines) == len(text.strip()):
        return last_lines
    return f"…{last_lines}"


def _short(text: str | None) -> str | None:
    if text is None:
        return None
    return shorten_text(text, _MAX_EXCERPT)


# The place of a check's path: the workspace, where agents write, or else the case folder. A relative path is
# looked up in both, `/tmp/...` only in the run's private temporary folder. No path may lead outside.


class Place(NamedTuple):
    """Existing path: `name` is used in messages, `file` is set if it is in the case folder."""

    name: str
    kind: Kind
    file: Path | None = None


def find(context: CheckContext, path: str) -> Place | None:
    """Return the existing place of the path, or None.

    Raises ConfigError for a path that checks may not read, Unmet if the agent made it inaccessible.
    """
    from pytest_agentbench.workspaces.confined import PathRefusedError

    absolute = path.startswith("/")
    if ".." in path.split("/") or "\0" in path or (absolute and not path.startswith("/tmp/")):  # noqa: S108
        raise ConfigError(f"path: found {path!r}, expected one below the workspace without `..`, or below its /tmp")
    if context.workspace is not None:
        try:
            kind = context.workspace.kind(path)
        except PathRefusedError as refused:
            raise Unmet(f"{path} in the workspace: {refused}") from refused
        except PermissionError as error:
            raise Unmet(f"{path} in the workspace cannot be looked at: {error.strerror}") from error
        if kind is not None:
            return Place("the workspace", kind)
    if absolute:
        return None
    return _find_beside(context.case.path.parent, path)


def read_text(context: CheckContext, path: str) -> tuple[str, str]:
    """Return the file's text, and the file and its place for messages.

    Raises Unmet if the file does not exist or the agent made it unreadable, ValueError if it is not UTF-8 or too large.
    """
    from pytest_agentbench.workspaces.confined import PathRefusedError

    place = find(context, path)
    if place is None:
        raise Unmet(missing(context, path))
    name = f"{path} in {place.name}"
    if place.kind != "file":
        raise Unmet(f"{name} is a {place.kind}, no regular file")
    try:
        if place.file is not None:
            return _read_beside(place.file), name
        assert context.workspace is not None
        return context.workspace.read_text(path), name
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}") from error
    except PathRefusedError as refused:
        raise Unmet(f"{name}: {refused}") from refused
    except PermissionError as error:
        if place.file is not None:
            raise
        raise Unmet(f"{name} cannot be read: {error.strerror}") from error


def read_answer(path: str | None, context: CheckContext) -> tuple[str, str]:
    """Return the file's text, or the final output if `path` is None, and its name for messages. Raises like
    `read_text`.
    """
    if path is not None:
        return read_text(context, path)
    output = context.artifact.final_output
    if output is None:
        raise Unmet("there is no final output", "none")
    return output, "the final output"


def missing(context: CheckContext, path: str) -> str:
    """Return the sentence for a path that does not exist."""
    sentence, places = f"{path} does not exist", list[str]()
    if context.workspace is not None:
        places.append("the workspace")
    if not path.startswith("/"):
        places.append("the case folder")
    if places:
        sentence += f" in {' or in '.join(places)}"
    if context.workspace is None:
        sentence += " (the run made no workspace)"
    return sentence


def _find_beside(folder: Path, path: str) -> Place | None:
    top = folder.resolve()
    target = (top / path).resolve()
    if not target.is_relative_to(top):
        raise ConfigError(f"path: {path!r} leads out of the case folder, to {target}")
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    kind: Kind
    if stat.S_ISREG(mode):
        kind = "file"
    elif stat.S_ISDIR(mode):
        kind = "folder"
    else:
        kind = "other"
    return Place("the case folder", kind, target)


def _read_beside(file: Path) -> str:
    from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES

    try:
        return read_file(file, MAX_FILE_BYTES).decode()
    except FileRefusedError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
