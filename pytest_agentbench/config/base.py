"""The base of all configuration files' models: strict types, and one file to one model or all that is wrong with it."""

import os
import re
import shlex
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import InitErrorDetails

from pytest_agentbench.config.documents import Document, Loc, Problem, read_document
from pytest_agentbench.config.folders import is_inside
from pytest_agentbench.config.request_fields import REQUEST_FIELDS, TOOLS_PLACE
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import Record
from pytest_agentbench.terminal_text import shorten_text

_RUNNERS, _CHECKS = partial(find_extension, "runner"), partial(find_extension, "check")


class Known(NamedTuple):
    """The names registered in this session; None: unverified. `find_runner` and `find_check` return them by name."""

    runners: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    checks: frozenset[str] | None = None
    metrics: frozenset[str] | None = None
    judges: frozenset[str] | None = None
    find_runner: Callable[[str], Any] = _RUNNERS
    find_check: Callable[[str], Any] = _CHECKS

    def runner_says(self, name: str, what: str) -> Any:
        """Return an attribute of a runner (`own_tools`, `has_turns`, ...), or None if the runner has none."""
        return getattr(self.find_runner(name), what, None)


UNVERIFIED = Known()


class Guest(NamedTuple):
    """Another author's folder. `ended`: why its grant ended. `unnamed`: it may be the user's, but is not named."""

    folder: Path
    ended: str | None = None
    unnamed: bool = False

    @property
    def remedy(self) -> str:
        """Return advice how a user can trust the folder."""
        advice = f"read the files of {self.folder} and run: agentbench trust {shlex.quote(str(self.folder))}"
        if self.unnamed:
            advice = f"name your own config root as the only path or by agentbench_configs, or {advice}"
        if self.ended:
            advice = f"its grant ended: {self.ended}; {advice}"
        return advice


class Scope(NamedTuple):
    """The context in which a file is validated.

    `root`: the resolved folder to which the file's paths may lead in addition to its own folder; None for anywhere.
    `guest`: the untrusted folder that the file belongs to, which may name no program; None for the user's files.
    """

    folder: str
    root: str | None = None
    known: Known = UNVERIFIED
    guest: Guest | None = None

    def refuse_program(self, what: str) -> None:
        """Raise ValueError if the file is a guest's. `what` describes the program that the file names."""
        if self.guest is not None:
            raise ValueError(f"found {what} in a folder that is not trusted, expected none; {self.guest.remedy}")


class Problems(ValueError):
    """Several problems of one value, each with its own way below it."""

    def __init__(self, found: Iterable[tuple[Loc, str]]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(message for _, message in self.found))


def complain(found: Iterable[tuple[Loc, str]]) -> None:
    """Raise Problems if there is any."""
    problems = tuple(found)
    if problems:
        raise Problems(problems)


def suggest(name: str, names: Collection[str]) -> str:
    """Return `; did you mean 'x'?`, or a list of the names."""
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    if not names:
        return "; there are none"
    listed = sorted(names)
    if len(listed) > 20:
        listed[20:] = ["..."]
    return f"; there is {', '.join(listed)}"


def validate_together(problems: Callable[[Any, ValidationInfo], Iterable[tuple[Loc, str]]]) -> WrapValidator:
    """Validate a list also by `problems` of its elements together.

    They are found among the sound elements also where others are wrong.
    """

    def validated(given: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            elements = handler(given)
        except ValidationError as error:
            # The valid elements are validated again without the others, so that a duplicate is reported
            # together with a typo.
            wrong = {item["loc"][0] for item in error.errors(include_url=False) if item["loc"]}
            if not wrong:  # it is no list
                raise
            sound: dict[int | str, int] = dict(enumerate(i for i in range(len(given)) if i not in wrong))
            found = problems(handler([given[index] for index in sound.values()]), info)
            raise _join_errors(
                error, given, Problems(((sound[at], *way), text) for (at, *way), text in found)
            ) from None
        complain(problems(elements, info))
        return elements

    return WrapValidator(validated)


def error_lines(error: ValidationError, below: Loc = ()) -> list[InitErrorDetails]:
    """Return the problems of an error, for another error that has more of them, each at its place `below`."""
    return [
        InitErrorDetails(type=item["type"], loc=(*below, *item["loc"]), input=item["input"], ctx=item.get("ctx", {}))
        for item in error.errors(include_url=False)
    ]


def _join_errors(error: ValidationError, given: Any, more: Problems) -> ValidationError:
    lines = error_lines(error)
    if more.found:
        lines.append(InitErrorDetails(type="value_error", input=given, ctx={"error": more}))
    return ValidationError.from_exception_data(error.title, lines)


def require_unique(name: str) -> WrapValidator:
    """Validate a list whose elements must differ in `name`."""
    return validate_together(lambda items, _: find_duplicates(items, name))


def find_duplicates(items: Iterable[Any], name: str) -> list[tuple[Loc, str]]:
    """Return a problem for each item whose attribute `name` came before."""
    earlier: set[Hashable] = set()
    found: list[tuple[Loc, str]] = []
    for index, item in enumerate(items):
        value = getattr(item, name)
        if value in earlier:
            found.append(((index, name), f"Duplicate {name} {value!r}; each must be unique"))
        earlier.add(value)
    return found


def find_unregistered(
    names: Iterable[tuple[Loc, str]], known: Collection[str] | None, what: str
) -> list[tuple[Loc, str]]:
    """Return a problem for each name that is not registered."""
    if known is None:
        return []
    return [(loc, f"unknown {what} {name!r}{suggest(name, known)}") for loc, name in names if name not in known]


def known_of(info: ValidationInfo) -> Known:
    """Return the names that the file is validated against."""
    scope = scope_of(info)
    if scope is None:
        return UNVERIFIED
    return scope.known


def scope_of(info: ValidationInfo) -> Scope | None:
    """Return the scope of `load`, or None for a model that is made in Python."""
    if isinstance(info.context, Scope):
        return info.context
    return None


def resolve_path(text: str, scope: Scope) -> str:
    """Return the absolute path that a file's text names, symlinks resolved.

    :raises ValueError: it leaves the file's folder and the scope's root, or names something hidden there.
    """
    if "\0" in text:
        raise ValueError("found a NUL character, expected a path")
    # Links are resolved first: one within the folder may lead anywhere.
    real = os.path.realpath(os.path.join(scope.folder, os.path.expanduser(text)))
    # The file's own folder is always allowed, even if it is a link that leads out of the root.
    if scope.root is None or is_inside(real, own := os.path.realpath(scope.folder)):
        return real
    if not is_inside(real, scope.root):
        places = own if is_inside(scope.root, own) else f"{own} and {scope.root}"
        raise ValueError(f"found {text!r}, which leaves {places}; move the file there{_advise_allowing(scope)}")
    if any(part.startswith(".") for part in os.path.relpath(real, scope.root).split(os.sep)):
        raise ValueError(f"found {text!r}, which is hidden: expected a visible file{_advise_allowing(scope)}")
    return real


def _advise_allowing(scope: Scope) -> str:
    if scope.guest is not None:
        return f", or {scope.guest.remedy}"
    return ", or set allow_outside_paths: true in the run profile"


YAML_SUFFIXES = (".yaml", ".yml")
COMMANDS_FILE = "commands.json"
"""Declared MCP servers as seed 004 has them: commands_file.py."""
DATA_SUFFIXES = (".json", ".jsonl")


def is_path(name: str) -> bool:
    """Return whether the name of a configuration file is a path, not an id."""
    return name.endswith(YAML_SUFFIXES) or "/" in name or os.sep in name


def resolve_file(text: str, scope: Scope) -> Path:
    """Return the path like resolve_path, of a file that exists.

    :raises ValueError: it leaves the scope's root, or there is no such file.
    """
    return _resolve_existing(text, scope, "file", os.path.isfile)


def resolve_folder(text: str, scope: Scope) -> Path:
    """Return the path like resolve_path, of a folder that exists.

    :raises ValueError: it leaves the scope's root, or there is no such folder.
    """
    return _resolve_existing(text, scope, "folder", os.path.isdir)


def _resolve_existing(text: str, scope: Scope, kind: str, exists: Callable[[str], bool]) -> Path:
    real = resolve_path(text, scope)
    if not exists(real):
        raise ValueError(f"found {text!r}, expected an existing {kind}; there is no {kind} {real}")
    return Path(real)


def require_folder(text: str, info: ValidationInfo) -> str:
    """Return the text. Raises ValueError if it names no folder that the file may read."""
    scope = scope_of(info)
    if scope is not None:
        resolve_folder(text, scope)
    return text


def _require_file(text: str, info: ValidationInfo) -> str:
    scope = scope_of(info)
    if scope is not None:
        resolve_file(text, scope)
    return text


def _require_version_1(value: Any) -> Any:
    if type(value) is not int or value != 1:
        raise ValueError(f"found {value!r}, expected the whole number 1")
    return value


SchemaVersion = Annotated[int, BeforeValidator(_require_version_1), WithJsonSchema({"const": 1, "type": "integer"})]
LocalFolder = Annotated[str, AfterValidator(require_folder)]
"""A path relative to the file that names it; `~` expands; the folder exists."""
LocalFile = Annotated[str, AfterValidator(_require_file)]
"""A path relative to the file that names it; `~` expands; the file exists."""


@dataclass(frozen=True, eq=False, slots=True)
class Origin:
    """The root that read a file, and the file's path, if it exists. `is_users`: the file is no guest's."""

    root: Any  # a ConfigRoot, which loads these files: naming it here would be a circle
    path: Path | None
    is_users: bool

    def __eq__(self, other: object) -> bool:
        """Return True: the origin is no part of the content, and pydantic compares private attributes too."""
        return True

    __hash__ = object.__hash__


class Written(Record):
    """A model of a file's content, with the file's origin: limits of a guest differ from the user's."""

    _origin: Origin | None = PrivateAttr(default=None)

    @property
    def origin(self) -> Origin | None:
        """Return the root and the file of the model, None if it was made in Python."""
        return self._origin

    def read_by(self, origin: Origin) -> Self:
        """Store the origin of the model and of each model that it declares."""
        self._origin = origin
        if "models" in type(self).model_fields:  # else it may be a request field of that name
            for part in self.models:  # type: ignore[attr-defined]
                part.read_by(origin)
        return self


class ConfigFile(Written):
    """A configuration file: the fields that every one has."""

    schema_version: SchemaVersion
    """Always 1."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything you like; not used by the framework."""

    @classmethod
    def with_sections(cls) -> type[Self]:
        """Return the model with the sections that packs and plugins add to it, for schemas and suggestions."""
        return cls

    def read_named_files(self, scope: Scope) -> Self:
        """Return the model with the content of named files in place of their names, so that it does not depend on its
        folder.

        :raises ConfigError: one of them cannot be read.
        """
        return self


M = TypeVar("M", bound=BaseModel)

_SLUG = "a slug (lower-case letters, digits, '_' and '-', beginning with a letter or digit)"


def load(path: Path, kind: type[M], known: Known = UNVERIFIED) -> M:
    """Return the file as a model of `kind`. Names are verified against `known`.

    :raises ConfigError: with all problems of the file, one `file:line:column: field: ...` a line.
    """
    return load_in(path, kind, Scope(folder=str(path.parent), known=known))


def load_in(path: Path, kind: type[M], scope: Scope) -> M:
    """Return the file as a model like `load`, in a scope: with a root, the paths that it names may not leave it."""
    document = read_document(path)
    if not isinstance(document.data, dict):
        found = "nothing" if document.data is None else f"a {_kind_of(document.data)}"
        raise ConfigError(f"{path}:1:1: found {found}, expected a top-level mapping that begins with schema_version: 1")
    model = validate(document, kind, scope)
    if isinstance(model, ConfigFile):
        return model.read_named_files(scope)
    return model


def validate(document: Document, kind: type[M] | TypeAdapter[M], scope: Scope) -> M:
    """Return the document's data as `kind`.

    :raises ConfigError: with all problems of the document.
    """
    adapter = kind.validate_python if isinstance(kind, TypeAdapter) else kind.model_validate
    # Problems of parsing (a duplicate key) are reported together with the model's problems, all in one run of a
    # command.
    problems = list(document.problems)
    try:
        model = adapter(document.data, context=scope)
    except ValidationError as error:
        problems += _explain(error, document, kind)
    if problems:
        raise document.error(problems)
    return model


def _explain(error: ValidationError, document: Document, kind: type[M] | TypeAdapter[M]) -> Iterator[Problem]:
    for loc, message, at_key in explain_error(error, document.data, kind):
        yield document.problem(loc, message, at_key=at_key)


def explain_error(error: ValidationError, data: Any, kind: type[M] | TypeAdapter[M]) -> Iterator[tuple[Loc, str, bool]]:
    """Yield the problems of a file's data: location, message, and whether the problem is the key there."""
    fields = _Fields(kind)
    for item in error.errors(include_url=False):
        loc = _match_file(item["loc"], data, missing=item["type"] == "missing")
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, Problems):
            yield from ((loc + sub, message, False) for sub, message in cause.found)
        elif item["type"] == "extra_forbidden":
            yield loc, f"unknown field{_suggest_field(loc, fields, data)}", True
        elif item["type"] == "missing":
            yield loc, "missing; add it", False
        else:
            yield loc, _describe_error(item["type"], item["msg"], item["input"], cause), False


def _describe_error(kind: str, message: str, found: Any, cause: object) -> str:
    """Return `found X, expected Y` of one pydantic error."""
    if isinstance(cause, ValueError):
        return str(cause)
    if kind == "string_pattern_mismatch":
        return f"found {_shorten_value(found)}, expected {_SLUG}"
    # pydantic speaks of Python's types, people have written YAML
    expected = re.sub(r"^(Input|String|List|Tuple|Dictionary|Value) should (be |have )?", "", message)
    expected = re.sub(r" or instance of \w+$| after validation, not \d+$", "", expected)
    expected = say_expected(expected.replace("dictionary", "mapping").replace("tuple", "list"))
    advice = ""
    if expected == "a text" and isinstance(found, int | float):
        advice = "; put it in quotes"
    elif expected == "a list" and isinstance(found, str):
        advice = f"; write [{shorten_text(found, 40)}]"
    return f"found {_shorten_value(found)}, expected {expected}{advice}"


def say_expected(text: str) -> str:
    """Return pydantic's expectation in the words of YAML."""
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return text


_WORDS = {
    "a valid string": "a text",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid list": "a list",
    "a valid mapping": "a mapping",
    "less than or equal to": "at most",
    "greater than or equal to": "at least",
    "greater than": "more than",
}
"""Terms of pydantic and their counterparts."""


def _shorten_value(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()  # as YAML writes it
    text = repr(value)
    if isinstance(value, dict | list) and len(text) > 60:
        text = f"a {_kind_of(value)}"
    return shorten_text(text, 60, "...")


def _kind_of(value: Any) -> str:
    kinds: dict[type, str] = {dict: "mapping", list: "list", str: "text"}
    return kinds.get(type(value), type(value).__name__)


def _match_file(loc: Loc, data: Any, *, missing: bool) -> Loc:
    """Return the way as the file has it: pydantic's has the names of union members and of key errors too."""
    way: list[int | str] = []
    for index, part in enumerate(loc):
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            way.append(part)
        elif missing and index == len(loc) - 1:
            way.append(part)
    return tuple(way)


class _Fields:
    """The names of the fields at each place of a file, by the JSON Schema of its kind, which takes long to make."""

    def __init__(self, kind: type[M] | TypeAdapter[M]) -> None:
        self._kind = kind
        # Elements of a list have the same fields, so the names below any index are looked up once.
        self._names: dict[Loc, frozenset[str]] = {}

    @cached_property
    def _schema(self) -> dict[str, Any]:
        # Built for the first unknown field only: the schema of a case takes longer to build than a case to load.
        # Not model_fields: only the schema leads through unions, lists and the sections of packs
        if isinstance(self._kind, TypeAdapter):
            return self._kind.json_schema()
        kind = self._kind.with_sections() if issubclass(self._kind, ConfigFile) else self._kind
        return kind.model_json_schema()

    def names_at(self, loc: Loc) -> frozenset[str]:
        """Return the names of the fields of the mapping that `loc` leads to."""
        place = tuple(0 if isinstance(part, int) else part for part in loc)
        if (names := self._names.get(place)) is None:
            definitions, nodes = self._schema.get("$defs", {}), [self._schema]
            for part in place:
                nodes = [below for node in nodes for below in _step_into(node, part, definitions)]
            flat = (each for node in nodes for each in _flatten(node, definitions))
            names = self._names[place] = frozenset(name for each in flat for name in each.get("properties", {}))
        return names


def _suggest_field(loc: Loc, fields: _Fields, data: Any) -> str:
    """Return the fields that an unknown field could mean, by the JSON Schema of its place."""
    if added := _added_check_fields(loc, data):
        return suggest(str(loc[-1]), added)
    names = fields.names_at(loc[:-1])
    if loc[-1] == "tools" and {"context", "input"} & names:
        return f"; {TOOLS_PLACE}{'' if 'context' in names else ' in the input'}"
    if "parameters" in names and loc[-1] in REQUEST_FIELDS:
        return "; request fields belong below `parameters`"
    if names:
        # The name itself may be a field of another alternative at this place
        return suggest(str(loc[-1]), names - {loc[-1]})
    return ""


def _added_check_fields(loc: Loc, data: Any) -> Collection[str]:
    """Return the fields of a check that a pack adds, or () if the place holds no such check.

    The schema of a case has no packs' checks, because it would have to import all packs.
    """
    if "declarative" not in loc:
        return ()
    for part in loc[:-1]:
        data = data[part]
    if not isinstance(data, dict):
        return ()
    model = find_extension("check", str(data.get("kind")))
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model.model_fields
    return ()


def _flatten(node: dict[str, Any], definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schema and those that its references and alternatives lead to."""
    if "$ref" in node:
        yield from _flatten(definitions[node["$ref"].rpartition("/")[2]], definitions)
    for alternative in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _flatten(alternative, definitions)
    yield node


def _step_into(node: dict[str, Any], part: int | str, definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for flat in _flatten(node, definitions):
        if isinstance(part, int) and isinstance(flat.get("items"), dict):
            yield flat["items"]
        elif part in flat.get("properties", {}):
            yield flat["properties"][part]
        elif isinstance(flat.get("additionalProperties"), dict):
            yield flat["additionalProperties"]
        else:
            yield from flat.get("patternProperties", {}).values()
