"""The identities of agents and of what plugins add, each told once in a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getattr_static
from pathlib import Path
from time import perf_counter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.identity.fingerprints import Plain

if TYPE_CHECKING:
    from pytest_agentbench.engine.agent_code import Code, CodeReader, Stamp

Shown = Mapping[str, Any]
"""An identity as JSON, to be part of a fingerprint."""

_NO_HEAD: Shown = {}
_ADVICE = "; give it an attribute `fingerprint`, a text that names its version"


class Origin(NamedTuple):
    """The functions of the fixture that made an agent and of those it asks for, and their parameters.

    `params` maps a fixture's name to `(parameter, its place)`.
    """

    functions: tuple[Callable[..., Any], ...] = ()
    params: Mapping[str, tuple[Any, int]] = {}


@dataclass(slots=True)
class _Told:
    """An identity, and when it is to be looked at again whether it holds (by the performance counter)."""

    shown: Shown
    unloaded: Mapping[str, Stamp]
    due: float = 0.0

    def find_changed(self) -> str | None:
        """Return the first file that is not as it was. Looking takes at most a hundredth of the time."""
        begun = perf_counter()
        # Modules that are loaded cannot change any more; only what an agent may still import, or start, can
        if not self.unloaded or begun < self.due:
            return None
        from pytest_agentbench.engine.agent_code import find_changed

        found = find_changed(self.unloaded)
        ended = perf_counter()
        self.due = ended + 100 * (ended - begun)
        return found


@dataclass(slots=True)
class _Agent:
    """An agent, where its fixture applies, and what made it."""

    value: object
    scope: object
    origin: Origin
    told: _Told | None = None


@dataclass
class Identities:
    """The identities of code that a session knows. `warn(text)` is told once what can never be reused, and why.

    `open_reader` is called with the first code that is not this package's own: most sessions have none.
    """

    open_reader: Callable[[], CodeReader]
    warn: Callable[[str], None]
    _agents: dict[int, list[_Agent]] = field(default_factory=dict)
    _brief: dict[Any, _Agent] = field(default_factory=dict)
    _parts: dict[tuple[str, str], _Told] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _templates: dict[Path, str] = field(default_factory=dict)

    @cached_property
    def reader(self) -> CodeReader:
        """Return the session's reader of code."""
        return self.open_reader()

    def made(self, agent: object, scope: object, origin: Origin, brief: Any = None) -> None:
        """Remember what made an agent. `scope` is where the fixture applies, as jobs' groups say it.

        `brief` is the fixture where its value lives shorter than the session: the next one takes its place.
        """
        made = _Agent(agent, scope, origin)
        # Several fixtures may give one object, below different conftests: each is told by what made it there
        self._agents[id(agent)] = [*self._agents.get(id(agent), ()), made]
        if brief is not None:
            before, self._brief[brief] = self._brief.get(brief), made
            if before is not None:
                self._forget(before)

    def agent(self, agent: object, scope: object, name: str) -> Shown:
        """Return the identity of a user's agent, by the name that it goes by.

        Its attribute `fingerprint` replaces everything else. Raises ConfigError where that is no text.
        """
        if (version := _read_fingerprint(agent, "agentbench_runner", "agent")) is not None:
            return Plain(name=name, fingerprint=version)
        made = self._made(agent, scope)
        made.told = self._current(
            made.told, lambda: _code_of(self.reader, agent, made.origin), f"the agent {name}", {"name": name}, _ADVICE
        )
        return made.told.shown

    def part(self, kind: str, name: str, thing: object) -> Shown:
        """Return the identity of what a plugin added: the check, metric, runner ... of that name.

        Its attribute `fingerprint` replaces everything else. Raises ConfigError where that is no text.
        """
        if (version := _read_fingerprint(thing, f"{kind} {name}", kind)) is not None:
            return Plain(fingerprint=version)
        return self._part(kind, name, lambda: self.reader.read(thing), advice=_ADVICE)

    def template(self, path: Path) -> str:
        """Return the digest of a workspace template. Raises ConfigError for one that no workspace can be a copy of."""
        if path not in self._templates:
            from pytest_agentbench.workspaces.template import template_digest

            self._templates[path] = template_digest(path)
        return self._templates[path]

    def file(self, kind: str, path: Path) -> Shown:
        """Return the identity of a Python file that another process runs."""
        return self._part(kind, str(path), lambda: self.reader.read_file(path), path.name)

    def module(self, kind: str, name: str) -> Shown:
        """Return the same of a module that it imports."""
        return self._part(kind, name, lambda: self.reader.read_module(name))

    def _part(
        self, kind: str, name: str, read: Callable[[], Code], shown: str | None = None, advice: str = ""
    ) -> Shown:
        told, what = self._parts.get((kind, name)), f"what the {kind} {shown or name} takes part in"
        told = self._parts[kind, name] = self._current(told, read, what, advice=advice)
        return told.shown

    def _current(
        self, told: _Told | None, read: Callable[[], Code], what: str, head: Shown = _NO_HEAD, advice: str = ""
    ) -> _Told:
        """Return an identity as it was told, or is now, after its `head`; what nobody can tell is unlike any other."""
        from pytest_agentbench.engine.agent_state import UnknownCode

        try:
            if told is None:
                code = read()
                return _Told(Plain({**head, **code.shown}), code.unloaded)
            if (file := told.find_changed()) is not None:
                raise UnknownCode(f"{Path(file).name} was changed while the session ran")
            return told
        except UnknownCode as error:
            if what not in self._warned:
                self._warned.add(what)
                self.warn(f"{what} is never reused from the store: {error}{advice}")
            # A token of its own: a fingerprint that no other run has, so that nothing wrong is ever reused
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
    from pytest_agentbench.engine.agent_state import is_plain

    # Objects of a parametrised fixture may look alike as JSON: their place in the list tells them apart
    params = {name: param if is_plain(param) else [param, at] for name, (param, at) in origin.params.items()}
    return reader.read(agent, origin.functions, **({"params": params} if params else {}))


def _read_fingerprint(thing: Any, where: str, kind: str) -> str | None:
    """Return the attribute `fingerprint`, a text or a function that returns one; None where there is none.

    A method has that of its function or object. Read at each run: what code reads when it runs may have changed.
    """
    if type(thing) is FunctionType and "fingerprint" not in thing.__dict__:
        return None  # nearly all agents: to look statically takes 20 times as long
    holders = (thing.__func__, thing.__self__) if type(thing) is MethodType else (thing,)
    # Statically: a proxy or a mock answers to any name
    holder: Any = next((each for each in holders if getattr_static(each, "fingerprint", None) is not None), None)
    if holder is None:
        return None
    found = holder.fingerprint
    found = found() if callable(found) else found
    if not isinstance(found, str) or not found.strip():
        raise ConfigError(
            f"{where}: fingerprint: found {type(found).__name__} {str(found)[:60]!r}, expected a text that names the "
            f"{kind}'s version"
        )
    return found
