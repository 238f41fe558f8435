"""The identities of agents and of plugins' additions, each computed once in a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getattr_static
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.identity.fingerprints import Plain

if TYPE_CHECKING:
    from pytest_agentbench.engine.agent_code import Code, CodeReader, Shown

_NO_HEAD: Shown = {}
_ADVICE = "; give it an attribute `fingerprint`, a text that names its version"


@dataclass(frozen=True, slots=True)
class Origin:
    """The functions of the fixture that made an agent and of the fixtures below it, with their parameters.

    `params` maps a fixture's name to `(parameter, its place)`. `is_arm`: the parameters make a variant of cases.
    """

    functions: tuple[Callable[..., Any], ...] = ()
    params: Mapping[str, tuple[Any, int]] = field(default_factory=dict)
    is_arm: bool = False


@dataclass(slots=True)
class _Agent:
    """An agent, the scope of its fixture, and the functions that made it. `code` is None until it is first needed."""

    value: object
    scope: object
    origin: Origin
    code: Code | None = None


@dataclass
class Identities:
    """The identities of user code in a session. `warn(text)` reports once each piece of code that cannot be identified.

    `open_reader` is called at the first piece of user code: most sessions have none.
    """

    open_reader: Callable[[], CodeReader]
    warn: Callable[[str], None]
    _agents: dict[int, list[_Agent]] = field(default_factory=dict)
    _brief: dict[Any, _Agent] = field(default_factory=dict)
    _parts: dict[tuple[str, str], Code] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _templates: dict[Path, str] = field(default_factory=dict)

    @cached_property
    def reader(self) -> CodeReader:
        """Return the session's reader of code."""
        return self.open_reader()

    @cached_property
    def arm_reader(self) -> CodeReader:
        """Return the session's reader of agents that differ in their fixtures' parameters."""
        return self.reader.for_arms()

    def made(self, agent: object, scope: object, origin: Origin, brief: Any = None) -> None:
        """Record the origin of an agent. `scope` is the scope of its fixture, as in StartGroup.

        `brief` is the fixture if its value lives shorter than the session: its next value replaces this one.
        """
        made = _Agent(agent, scope, origin)
        # Fixtures below different conftests may return one object: its identity in each scope is that of its fixture
        self._agents[id(agent)] = [*self._agents.get(id(agent), ()), made]
        if brief is not None:
            before, self._brief[brief] = self._brief.get(brief), made
            if before is not None:
                self._forget(before)

    def agent(self, agent: object, scope: object, name: str) -> Shown:
        """Return the identity of a user's agent under its name.

        Its attribute `fingerprint` replaces everything else. Raises ConfigError if the attribute is not a text.
        """
        if (version := _read_fingerprint(agent, "agentbench_runner", "agent")) is not None:
            return Plain(name=name, fingerprint=version)
        made, head = self._made(agent, scope), {"name": name}

        def read() -> Code:
            from pytest_agentbench.engine.agent_values import is_scalar

            origin, reader = made.origin, self.reader
            # The value of an object is not known, so its source must count
            if origin.is_arm and all(is_scalar(value) for value, _ in origin.params.values()):
                reader = self.arm_reader
            return reader.read(agent, origin.functions, origin.params)

        made.code = self._current(made.code, read, f"the agent {name}", head, _ADVICE)
        return made.code.shown

    def part(self, kind: str, name: str, thing: object) -> Shown:
        """Return the identity of the check, metric, runner ... of that name that a plugin added.

        Its attribute `fingerprint` replaces everything else. Raises ConfigError if the attribute is not a text.
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
        """Return the identity of a module that another process imports."""
        return self._part(kind, name, lambda: self.reader.read_module(name))

    def _part(
        self, kind: str, name: str, read: Callable[[], Code], label: str | None = None, advice: str = ""
    ) -> Shown:
        subject = f"a run or verdict with the {kind} {label or name}"
        code = self._parts[kind, name] = self._current(self._parts.get((kind, name)), read, subject, advice=advice)
        return code.shown

    def _current(
        self, code: Code | None, read: Callable[[], Code], subject: str, head: Shown = _NO_HEAD, advice: str = ""
    ) -> Code:
        """Return the identity after `head`: `code` if it still holds, else newly read. Warn once if it is unknown."""
        if code is not None and not code.late_files:
            return code
        # Here, because importing them takes milliseconds and most sessions have no user code
        from pytest_agentbench.engine.agent_code import Code
        from pytest_agentbench.engine.agent_values import UnknownCode

        try:
            if code is None:
                code = read()
                return Code(Plain({**head, **code.shown}), code.late_files)
            for file in code.late_files:
                self.reader.require_unchanged(file)
            return code
        except UnknownCode as error:
            if subject not in self._warned:
                self._warned.add(subject)
                self.warn(f"{subject} is never reused from the store: {error}{advice}")
            # A random token makes a fingerprint that no other run has, so no wrong run is reused
            return Code(Plain({**head, "untold": str(error), "token": uuid4().hex}))

    def _made(self, agent: object, scope: object) -> _Agent:
        if (records := self._agents.get(id(agent))) is None:
            records = self._agents[id(agent)] = [_Agent(agent, scope, Origin())]
        return next((made for made in reversed(records) if made.scope == scope), records[-1])

    def _forget(self, made: _Agent) -> None:
        others = [record for record in self._agents.pop(id(made.value)) if record is not made]
        if others:
            self._agents[id(made.value)] = others


def _read_fingerprint(thing: Any, where: str, kind: str) -> str | None:
    """Return the attribute `fingerprint`, a text or a function that returns one; None if there is none.

    A method has the attribute of its function or object. It is read at each run, because it may read a file.
    """
    if type(thing) is FunctionType and "fingerprint" not in thing.__dict__:
        return None  # nearly all agents: the static look-up below takes 20 times as long
    holders = (thing.__func__, thing.__self__) if type(thing) is MethodType else (thing,)
    # A static look-up, because a proxy or a mock has every attribute
    holder: Any = next((held for held in holders if getattr_static(held, "fingerprint", None) is not None), None)
    if holder is None:
        return None
    version = holder.fingerprint
    version = version() if callable(version) else version
    if not isinstance(version, str) or not version.strip():
        raise ConfigError(
            f"{where}: fingerprint: found {type(version).__name__} {str(version)[:60]!r}, expected a text that names "
            f"the {kind}'s version"
        )
    return version
