"""What the models of all configuration files share: strict types, and errors that know their place."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import InitErrorDetails

from pytest_agentbench.config.documents import Loc
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import Record

_RUNNERS, _CHECKS = partial(find_extension, "runner"), partial(find_extension, "check")


@dataclass(frozen=True)
class Known:
    """The names that are registered in this session. None: not verified. `find_runner` and `find_check`
    give a runner and a kind of check by name.
    """

    runners: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    checks: frozenset[str] | None = None
    metrics: frozenset[str] | None = None
    find_runner: Callable[[str], Any] = _RUNNERS
    find_check: Callable[[str], Any] = _CHECKS

    def runner_says(self, name: str, what: str) -> Any:
        """Return what a runner says of itself (`own_tools`, `has_turns`, ...); None where it says nothing of it."""
        return getattr(self.find_runner(name), what, None)


UNVERIFIED = Known()


@dataclass(frozen=True)
class Guest:
    """A folder of somebody else's. `ended` is why the user's trust in it holds no longer; `unnamed` means that it may
    be the user's own, but nobody said so.
    """

    folder: Path
    ended: str | None = None
    unnamed: bool = False

    @property
    def plea(self) -> str:
        """What a user can do for it."""
        was = f"its grant ended: {self.ended}; " if self.ended else ""
        name = "name your own config root by agentbench_configs, or " if self.unnamed else ""
        return f"{was}{name}read what lies in {self.folder} and run: agentbench trust {shlex.quote(str(self.folder))}"


@dataclass(frozen=True)
class Scope:
    """What validation needs to know beside the file's text.

    `root`: the folder, resolved, to which its paths may lead beside its own; None for anywhere. `guest`: of whom the
    file is, who may name no program; None for the user.
    """

    folder: str
    root: str | None = None
    known: Known = UNVERIFIED
    guest: Guest | None = None

    def refuse_program(self, what: str) -> None:
        """Raise ValueError where a guest's file names `what`, which would run."""
        if self.guest is not None:
            raise ValueError(f"found {what} in a folder that is not trusted, expected none; {self.guest.plea}")


class Problems(ValueError):
    """Several problems of one value, each with its own way below it."""

    def __init__(self, found: Iterable[tuple[Loc, str]]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(message for _, message in self.found))


def complain(found: Iterable[tuple[Loc, str]]) -> None:
    """Raise Problems if there is one."""
    problems = tuple(found)
    if problems:
        raise Problems(problems)


def suggest(name: str, names: Collection[str]) -> str:
    """`; did you mean 'x'?`, or else what there is."""
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = sorted(names)
    return f"; there is {', '.join(shown[:20])}{', ...' if len(shown) > 20 else ''}" if shown else "; there are none"


def together(problems: Callable[[Any, ValidationInfo], Iterable[tuple[Loc, str]]]) -> WrapValidator:
    """For a list: `problems` of its elements together, found among the sound ones also where others are wrong."""

    def validated(given: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            elements = handler(given)
        except ValidationError as error:
            wrong = {item["loc"][0] for item in error.errors(include_url=False) if item["loc"]}
            if not wrong:  # it is no list
                raise
            sound: dict[int | str, int] = dict(enumerate(i for i in range(len(given)) if i not in wrong))
            found = problems(handler([given[index] for index in sound.values()]), info)
            raise _joined(error, given, Problems(((sound[at], *way), text) for (at, *way), text in found)) from None
        complain(problems(elements, info))
        return elements

    return WrapValidator(validated)


def error_lines(error: ValidationError, below: Loc = ()) -> list[InitErrorDetails]:
    """Return the problems of an error, for another error that has more of them, each at its place `below`."""
    return [
        InitErrorDetails(type=item["type"], loc=(*below, *item["loc"]), input=item["input"], ctx=item.get("ctx", {}))
        for item in error.errors(include_url=False)
    ]


def _joined(error: ValidationError, given: Any, more: Problems) -> ValidationError:
    lines = error_lines(error)
    if more.found:
        lines.append(InitErrorDetails(type="value_error", input=given, ctx={"error": more}))
    return ValidationError.from_exception_data(error.title, lines)


def unique(name: str) -> WrapValidator:
    """For a list: no two elements have the same `name`."""
    return together(lambda items, _: duplicates(items, name))


def duplicates(items: Iterable[Any], name: str) -> list[tuple[Loc, str]]:
    """A problem for each item whose attribute `name` came before."""
    seen: set[Hashable] = set()
    found: list[tuple[Loc, str]] = []
    for index, item in enumerate(items):
        value = getattr(item, name)
        if value in seen:
            found.append(((index, name), f"Duplicate {name} {value!r}; each must be unique"))
        seen.add(value)
    return found


def unregistered(names: Iterable[tuple[Loc, str]], known: Collection[str] | None, what: str) -> list[tuple[Loc, str]]:
    """A problem for each name that is not registered."""
    if known is None:
        return []
    return [(loc, f"unknown {what} {name!r}{suggest(name, known)}") for loc, name in names if name not in known]


def known_of(info: ValidationInfo) -> Known:
    """Return the names that the file is validated against."""
    scope = scope_of(info)
    return UNVERIFIED if scope is None else scope.known


def scope_of(info: ValidationInfo) -> Scope | None:
    """The scope that `load` validates in, None where a model is made in Python."""
    return info.context if isinstance(info.context, Scope) else None


def resolve_path(text: str, scope: Scope) -> str:
    """The absolute path that a file's text names, symlinks resolved.

    :raises ValueError: it leaves the file's folder and the scope's root, or names something hidden there.
    """
    if "\0" in text:
        raise ValueError("found a NUL character, expected a path")
    real = os.path.realpath(os.path.join(scope.folder, os.path.expanduser(text)))
    if scope.root is None or is_inside(real, own := os.path.realpath(scope.folder)):
        return real
    if not is_inside(real, scope.root):
        places = own if is_inside(scope.root, own) else f"{own} and {scope.root}"
        raise ValueError(f"found {text!r}, which leaves {places}; move the file there{_or_allow(scope)}")
    if any(part.startswith(".") for part in os.path.relpath(real, scope.root).split(os.sep)):
        raise ValueError(f"found {text!r}, which is hidden: expected a file of the case's folder{_or_allow(scope)}")
    return real


def _or_allow(scope: Scope) -> str:
    if scope.guest is not None:
        return f", or {scope.guest.plea}"
    return ", or set allow_outside_paths: true in the run profile"


YAML_SUFFIXES = (".yaml", ".yml")


def is_path(name: str) -> bool:
    """Return whether what names a configuration file is its path, and no id."""
    return name.endswith(YAML_SUFFIXES) or "/" in name or os.sep in name


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is the folder's or that of something below it; both are resolved."""
    return (path + os.sep).startswith(folder.rstrip(os.sep) + os.sep)


def resolve_file(text: str, scope: Scope) -> Path:
    """Like resolve_path, and it is a file that exists.

    :raises ValueError: it leaves the scope's root, or there is no such file.
    """
    return _resolve_existing(text, scope, "file", os.path.isfile)


def resolve_folder(text: str, scope: Scope) -> Path:
    """Like resolve_path, and it is a folder that exists.

    :raises ValueError: it leaves the scope's root, or there is no such folder.
    """
    return _resolve_existing(text, scope, "folder", os.path.isdir)


def _resolve_existing(text: str, scope: Scope, kind: str, exists: Callable[[str], bool]) -> Path:
    real = resolve_path(text, scope)
    if not exists(real):
        raise ValueError(f"found {text!r}, expected an existing {kind}; there is no {kind} {real}")
    return Path(real)


def _existing_folder(text: str, info: ValidationInfo) -> str:
    scope = scope_of(info)
    if scope is not None:
        resolve_folder(text, scope)
    return text


def _existing(text: str, info: ValidationInfo) -> str:
    scope = scope_of(info)
    if scope is not None:
        resolve_file(text, scope)
    return text


def _version_1(value: Any) -> Any:
    if type(value) is not int or value != 1:
        raise ValueError(f"found {value!r}, expected the whole number 1")
    return value


def _pinned_temperature(settings: dict[str, Any]) -> dict[str, Any]:
    complain(temperature_problems(settings))
    return settings


def temperature_problems(settings: Mapping[str, Any]) -> list[tuple[Loc, str]]:
    """Request parameters pass through as they are, but for a temperature that no endpoint takes."""
    value = settings.get("temperature")
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2):
        return []
    return [(("temperature",), f"found {value!r}, expected a number from 0 to 2")]


SchemaVersion = Annotated[int, BeforeValidator(_version_1), WithJsonSchema({"const": 1, "type": "integer"})]
LocalFolder = Annotated[str, AfterValidator(_existing_folder)]
"""A path relative to the file that names it; `~` expands; the folder exists."""
LocalFile = Annotated[str, AfterValidator(_existing)]
"""A path relative to the file that names it; `~` expands; the file exists."""
RequestParameters = Annotated[dict[str, Any], AfterValidator(_pinned_temperature)]


@dataclass(frozen=True, eq=False, slots=True)
class Origin:
    """The root that a file was read by, and the file; None: the root has no such file. `is_users`: it is the user's own
    word, and no guest's.
    """

    root: Any  # a ConfigRoot, which loads these files: naming it here would be a circle
    path: Path | None
    is_users: bool

    def __eq__(self, other: object) -> bool:
        """Where something was read is no part of what it says: pydantic compares private attributes too."""
        return True

    __hash__ = object.__hash__


class Written(Record):
    """What a file says. Who wrote it decides what its words are worth; nobody knows that of what is made in Python."""

    _origin: Origin | None = PrivateAttr(default=None)

    @property
    def origin(self) -> Origin | None:
        """Where a root read it."""
        return self._origin

    def read_by(self, origin: Origin) -> Self:
        """Note where it, and each model that it declares, comes from."""
        self._origin = origin
        for part in getattr(self, "models", ()):
            part.read_by(origin)
        return self


class ConfigFile(Written):
    """What every configuration file has."""

    schema_version: SchemaVersion
    """Always 1."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything you like; not used by the framework."""
