"""`agent.yaml`: the adapter of a command-line agent: its installation, its command and the places of its results."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictInt, ValidationInfo, field_validator, model_validator

from pytest_agentbench.config.base import ConfigFile, LocalFile, Problems, scope_of, suggest
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records.base import PortableName, Record, Slug, Text, VariableName
from pytest_agentbench.records.case import ApiName, check_argument

PLACE = re.compile(r"\{([a-z_]+)\}")
"""A name in a template. Braces around anything else are text, as in JSON."""

TURN_NAMES = frozenset(
    {
        *("base", "key", "model", "message", "message_file", "workspace", "home", "root", "context_tokens"),
        *("mcp_relay", "permission"),
    }
)
"""Names that templates of argv, env and files may use; the argv of a later turn may use `session` too."""


def check_names(names: Iterable[str]) -> AfterValidator:
    """Validate a template, or JSON-like data with templates in it: it may name these."""
    known = frozenset(names)

    def check(value: Any) -> Any:
        for name in find_names(value):
            if name not in known:
                raise ValueError(f"unknown name {{{name}}}{suggest(name, known)}")
        return value

    return AfterValidator(check)


def find_names(value: Any) -> Iterator[str]:
    """Yield the names in a text, and in all texts of JSON-like data, keys too."""
    if isinstance(value, str):
        yield from PLACE.findall(value)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from (*PLACE.findall(name), *find_names(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_names(item)


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a template, or data with templates, with values in place of names.

    A text that is only a name becomes the value itself, so that JSON can have numbers. Values are not filled in again.
    """
    if isinstance(template, str):
        alone = PLACE.fullmatch(template)
        if alone is not None and not isinstance(value := values.get(alone[1], template), str):
            return value
        return PLACE.sub(lambda found: str(values.get(found[1], found[0])), template)
    if isinstance(template, dict):
        return {fill(name, values): fill(item, values) for name, item in template.items()}
    if isinstance(template, list | tuple):
        return [fill(item, values) for item in template]
    return template


def fill_text(template: str | Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return a filled template as text; data as JSON."""
    filled = fill(template, values)
    if isinstance(template, str):
        return str(filled)
    return json.dumps(filled, ensure_ascii=False)


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"found {text!r}, expected a regular expression: {error}") from None
    return text


_OF_TURN = check_names(TURN_NAMES)
_Pattern = Annotated[Text, AfterValidator(_check_pattern)]
Argument = Annotated[str, AfterValidator(check_argument), _OF_TURN]
LaterArgument = Annotated[str, AfterValidator(check_argument), check_names({*TURN_NAMES, "session"})]
SessionArgument = Annotated[str, AfterValidator(check_argument), check_names(TURN_NAMES - {"message", "message_file"})]
"""An argument of an ACP agent, which gets its messages in the session."""

Content = Annotated[str | dict[str, Any], _OF_TURN]
"""A text, or a mapping that is written as JSON."""

PROPRIETARY = "proprietary"
"""The licence of a program whose terms each user has to accept."""

Source = Literal["stdout", "stdout_json", "stdout_jsonl", "stderr_json", "file", "reply"]


class Reading(Record):
    """The place of a value in the output of a program. If several objects match, the last one counts."""

    from_: Source | None = Field(default=None, alias="from")
    """stdout: all of it as text; stdout_json, stderr_json: one JSON value; stdout_jsonl: one a line; file: `file`'s,
    JSON if there is a `path`; reply: the model's last text of the main conversation, as the gateway sent it. Default:
    stdout for a command, and the answer's for other values of an adapter.
    """
    file: Annotated[Text, check_names({"home", "workspace"})] | None = None
    """The file, below {workspace} or {home}."""
    where: dict[str, str | bool | int] = Field(default_factory=dict)
    """Values that an object has at these paths."""
    path: Text | None = None
    """Where in it, as names and indexes with dots between; `*` is each of them."""
    error_path: Text | None = None
    """Path of an error in the same object: a value other than null, false and an empty one is an error."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.from_ == "file") != (self.file is not None):
            raise ValueError("'from: file' and 'file' belong together")
        if self.from_ in ("stdout_json", "stdout_jsonl", "stderr_json") and self.path is None:
            raise Problems([(("path",), f"missing; add its path in the JSON of {self.from_}")])
        return self


class UsageReading(Reading):
    """The agent's own counts of tokens. They are stored with the run and do not change the gateway's counts."""

    input: Text
    """Below `path`: all prompt tokens, or several with `+` between."""
    cached: Text | None = None
    """Input tokens that were cached."""
    output: Text
    """All tokens of the model's, or several with `+` between."""
    reasoning: Text | None = None
    """Output tokens that were reasoning."""
    of: Literal["turn", "thread", "step"] = "turn"
    """The extent of the counts: this turn; all turns so far; or one of a turn's steps."""


class Install(Record):
    """The package and its requirements."""

    npm: Text | None = None
    """Package of npm with its version: `name@1.2.3`."""
    pypi: Text | None = None
    """Package of PyPI with its version: `name==1.2.3`."""
    lock: LocalFile | None = None
    """package-lock.json, or requirements with hashes; in this file's folder."""
    node: Text | None = None
    """Supported versions of Node, as `>=20` or `>=20,<24`. With an upper limit, the agent's image has its own Node."""
    leave_out: tuple[Text, ...] = ()
    """Files that are not needed, as patterns."""
    program: Text | None = None
    """The program below node_modules, where npm's own link is made by an install script, which nobody runs."""

    @model_validator(mode="after")
    def _one_registry(self) -> Self:
        if (self.npm is None) == (self.pypi is None):
            raise ValueError("expected exactly one of 'npm' and 'pypi'")
        return self

    @property
    def version(self) -> str:
        """Return the version of the package."""
        name = self.npm or self.pypi or ""
        return name.rpartition("@" if self.npm else "==")[2]


PORTABLE_ARGUMENTS: Mapping[PortableName, frozenset[str]] = {
    "shell": frozenset({"command"}),
    "write": frozenset({"path", "content"}),
    "read": frozenset({"path"}),
    "edit": frozenset({"path", "old", "new"}),
}
"""The arguments of portable tools."""


ABSOLUTE = "absolute_path"
"""The value of `path` in the arguments of an agent's tool that takes no relative path."""


class ToolCall(Record):
    """A tool of the agent that corresponds to a portable one."""

    name: Text
    """The agent's name of the tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Its arguments, with the portable one's in braces: `{command}`, `{path}`, `{content}`; `{absolute_path}`."""


class SkillsPlace(Record):
    """The place of skills for the agent, and the tool by which its model loads one."""

    folder: Annotated[Text, check_names({"home"})]
    """Folder of skills below {home}; each skill is a folder of its name there."""
    tool: Text | None = None
    """Tool that loads a skill; null: the model reads the file by its other tools."""
    argument: Text | None = None
    """Argument of that tool with the skill's name."""

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.tool is None) != (self.argument is None):
            raise ValueError("'tool' and 'argument' belong together")
        return self


_ServerEntry = Annotated[dict[str, Any], check_names({"name", "url", "token", "command", "args"})]


class McpPlace(Record):
    """The place of a case's tools and MCP servers in the agent's own configuration.

    In entries, {name} is the server's name for the agent, {url} its address with {token}; {command} and {args} start a
    relay to that address, for agents that take programs only.
    """

    file: Annotated[Text, check_names({"home", "workspace"})]
    """The file, below {home} or {workspace}; the adapter's own file of this path gets the entries in addition."""
    format: Literal["json", "toml", "yaml"] = "json"
    """The form of the file."""
    at: Text
    """Path of the entries in the file: names with dots between."""
    list_: bool = Field(default=False, alias="list")
    """The entries are a list, in TOML an array of tables, and have their names themselves; false: a mapping by name."""
    http: _ServerEntry | None = None
    """The entry of a server with an address."""
    stdio: _ServerEntry | None = None
    """The entry of a server that is a program."""
    transport: Literal["http", "stdio"] = "http"
    """The entry that is written."""
    names: Text
    """Names of tools in the agent's requests, with {tool}, and {server} if the agent shows it; `*` is any text."""
    json_text: Literal["keep", "wrap"] = "keep"
    """Wrap: results that are JSON but no object are sent as structured content, too."""
    argv: tuple[Argument, ...] = ()
    """Further arguments if there are servers, before the message."""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        problems: list[tuple[Loc, str]] = []
        if (self.http if self.transport == "http" else self.stdio) is None:
            problems.append(((self.transport,), f"missing, and 'transport' is {self.transport}; add the entry"))
        known = {"server", "tool"}
        problems += ((("names",), f"unknown name {{{name}}}") for name in find_names(self.names) if name not in known)
        if "{tool}" not in self.names:
            problems.append((("names",), f"found {self.names!r}, expected a template with {{tool}}"))
        if problems:
            raise Problems(problems)
        return self


class Helper(Record):
    """A request outside the conversation, such as for a title. A script answers it with a separate reply."""

    system_matches: _Pattern
    """Found in the system text of such a request."""
    reply: str
    """The reply to the request."""


class Volatile(Record):
    """Text that differs between two equal runs."""

    where: Literal["system", "user", "assistant", "tool"] | None = None
    """In messages of this role; default: in all."""
    pattern: _Pattern
    """The text to replace."""
    as_: str = Field(alias="as")
    """Its replacement when requests are compared."""


class Verified(Record):
    """A person or a test has seen it work."""

    version: Text
    """With this version of the agent."""
    on: Text
    """The day, as 2026-11-26."""


class SessionMode(Record):
    """Modes of an ACP agent, by the run's policy for permissions."""

    config: Text | None = None
    """Id of the configuration option with the modes; null: the session's modes."""
    allow: Text | None = None
    """The mode that asks for no permission; null: the agent's default."""
    ask: Text | None = None
    """The mode that asks for permissions; null: the agent's default."""


class McpNames(Record):
    """The treatment of MCP servers that an ACP agent gets by the protocol."""

    names: Annotated[Text, check_names({"server", "tool"})]
    """Names of tools in the agent's requests, with {tool}, and {server} if the agent shows it; `*` is any text."""
    json_text: Literal["keep", "wrap"] = "keep"
    """Wrap: results that are JSON but no object are sent as structured content, too."""


class AcpForm(Record):
    """The agent's command for the Agent Client Protocol, in addition to the adapter's other fields."""

    argv: Annotated[tuple[SessionArgument, ...], Field(min_length=1)]
    """The program with its arguments; names in braces are replaced, there is no shell."""
    env: dict[VariableName, Content] = Field(default_factory=dict)
    """Variables in addition to the adapter's, with precedence over them."""
    files: dict[Annotated[str, check_names({"home", "workspace"})], Content] = Field(default_factory=dict)
    """Files in addition to the adapter's, with precedence over them."""
    mode: SessionMode = SessionMode()
    """Its modes."""
    auth: Text | None = None
    """Id of the authentication method that it needs before a session; null: none."""
    mcp: McpNames | None = None
    """The names of its MCP tools; null: those of the adapter's `mcp`, and without both it takes no tools."""
    verified: Verified | None = None
    """When it was last seen to work with the protocol; null: never."""


class AgentProgram(ConfigFile):
    """A command-line agent: data by which the runner `agent` starts it and reads its output."""

    name: Slug
    """The name of its folder."""
    title: Text
    """For people."""
    licence: Text
    """SPDX id, or `proprietary`: its image is built only if it is named."""
    install: Install
    """The package."""
    dialects: Annotated[tuple[ApiName, ...], Field(min_length=1)]
    """How it asks its model; in any other way it is refused."""
    argv: tuple[Argument, ...] = ()
    """The program with its arguments for the first turn; names in braces are replaced, there is no shell. Without it
    the agent has `acp` only.
    """
    resume_argv: tuple[LaterArgument, ...] | None = None
    """The same for the next turns of a session; null: it has none, so cases with several turns are refused."""
    env: dict[VariableName, Content] = Field(default_factory=dict)
    """Variables in addition to the gateway's."""
    files: dict[Annotated[str, check_names({"home", "workspace"})], Content] = Field(default_factory=dict)
    """Files that it finds, below {home} or {workspace}."""
    answer: Reading = Reading()
    """The place of its answer; required with `argv`."""
    error: Reading | None = None
    """The place of an error outside the answer."""
    session: Reading | None = None
    """The place of its session's name."""
    reported: UsageReading | None = None
    """The place of its counts of tokens."""
    tools: dict[PortableName, ToolCall] = Field(default_factory=dict)
    """Its tools by portable names."""
    finish: ToolCall | None = None
    """The call by which it ends, with `{content}`; a script's last text is wrapped in it."""
    skills: SkillsPlace | None = None
    """Its skills; null: it has none, so cases with skills are skipped."""
    helpers: tuple[Helper, ...] = ()
    """Requests outside the conversation."""
    volatile: tuple[Volatile, ...] = ()
    """Texts that differ between two equal runs."""
    error_results: tuple[_Pattern, ...] = ()
    """Tool results that are errors, for dialects that cannot mark errors."""
    outage_status: Annotated[StrictInt, Field(ge=400, le=599)] = 400
    """The status after which it asks no more."""
    pin: Literal["refuse", "rewrite"] = "refuse"
    """Treatment of requests for another model: refused, or sent to the run's."""
    server_tools: Literal["refuse", "remove"] = "refuse"
    """Treatment of tools that the provider would run."""
    retries_off: Text | None = None
    """The setting that turns its own retries off; null: unknown."""
    telemetry_off: Text | None = None
    """The setting that turns telemetry off; null: unknown."""
    verified: Verified | None = None
    """When it was last seen to work; null: never."""
    mcp: McpPlace | None = None
    """Its MCP servers; null: it takes none, so cases with tools or servers are refused."""
    acp: AcpForm | None = None
    """Its command for the Agent Client Protocol, for the runner `acp`; null: it has none."""

    @property
    def acp_mcp(self) -> "McpNames | McpPlace | None":
        """Return the treatment of MCP servers in runs by ACP; None if it takes none."""
        if self.acp is None:
            return None
        return self.acp.mcp or self.mcp

    @property
    def executable(self) -> str:
        """Return the name of its program."""
        argv = self.argv if self.acp is None else self.argv or self.acp.argv
        return argv[0]

    @field_validator("name")
    @classmethod
    def _has_its_folder(cls, name: str, info: ValidationInfo) -> str:
        scope = scope_of(info)
        if scope is not None and (folder := scope.folder.rstrip("/").rpartition("/")[2]) != name:
            raise ValueError(f"found {name!r}, which must match directory name {folder!r}")
        return name

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        problems = [*_find_tool_problems(self.tools), *find_place_problems(self.files, self.mcp)]
        if not self.argv and self.acp is None:
            problems.append((("argv",), "missing; add it, or `acp` for an agent that speaks the protocol only"))
        if self.argv and "answer" not in self.model_fields_set:
            problems.append((("answer",), "missing; add it"))
        if "shell" not in self.tools and self.tools:
            problems.append((("tools",), "found no 'shell', which replaces the tools that the agent lacks; add it"))
        problems += (
            (("finish", "arguments"), f"unknown name {{{name}}}; the only name is content")
            for name in find_names(self.finish.arguments if self.finish else ())
            if name != "content"
        )
        if self.session is None and any("session" in PLACE.findall(each) for each in self.resume_argv or ()):
            problems.append(
                (("resume_argv",), "found {session} without `session`, which reads it from the output: add session")
            )
        if problems:
            raise Problems(problems)
        return self


_KINDS: Mapping[type, str] = {str: "a text", list: "a list", dict: "a mapping"}


def find_place_problems(files: Mapping[str, Content], place: McpPlace | None) -> Iterator[tuple[Loc, str]]:
    """Yield why the file of the MCP servers does not take entries for them at their place."""
    if place is None or place.file not in files:
        return
    found: Any = files[place.file]
    if place.format == "toml":
        if not isinstance(found, str):
            yield ("files", place.file), "found a mapping, expected TOML as a text, the form of `mcp`"
        return
    path = place.at.split(".")
    for depth in range(len(path) + 1):
        expected = "a list" if place.list_ and depth == len(path) else "a mapping"
        kind = _KINDS.get(type(found), repr(found))
        if kind != expected:
            yield ("files", place.file, *path[:depth]), f"found {kind}, expected {expected}, the form of `mcp`"
            return
        if depth == len(path) or found.get(path[depth]) is None:
            return
        found = found[path[depth]]


def _find_tool_problems(tools: Mapping[PortableName, ToolCall]) -> Iterator[tuple[Loc, str]]:
    for portable, call in tools.items():
        for name in find_names(call.arguments):
            if name not in PORTABLE_ARGUMENTS[portable] and not (name == ABSOLUTE and portable != "shell"):
                yield (
                    ("tools", portable, "arguments"),
                    f"unknown name {{{name}}}{suggest(name, PORTABLE_ARGUMENTS[portable])}",
                )
