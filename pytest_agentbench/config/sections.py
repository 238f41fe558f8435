"""Sections of files, and kinds of files: those that several kinds share, and those that packs and plugins add."""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    StrictBool,
    StrictInt,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails

from pytest_agentbench.config.base import (
    ConfigFile,
    Guest,
    Problems,
    complain,
    error_lines,
    resolve_folder,
    say_expected,
    scope_of,
)
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.request_fields import find_misplaced
from pytest_agentbench.extensions import (
    cache_extensions,
    extension_names,
    find_extension,
    load_extensions,
)
from pytest_agentbench.records.base import BUILT_LATER, AtLeastOne, CasePart, Later, Record, Seconds
from pytest_agentbench.records.case import ApiName, Dialect, McpServer, Streamed
from pytest_agentbench.records.check_specs import Fraction

_SAMPLING = ("temperature", "top_p", "max_tokens", "seed")


class GatewaySettings(Record):
    """The way of an agent's own requests to the run's model."""

    translate: StrictBool = False
    """Translate requests in a protocol that the model is not served in, also with --agentbench-strict: then model,
    agent and translator are measured together.
    """


class RunnerSettings(BaseModel):
    """The merged settings of one run as `llm_probe` reads them; other fields are request parameters as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=(), defer_build=BUILT_LATER)

    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] | None = None
    """Sampling temperature."""
    top_p: Fraction | None = None
    """Nucleus sampling."""
    max_tokens: AtLeastOne | None = None
    """Most tokens to generate."""
    seed: StrictInt | None = None
    """Reproducibility seed."""
    timeout_seconds: Seconds = 30
    """Wall-clock limit of one request."""
    retries: Annotated[StrictInt, Field(ge=0)] | None = None
    """Most repeats of a request after transient failures; unsaid: as many as `outage_seconds` let."""
    outage_seconds: Annotated[float, Field(strict=True, ge=0)] = 300
    """Seconds for which a request is repeated after its first transient failure; 0: as long as the run may last."""
    max_turns: AtLeastOne = 8
    """Most requests before a final answer is forced."""
    stream: Streamed | None = None
    """Ask for replies in a stream: true, false, or auto: where timeout_seconds is over 60 or stall_seconds is set.
    Default: the model's own."""
    stall_seconds: Seconds | None = None
    """Longest silence in the middle of a streamed reply; default: the model's own, else 60."""
    env: Literal["serial"] | None = None
    """`serial`: the variables by which clients find `context.gateway` are set in this process while the run is made,
    and no other run is in flight meanwhile."""
    gateway: Later[GatewaySettings] | None = None
    """How an agent that brings its own client asks the run's model."""
    keep_reasoning_tags: StrictBool = False
    """Answers keep the block of thoughts (`<think>`, `<thinking>`, `<reasoning>`) that they begin with."""

    @property
    def translates(self) -> bool:
        """Return whether an agent's requests may be translated in a strict session, too."""
        return self.gateway is not None and self.gateway.translate

    @property
    def streaming(self) -> dict[str, Any]:
        """Return the settings of streams that are set; the others are left to the model's entry."""
        return {name: value for name in STREAMING if (value := getattr(self, name)) is not None}

    @property
    def extras(self) -> dict[str, Any]:
        """Return the fields that `llm_probe` does not know and hands on to the endpoint."""
        return dict(self.model_extra or {})

    @property
    def repeats(self) -> dict[str, Any]:
        """Return the retry settings that are set: clients of plugins may not know them all."""
        return self.model_dump(include={"retries", "outage_seconds"}, exclude_unset=True)

    @property
    def request_parameters(self) -> dict[str, Any]:
        """Return the fields of every request: the sampling fields that are set, and the extras.

        A None removes one of the model's own parameters from the request.
        """
        return {name: getattr(self, name) for name in _SAMPLING if name in self.model_fields_set} | self.extras


RUN_SETTINGS = frozenset(RunnerSettings.model_fields) - set(_SAMPLING)
"""Settings that are no fields of requests."""


STREAMING = ("stream", "stall_seconds")
"""Settings of how replies come, which change nothing in them."""


def find_settings_problems(layer: Mapping[str, Any]) -> list[tuple[Loc, str]]:
    """Return the problems of one layer of settings. A null is valid: it removes the key."""
    problems = list(find_misplaced(layer))
    settings = {name: layer[name] for name in RunnerSettings.model_fields if layer.get(name) is not None}
    if not settings:
        return problems
    try:
        RunnerSettings.model_validate(settings)
    except ValidationError as error:
        problems += [
            (
                tuple(item["loc"]),
                f"found {item['input']!r}, expected {say_expected(item['msg'].removeprefix('Input should be '))}",
            )
            for item in error.errors(include_url=False)
        ]
    return problems


def _check_settings(layer: dict[str, Any]) -> dict[str, Any]:
    complain(find_settings_problems(layer))
    return layer


SettingsLayer = Annotated[dict[str, Any], AfterValidator(_check_settings)]


def _check_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    complain(find_parameter_problems(parameters))
    return parameters


def find_parameter_problems(parameters: Mapping[str, Any]) -> list[tuple[Loc, str]]:
    """Return the problems of a model's request fields: fields that no request has, and a temperature out of range."""
    return [*find_misplaced(parameters, RUN_SETTINGS), *find_temperature_problems(parameters)]


def find_high_temperature(
    parameters: Mapping[str, Any],
    dialect: str | None,
    base_url: str | None,
    overrides: Dialect | None,
    api: ApiName | None = None,
) -> str | None:
    """Return the problem of a temperature above the endpoint's maximum."""
    temperature = parameters.get("temperature")
    if not isinstance(temperature, int | float) or temperature <= 1:  # every endpoint takes that
        return None
    from pytest_agentbench.config.dialects import resolve_dialect

    most = resolve_dialect(dialect, base_url or "", overrides, api).temperature_max
    if temperature <= most:
        return None
    return f"found {temperature:g}, expected at most {most:g}, as its endpoint takes no more"


def find_temperature_problems(settings: Mapping[str, Any]) -> list[tuple[Loc, str]]:
    """Return the problem of a temperature that every endpoint refuses. Other request parameters are not checked."""
    value = settings.get("temperature")
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2):
        return []
    return [(("temperature",), f"found {value!r}, expected a number from 0 to 2")]


RequestParameters = Annotated[dict[str, Any], AfterValidator(_check_parameters)]


_ILLEGAL = "[:\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def _check_server_name(name: str) -> str:
    if not name.strip() or re.search(_ILLEGAL, name):
        raise ValueError(
            f"found {name!r}, expected the name of a server: no blank text, without ':' (a tool's id is server:tool) "
            "and control characters"
        )
    return name


ServerName = Annotated[str, AfterValidator(_check_server_name)]
"""Name of a server: the part of its tools' ids before the colon."""


def _place_server(server: McpServer, info: ValidationInfo) -> McpServer:
    scope = scope_of(info)
    if server.cwd is None or scope is None:
        return server
    cwd = os.path.normpath(os.path.join(scope.folder, os.path.expanduser(server.cwd)))
    return server.model_copy(update={"cwd": cwd})


PlacedServers = dict[ServerName, Annotated[Later[McpServer], AfterValidator(_place_server)]]
"""Declared servers by name. In a file, their `cwd` becomes absolute."""


class ServersFile(ConfigFile):
    """MCP servers for the cases of its folder and of those below."""

    servers: PlacedServers = Field(default_factory=dict)
    """Servers by name."""


def _check_case_server(server: McpServer, info: ValidationInfo) -> McpServer:
    scope = scope_of(info)
    if scope is not None:
        scope.refuse_program(f"the server {server.command or server.url!r}")
    if server.sandbox is not None:
        message = (
            "a case does not choose where its servers run; declare the server in servers.yaml or the run profile, and "
            "name it here"
        )
        raise Problems([(("sandbox",), message)])
    if server.cwd is None or scope is None:
        return server
    try:
        return server.model_copy(update={"cwd": str(resolve_folder(server.cwd, scope))})
    except ValueError as error:
        raise Problems([(("cwd",), str(error))]) from error


def _tag_form(servers: Any) -> str:
    if isinstance(servers, list | tuple):
        return "names"
    return "declared"


CaseServers = Annotated[
    Annotated[dict[ServerName, Annotated[Later[McpServer], AfterValidator(_check_case_server)]], Tag("declared")]
    | Annotated[tuple[ServerName, ...], Tag("names")],
    Discriminator(_tag_form),
]
"""Servers of a case: declared by name, or a list of names that are declared elsewhere."""


def map_servers(servers: Mapping[str, McpServer] | Sequence[str]) -> dict[str, McpServer | None]:
    """Return a case's servers by name; the value is None for a server that another file declares."""
    if isinstance(servers, Mapping):
        return dict(servers)
    return dict.fromkeys(servers)


S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)

Found = Iterable[tuple[Loc, str]]
"""Problems, each with its place below the section."""
Excess = Iterable[tuple[Loc, Any, Any]]
"""Excess of a guest's section: its place below the section, the value found, and the most that is allowed."""
Cases = Mapping[str, Iterable[str]]
"""Case ids with their tags."""


def _differs(value: Any, most: Any, guest: Guest) -> Excess:
    if value == most:
        return []
    return [((), value, most)]


@dataclass(frozen=True, eq=False, repr=False)
class ProfileSection(Generic[S]):
    """A top-level key of a kind of file. Entry points: `run_profile NAME`, `evaluation_profile NAME`, `suite NAME`.

    A section of test cases is a part of the case: `part_section` makes it of the part's model.

    `model` is any type that pydantic validates, `doc` the field's description, `default()` the value of a file without
    the key. `fingerprint(section)` is the part that makes another profile, by default all of it. `problems(section,
    file)` checks the section together with the raw file. `excess(section, most, guest)` is the excess of a guest's
    section; by default it must be equal to the user's. `place(section, path, programs)` makes the section independent
    of its folder: `path` is its file, `programs` the folder whose programs it may name. `references(section, root,
    cases)` are names in it that lead nowhere.
    """

    name: str
    of: Literal["run_profile", "evaluation_profile", "suite", "case_part"]
    model: Any
    doc: str
    default: Callable[[], S]
    fingerprint: Callable[[S], Any] = lambda section: section
    problems: Callable[[S, Mapping[str, Any]], Found] = lambda section, file: ()
    excess: Callable[[S, S, Guest], Excess] = _differs
    place: Callable[[S, Path, str | None], S] = lambda section, path, programs: section
    references: Callable[[S, Any, Cases], Found] = lambda section, root, cases: ()


class SectionedFile(ConfigFile):
    """A file to which packs and plugins add keys. A pack is imported when a file has its key."""

    # "allow" keeps the sections next to the fields; unknown names are refused below, as in other files.
    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    seam: ClassVar[str]
    """The seam of its sections."""

    @classmethod
    def find_section(cls, name: str) -> ProfileSection[Any] | None:
        """Return the section of that name, or None if no pack or plugin adds one."""
        return find_extension(cls.seam, name)

    @classmethod
    def with_sections(cls) -> type[Self]:
        """Return the model with all sections that are added as fields."""
        return _with_sections(cls)

    @classmethod
    def find_contradictions(cls, given: Mapping[str, Any]) -> Found:
        """Yield contradictions between raw fields, which are reported even if one of the fields is invalid."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _read_sections(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        # Around the fields, not after them: problems of sections and of fields are reported together.
        # A copy: validators must not change the caller's data, from which error messages quote.
        fields, lines = dict(data), list[InitErrorDetails]()
        if against := tuple(cls.find_contradictions(data)):
            lines.append(InitErrorDetails(type="value_error", input=data, ctx={"error": Problems(against)}))
        # In any order: `Document.error` sorts problems by their places.
        for name in data.keys() - cls.model_fields.keys():
            section = cls.find_section(name)
            if section is None:
                lines.append(InitErrorDetails(type="extra_forbidden", loc=(name,), input=data[name]))
                continue
            try:
                fields[name] = _adapter(section).validate_python(data[name], context=info.context)
            except ValidationError as error:
                lines += error_lines(error, (name,))
            else:
                if found := tuple(section.problems(fields[name], data)):
                    problems = Problems(((name, *at), text) for at, text in found)
                    lines.append(InitErrorDetails(type="value_error", input=data, ctx={"error": problems}))
        try:
            model = handler(fields)
        except ValidationError as error:
            if not lines:
                raise
            raise ValidationError.from_exception_data(cls.__name__, [*error_lines(error), *lines]) from None
        if lines:
            raise ValidationError.from_exception_data(cls.__name__, lines)
        return model

    def section(self, section: ProfileSection[S]) -> S:
        """Return the file's value of a section, or the section's default."""
        value = (self.model_extra or {}).get(section.name)
        if value is None:
            return section.default()
        return cast(S, value)

    def sections(self) -> Iterator[tuple[ProfileSection[Any], Any]]:
        """Yield each section of the file with its value."""
        for name, value in (self.model_extra or {}).items():
            if value is not None and (section := self.find_section(name)) is not None:
                yield section, value


@cache
def _adapter(section: ProfileSection[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(section.model)


@cache_extensions
def part_section(name: str) -> ProfileSection[Any] | None:
    """Return the section of a test case for its part of this name, or None if the part is no section."""
    part: type[CasePart] | None = find_extension("case_part", name)
    if part is None or not getattr(part, "is_section", False):
        return None
    return ProfileSection(name, "case_part", part, inspect.cleandoc(part.__doc__ or ""), default=lambda: None)


@cache_extensions
def _with_sections(kind: type[SectionedFile]) -> type[Any]:
    sections = filter(None, map(kind.find_section, sorted(extension_names(kind.seam))))
    fields: dict[str, Any] = {
        each.name: (each.model, Field(default_factory=each.default, description=each.doc)) for each in sections
    }
    if not fields:
        return kind
    # The name and the module of the kind, by which the docstrings of its fields are found for the schema.
    return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, __doc__=kind.__doc__, **fields)


_FILE_SEAM = "file"
"""The seam: `file_kinds` of a Pack, or the hook `pytest_agentbench_file_kinds`."""
OWN_FOLDERS = ("run_profiles", "evaluation_profiles", "suites", "cases")
"""The folders of config roots whose meaning no kind can change."""


@dataclass(frozen=True)
class FileKind:
    """A kind of configuration file. `name` is that of its schema, `folder` its folder in a config root.

    A file has its id as its stem. With a `stem` each file has a folder, named by the id. `id_field` is the model's
    field for the id. `problems(path)` are further problems for `agentbench validate`.
    """

    name: str
    folder: str
    id_field: str
    model: type[ConfigFile]
    stem: str | None = None
    problems: Callable[[Path], Iterable[tuple[Loc, str]]] = lambda path: ()

    @property
    def pattern(self) -> str:
        """Return the pattern of its files below the folder."""
        if self.stem is None:
            return "*.*"
        return f"*/{self.stem}.*"

    @property
    def label(self) -> str:
        """Return the kind's name in messages."""
        return self.name.replace("_", " ")

    def id_of(self, path: Path) -> str:
        """Return the id that the file's place gives it."""
        if self.stem is None:
            return path.stem
        return path.parent.name


def added_folders() -> frozenset[str]:
    """Return the folders of the kinds that packs and plugins add; imports none."""
    return extension_names(_FILE_SEAM)


def added_kind(folder: str) -> FileKind | None:
    """Return the kind of file that a pack or plugin adds for a folder of config roots, or None."""
    kind: FileKind | None = find_extension(_FILE_SEAM, folder)
    return kind


def added_kinds() -> list[FileKind]:
    """Return all kinds that are added."""
    return list(load_extensions(_FILE_SEAM).values())
