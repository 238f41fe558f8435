"""Find adapters, and build the program of a run from an adapter and a case."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.agent_file import (
    AgentProgram,
    Content,
    McpNames,
    McpPlace,
    Reading,
    SkillsPlace,
    ToolCall,
    UsageReading,
)
from pytest_agentbench.config.base import load, suggest
from pytest_agentbench.config.source_imports import source_spec
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import extension_names, find_extension
from pytest_agentbench.records.base import PortableName
from pytest_agentbench.records.case import ApiName
from pytest_agentbench.runners.acp.fields import AcpFields
from pytest_agentbench.runners.agents.fields import AgentFields, CommandFields

if TYPE_CHECKING:
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.runners.gateway.policy import GatewayPolicy

FILE = "agent.yaml"
FOLDER = "agents"
"""Folder of adapters in a config root."""

READER = "read.py"
"""File next to an adapter. `read(stdout, stderr, exit)` returns the answer in place of `answer`, `error` and
`session`.
"""

IMAGE = "localhost/agentbench-agent"
_ONLY_COMMAND = frozenset({"argv", "resume_argv", "answer", "error", "session", "reported"})
"""Fields of an adapter that no run by ACP uses."""

_DATA = files("pytest_agentbench.runners.agents") / "data"
Read = Callable[[str, str, int], object]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter and its folder."""

    program: AgentProgram
    folder: Path

    @property
    def lock(self) -> Path | None:
        """Return the file that pins all that is installed."""
        if self.program.install.lock is None:
            return None
        return self.folder / self.program.install.lock

    @property
    def root(self) -> str:
        """Return the config root of the adapter."""
        return str(self.folder.parent.parent)

    @property
    def image(self) -> str:
        """Return the name of the image that `agentbench agents image` makes."""
        return f"{IMAGE}-{self.program.name}:{self.program.install.version}"

    def identity(self, *, acp: bool = False) -> dict[str, Any]:
        """Return hashes of the adapter's parts that can change a run, by ACP or by its command."""
        # Without texts for people, and without `skills` and `mcp`, which change only runs with skills and tools
        texts = {"metadata", "title", "licence", "verified", "retries_off", "telemetry_off"}
        other = _ONLY_COMMAND if acp else {"acp"}
        fields = self.program.model_dump(mode="json", exclude={*texts, "skills", "mcp", *other})
        parts = {"adapter": json.dumps(fields, sort_keys=True).encode()}
        parts |= {path.name: path.read_bytes() for path in (self.lock, self.folder / READER) if path and path.is_file()}
        return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in parts.items()}


def list_adapters(root: ConfigRoot | None = None) -> Iterator[str]:
    """Yield the names of all adapters: of the config root, of plugins, and of the package."""
    names: list[str] = []
    if root is not None and root.own is not None:
        places = sorted((root.own.path / FOLDER).glob(f"*/{FILE}"))
        names += [path.parent.name for path in places if is_adapter(path)]
    names += [*sorted(extension_names("agent")), *sorted(folder.name for folder in _list_data())]
    yield from dict.fromkeys(names)


def is_adapter(path: Path) -> bool:
    """Return whether an agent.yaml describes a program. Packs have other files of that name."""
    from pytest_agentbench.config.kinds import kind_of

    return kind_of(path) is AgentProgram


def find_adapter(name: str, root: ConfigRoot | None = None) -> Adapter:
    """Return the adapter of that name: the config root's, else a plugin's, else the package's.

    The root of a guest has no adapters, because they name programs. Raises ConfigError for an unknown name
    and for an invalid file.
    """
    searched = ["plugins", "this package"]
    if root is not None and (own := root.own) is not None:
        searched.insert(0, str(own.path / FOLDER))
        path = own.path / FOLDER / name / FILE
        if path.is_file() and is_adapter(path):
            return Adapter(own.load(path, AgentProgram), path.parent)
    added: Path | None = find_extension("agent", name)
    if added is not None:
        return _load(Path(added))
    path = Path(str(_DATA / name / FILE))
    if re.fullmatch(r"\w+", name) is None or not path.is_file():
        hint = suggest(name, [*list_adapters(root)])
        raise ConfigError(f"there is no agent {name!r}{hint} (searched: {', '.join(searched)})")
    return _load(path)


@cache
def _load(path: Path) -> Adapter:
    return Adapter(load(path, AgentProgram), path.parent)


def _list_data() -> list[Any]:
    return [folder for folder in _DATA.iterdir() if (folder / FILE).is_file()]


@dataclass(frozen=True, slots=True)
class Program:
    """A program that a run starts, from an adapter and a case. Errors call it `name`."""

    name: str
    argv: tuple[str, ...]
    resume: tuple[str, ...] | None
    answer: Reading
    env: Mapping[str, Content] = field(default_factory=dict)
    files: Mapping[str, Content] = field(default_factory=dict)
    error: Reading | None = None
    session: Reading | None = None
    reported: UsageReading | None = None
    context_tokens: int = 128_000
    tools: Mapping[PortableName, ToolCall] = field(default_factory=dict)
    finish: ToolCall | None = None
    skills: SkillsPlace | None = None
    adapter: Adapter | None = None
    dialects: tuple[ApiName, ...] = ()
    mcp: McpPlace | McpNames | None = None
    root: str = ""
    """Value of `{root}`: the config root of its file."""

    def policy(self) -> GatewayPolicy:
        """Return the program's peculiarities for its gateway."""
        from pytest_agentbench.runners.gateway.policy import GatewayPolicy, Helper, Volatile

        if self.adapter is None:
            return GatewayPolicy(dialects=self.dialects)
        spec = self.adapter.program
        marks = [re.compile(pattern) for pattern in spec.error_results]
        return GatewayPolicy(
            dialects=self.dialects or spec.dialects,
            pin=spec.pin,
            server_tools=spec.server_tools,
            volatile=tuple(Volatile(text.where or "any", re.compile(text.pattern), text.as_) for text in spec.volatile),
            helpers=tuple(Helper(re.compile(helper.system_matches), helper.reply) for helper in spec.helpers),
            is_error=lambda content, tool: any(mark.search(content) for mark in marks),
            outage_status=spec.outage_status,
        )

    def reader(self) -> Read | None:
        """Return the adapter's own reader, or None. Raises ConfigError if it cannot be loaded."""
        if self.adapter is None or not (path := self.adapter.folder / READER).is_file():
            return None
        return _load_reader(path)


def make_command(fields: CommandFields, name: str, root: str) -> Program:
    """Return the program of a case's `runner: {type: command}`. `root` is the case's config root."""
    return Program(
        name,
        fields.command,
        fields.resume,
        fields.answer,
        fields.env,
        fields.files,
        session=fields.session,
        context_tokens=fields.context_tokens,
        dialects=fields.dialects or (),
        root=root,
    )


def make_agent(fields: AgentFields, adapter: Adapter) -> Program:
    """Return the adapter's program with the case's settings, which have precedence."""
    spec = adapter.program
    return Program(
        spec.name,
        _insert(spec.argv, fields.argv),
        None if spec.resume_argv is None else _insert(spec.resume_argv, fields.argv),
        spec.answer,
        {**spec.env, **fields.env},
        {**spec.files, **fields.files},
        spec.error,
        spec.session,
        spec.reported,
        fields.context_tokens,
        spec.tools,
        spec.finish,
        spec.skills,
        adapter,
        mcp=spec.mcp,
        root=adapter.root,
    )


def add_arguments(program: Program, arguments: tuple[str, ...]) -> Program:
    """Return the program with further arguments in the commands of all turns, before the message."""
    resume = None if program.resume is None else _insert(program.resume, arguments)
    return replace(program, argv=_insert(program.argv, arguments), resume=resume)


def make_acp(fields: AcpFields, adapter: Adapter | None, root: str) -> Program:
    """Return the program of a case's `runner: {type: acp}`, of its command or of the adapter's form for ACP.

    `root` is the case's config root.
    """
    if adapter is None:
        assert fields.command is not None
        program = Program("the agent", fields.command, None, Reading(), fields.env, fields.files)
        return replace(program, context_tokens=fields.context_tokens, dialects=fields.dialects or (), root=root)
    form = adapter.program.acp
    assert form is not None
    spec = adapter.program
    return Program(
        spec.name,
        (*form.argv, *fields.argv),
        None,
        Reading(),
        {**spec.env, **form.env, **fields.env},
        {**spec.files, **form.files, **fields.files},
        context_tokens=fields.context_tokens,
        tools=spec.tools,
        skills=spec.skills,
        adapter=adapter,
        dialects=fields.dialects or spec.dialects,
        mcp=spec.acp_mcp,
        root=adapter.root,
    )


def _insert(argv: tuple[str, ...], further: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with further ones before the message: after it some programs accept none."""
    at = next((index for index, argument in enumerate(argv) if "{message}" in argument), len(argv))
    # If the message is the value of an option, insert before the option, and before the `--` that ends options
    if 1 < at < len(argv) and not argv[at].startswith("-") and argv[at - 1].startswith("-"):
        at -= 1
    return (*argv[:at], *further, *argv[at:])


@cache
def _load_reader(path: Path) -> Read:
    import importlib.util

    spec = source_spec(f"agentbench_reader_{path.parent.name}", path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        read: Read = module.read
    except Exception as error:
        raise ConfigError(f"{path}:1:1: cannot be used: {error}; expected read(stdout, stderr, exit)") from error
    return read
