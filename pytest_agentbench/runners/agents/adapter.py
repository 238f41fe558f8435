"""Find adapters, and make of them and of a case's own words the program that a run starts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.agent_file import AgentProgram, Content, Reading, ToolCall, UsageReading
from pytest_agentbench.config.base import load, suggest
from pytest_agentbench.config.source_imports import source_spec
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import extension_names, find_extension
from pytest_agentbench.records.base import PortableName
from pytest_agentbench.records.case import ApiName
from pytest_agentbench.runners.agents.fields import AgentFields, CommandFields

if TYPE_CHECKING:
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.runners.gateway.policy import GatewayPolicy

FILE = "agent.yaml"
FOLDER = "agents"
"""Where a config root has adapters of its own."""

READER = "read.py"
"""Beside an adapter: `read(stdout, stderr, exit)` gives the answer in place of `answer`, `error` and `session`."""

IMAGE = "localhost/agentbench-agent"
_DATA = files("pytest_agentbench.runners.agents") / "data"
Read = Callable[[str, str, int], object]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter, and the folder that it lies in."""

    program: AgentProgram
    folder: Path

    @property
    def lock(self) -> Path | None:
        """Return the file that pins all that is installed."""
        return None if self.program.install.lock is None else self.folder / self.program.install.lock

    @property
    def image(self) -> str:
        """Return the name of the image that `agentbench agents image` makes."""
        return f"{IMAGE}-{self.program.name}:{self.program.install.version}"

    def identity(self) -> dict[str, Any]:
        """Return what of it can change a run."""
        # Not what people are told of it
        said = self.program.model_dump(
            mode="json", exclude={"metadata", "title", "licence", "verified", "retries_off", "telemetry_off"}
        )
        parts = {"adapter": json.dumps(said, sort_keys=True).encode()}
        parts |= {path.name: path.read_bytes() for path in (self.lock, self.folder / READER) if path and path.is_file()}
        return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in parts.items()}


def list_adapters(root: ConfigRoot | None = None) -> Iterator[str]:
    """Yield the names of all adapters: the root's own, those of plugins, and the package's."""
    own = None if root is None else root.own
    places = sorted((own.path / FOLDER).glob(f"*/{FILE}")) if own is not None else []
    names = [path.parent.name for path in places if is_adapter(path)]
    names += [*sorted(extension_names("agent")), *(each.name for each in sorted(_list_data(), key=lambda p: p.name))]
    yield from dict.fromkeys(names)


def is_adapter(path: Path) -> bool:
    """Return whether an agent.yaml says how a program is started: packs have files of that name too."""
    from pytest_agentbench.config.kinds import kind_of

    return kind_of(path) is AgentProgram


def find_adapter(name: str, root: ConfigRoot | None = None) -> Adapter:
    """Return the adapter of that name: the root's own, else a plugin's, else the package's.

    A guest has none of its own, as they name programs. Raises ConfigError where there is none, or it is wrong.
    """
    own = None if root is None else root.own
    if own is not None:
        path = own.path / FOLDER / name / FILE
        if path.is_file() and is_adapter(path):
            return Adapter(own.load(path, AgentProgram), path.parent)
    added: Path | None = find_extension("agent", name)
    if added is not None:
        return _load(Path(added))
    path = Path(str(_DATA / name / FILE))
    if re.fullmatch(r"\w+", name) is None or not path.is_file():
        places = [*([] if own is None else [str(own.path / FOLDER)]), "plugins", "this package"]
        hint = suggest(name, [*list_adapters(root)])
        raise ConfigError(f"there is no agent {name!r}{hint} (searched: {', '.join(places)})")
    return _load(path)


@cache
def _load(path: Path) -> Adapter:
    return Adapter(load(path, AgentProgram), path.parent)


def _list_data() -> list[Any]:
    return [each for each in _DATA.iterdir() if (each / FILE).is_file()]


@dataclass(frozen=True, slots=True)
class Program:
    """A program that a run starts: what an adapter says of it, and a case. `name` is what errors call it."""

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
    adapter: Adapter | None = None
    dialects: tuple[ApiName, ...] = ()

    def policy(self) -> GatewayPolicy:
        """Return its peculiarities, as its gateway has to know them."""
        from pytest_agentbench.runners.gateway.policy import GatewayPolicy, Helper, Volatile

        if self.adapter is None:
            return GatewayPolicy(dialects=self.dialects)
        said = self.adapter.program
        marks = [re.compile(each) for each in said.error_results]
        return GatewayPolicy(
            dialects=said.dialects,
            pin=said.pin,
            server_tools=said.server_tools,
            volatile=tuple(Volatile(each.where or "any", re.compile(each.pattern), each.as_) for each in said.volatile),
            helpers=tuple(Helper(re.compile(each.system_matches), each.reply) for each in said.helpers),
            is_error=lambda content, tool: any(mark.search(content) for mark in marks),
            outage_status=said.outage_status,
        )

    def reader(self) -> Read | None:
        """Return the adapter's own reader, None where it has none. Raises ConfigError for one that is wrong."""
        path = None if self.adapter is None else self.adapter.folder / READER
        return None if path is None or not path.is_file() else _load_reader(path)


def make_command(fields: CommandFields, name: str) -> Program:
    """Return the program of a case's `runner: {type: command}`."""
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
    )


def make_agent(fields: AgentFields, adapter: Adapter) -> Program:
    """Return the adapter's program with what the case says over it."""
    said = adapter.program
    return Program(
        said.name,
        _insert(said.argv, fields.argv),
        None if said.resume_argv is None else _insert(said.resume_argv, fields.argv),
        said.answer,
        {**said.env, **fields.env},
        {**said.files, **fields.files},
        said.error,
        said.session,
        said.reported,
        fields.context_tokens,
        said.tools,
        said.finish,
        adapter,
    )


def _insert(argv: tuple[str, ...], further: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with further ones in front of the message: behind it some programs take none."""
    at = next((index for index, each in enumerate(argv) if "{message}" in each), len(argv))
    # Where the message belongs to an option, in front of that, and of the `--` that ends options
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
