"""The identities of agents and of what plugins add, each told once in a session."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import MethodType
from typing import Any
from uuid import uuid4

from pytest_agentbench.engine.code import Code, CodeReader
from pytest_agentbench.engine.code.members import is_plain
from pytest_agentbench.engine.code.modules import Stamp, changed
from pytest_agentbench.engine.code.values import Untold
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.store.fingerprints import Plain
from pytest_agentbench.workspaces.template import template_digest

Shown = Mapping[str, Any]
"""An identity as JSON, to be part of a fingerprint."""

_NO_HEAD: Shown = {}
_ADVICE = "; give it an attribute `fingerprint`, a text that names its version"


@dataclass(frozen=True, slots=True)
class Origin:
    """The functions of the fixture that made an agent and of those it asks for, and their parameters.

    `params` maps a fixture's name to `(parameter, its place)`.
    """

    functions: tuple[Callable[..., Any], ...] = ()
    params: dict[str, tuple[Any, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Told:
    """An identity, and when it is to be looked at again whether it holds (by the performance counter)."""

    shown: Shown
    unloaded: Mapping[str, Stamp]
    due: float = 0.0

    def changed(self) -> str | None:
        """The first file that is not as it was. Looking takes at most a hundredth of the time."""
        begun = perf_counter()
        if not self.unloaded or begun < self.due:
            return None
        found = changed(self.unloaded)
        ended = perf_counter()
        self.due = ended + 100 * (ended - begun)
        return found


@dataclass(slots=True)
class _Agent:
    """An agent, where its fixture applies, and what made it. `named_by` is what has the attribute `fingerprint`."""

    value: object
    scope: object
    origin: Origin
    told: _Told | None = None
    named_by: object = field(init=False)

    def __post_init__(self) -> None:
        self.named_by = _holder_of_fingerprint(self.value)


@dataclass
class Identities:
    """What the session knows of the identity of code. `warn(text)` is told once what can never be reused, and why."""

    reader: CodeReader
    warn: Callable[[str], None]
    _agents: dict[int, list[_Agent]] = field(default_factory=dict)
    _brief: dict[Any, _Agent] = field(default_factory=dict)
    _parts: dict[tuple[str, str], _Told] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _templates: dict[Path, str] = field(default_factory=dict)

    def made(self, agent: object, scope: object, origin: Origin, brief: Any = None) -> None:
        """Remembers what made an agent. `scope` is where the fixture applies, as jobs' groups say it.

        `brief` is the fixture where its value lives shorter than the session: the next one takes its place.
        """
        made = _Agent(agent, scope, origin)
        self._agents[id(agent)] = [*self._agents.get(id(agent), ()), made]
        if brief is not None:
            before, self._brief[brief] = self._brief.get(brief), made
            if before is not None:
                self._forget(before)

    def agent(self, agent: object, scope: object, name: str) -> Shown:
        """The identity of a user's agent, by the name that it goes by.

        Its attribute `fingerprint` replaces everything else. Raises ConfigError where that is no text.
        """
        made = self._made(agent, scope)
        if made.named_by is not None:
            return Plain(name=name, fingerprint=_fingerprint(made.named_by))
        made.told = self._current(
            made.told, lambda: _code_of(self.reader, agent, made.origin), f"the agent {name}", {"name": name}, _ADVICE
        )
        return made.told.shown

    def part(self, kind: str, name: str, thing: object) -> Shown:
        """The identity of what a plugin added: the check, metric, runner ... of that name."""
        return self._part(kind, name, lambda: self.reader.of(thing))

    def template(self, path: Path) -> str:
        """The digest of a workspace template. Raises ConfigError for one that no workspace can be a copy of."""
        if path not in self._templates:
            self._templates[path] = template_digest(path)
        return self._templates[path]

    def file(self, kind: str, path: Path) -> Shown:
        """The identity of a Python file that another process runs."""
        return self._part(kind, str(path), lambda: self.reader.of_file(path), path.name)

    def module(self, kind: str, name: str) -> Shown:
        """The same of a module that it imports."""
        return self._part(kind, name, lambda: self.reader.of_module(name))

    def _part(self, kind: str, name: str, read: Callable[[], Code], shown: str | None = None) -> Shown:
        told = self._parts.get((kind, name))
        told = self._parts[kind, name] = self._current(told, read, f"what the {kind} {shown or name} takes part in")
        return told.shown

    def _current(
        self, told: _Told | None, read: Callable[[], Code], what: str, head: Shown = _NO_HEAD, advice: str = ""
    ) -> _Told:
        """The identity as it was told, or is now, after its `head`; one that cannot be told is unlike any other."""
        try:
            if told is None:
                code = read()
                return _Told(Plain({**head, **code.shown}), code.unloaded)
            if (file := told.changed()) is not None:
                raise Untold(f"{Path(file).name} was changed while the session ran")
            return told
        except Untold as error:
            if what not in self._warned:
                self._warned.add(what)
                self.warn(f"{what} is never reused from the store: {error}{advice}")
            return _Told(Plain({**head, "untold": str(error), "token": uuid4().hex}), {})

    def _made(self, agent: object, scope: object) -> _Agent:
        known = self._agents.get(id(agent))
        if known is None:
            known = self._agents[id(agent)] = [_Agent(agent, scope, Origin())]
        return next((made for made in reversed(known) if made.scope == scope), known[-1])

    def _forget(self, made: _Agent) -> None:
        kept = [each for each in self._agents[id(made.value)] if each is not made]
        if kept:
            self._agents[id(made.value)] = kept
        else:
            del self._agents[id(made.value)]


def _code_of(reader: CodeReader, agent: object, origin: Origin) -> Code:
    params = {name: param if is_plain(param) else [param, at] for name, (param, at) in origin.params.items()}
    return reader.of(agent, origin.functions, **({"params": params} if params else {}))


def _holder_of_fingerprint(agent: object) -> object:
    """The agent, or, of a method, its function or object: what has the attribute; None where nothing has."""
    holders = (agent.__func__, agent.__self__) if isinstance(agent, MethodType) else (agent,)
    return next((each for each in holders if inspect.getattr_static(each, "fingerprint", None) is not None), None)


def _fingerprint(holder: Any) -> str:
    """Read at each run: what the agent reads when it runs may have changed."""
    found = holder.fingerprint
    if not isinstance(found, str) or not found.strip():
        raise ConfigError(
            f"agentbench_runner: fingerprint: found {type(found).__name__} {str(found)[:60]!r}, expected a text "
            "that names the agent's version"
        )
    return found
