"""The registry of extensions: the things that packs and a session's plugins add, by seam and name.

An installed distribution has an entry point for each of its packs, whose value is a Pack (pack.py). The module with the
Pack is small: it declares all names, and refers to objects that are imported when a file first uses their names::

    [project.entry-points."pytest_agentbench.packs"]
    my_agent = "my_package.pack:PACK"

Plugins and conftest files of a session add by hooks (hookspecs.py) to the same registry, until the session ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from types import ModuleType

from pytest_agentbench.entry_points import EntryPoint, read_entry_points
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.seams import FIELDS, SEAMS, Seam, resolve

TYPE_CHECKING = False  # not from typing: `agentbench --help` would take a quarter longer
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])

GROUP = "pytest_agentbench.packs"
_DISTRIBUTION = "pytest-agentbench"

_SANDBOXES = "pytest_agentbench.workspaces.sandboxes.kinds"
OWN: Mapping[str, Mapping[str, str]] = {
    "sandbox": {
        "docker": f"{_SANDBOXES}:DOCKER",
        "bubblewrap": f"{_SANDBOXES}:BUBBLEWRAP",
        "local": f"{_SANDBOXES}:LOCAL",
    },
}
"""Things of the package that are in the table without a pack, in the order in which messages name them."""

CONTAINERS = "docker"
"""The kind of sandbox, and the container engine, that run images if a file or an option names no other."""

_sessions: list[SessionExtensions] = []
"""Extensions of the sessions that run in this process, the innermost last."""
_problems: dict[str, None] = {}
"""Problems of installed packs, in the order in which they were found."""
_caches: list[Callable[[], None]] = []
_changes = 0


class Registration:
    """The name of a pack, and what it adds: field -> name -> object or reference. `Pack` is the typed constructor."""

    def __init__(self, name: str, fields: Mapping[str, Mapping[str, object]]) -> None:
        self.name, self.fields = name, fields
        for field, things in fields.items():
            if not isinstance(things, Mapping):
                found = type(things).__name__
                raise TypeError(f"{self!r}: {field}: found {found}, expected a mapping of names")

    def __repr__(self) -> str:
        return f"Pack({self.name!r})"


class Addition:
    """A thing by its seam and name. `value` is the thing or a reference to it, `owner` its pack or file in messages."""

    def __init__(self, seam: Seam, name: str, value: object, owner: str, distribution: str = "") -> None:
        self.seam, self.name, self.value, self.owner, self.distribution = seam, name, value, owner, distribution
        self.problem: str | None = None

    def __str__(self) -> str:
        return f"{self.owner} adds the {self.seam.what} {self.name!r}"

    @cached_property
    def thing(self) -> Any:
        """Return the thing. Raises ConfigError if it cannot be imported, and if it is of a wrong type."""
        if self.problem is not None:
            raise ConfigError(self.problem)
        thing: Any = self.value
        if isinstance(thing, str):
            try:
                thing = resolve(thing)
            except Exception as error:
                text = f"{self} as {self.value!r}, which cannot be imported: {_describe(error)}"
                raise ConfigError(text) from error
        if (misfit := self.seam.find_misfit(self.name, thing)) is not None:
            raise ConfigError(f"{self} as {misfit}")
        return thing


Table = dict[str, dict[str, Addition]]
"""Additions by the key of their seam, and by name."""


def cache_extensions(function: F) -> F:
    """Cache a function of extensions like functools.cache, until a session's plugins add or remove things."""
    cached = cache(function)
    _caches.append(cached.cache_clear)
    return cached  # type: ignore[return-value]


def count_changes() -> int:
    """Return the number of changes by sessions' plugins. It is part of the keys of caches, because files depend on
    it.
    """
    return _changes


def _forget() -> None:
    global _changes
    _changes += 1
    for clear in _caches:
        clear()


def extension_names(seam: str) -> frozenset[str]:
    """Return the names that are added under a seam; imports none of the things."""
    names = installed_names(seam)
    for session in _sessions:  # mostly none has any of the seam: this is asked for each record that is written
        if added := session.of(seam):
            names |= added.keys()
    return names


def installed_names(seam: str) -> frozenset[str]:
    """Return the names that packs add under a seam, without a session's plugins."""
    return frozenset(_installed().get(seam, ()))


def ordered_names(seam: str) -> list[str]:
    """Return the names that are added under a seam for messages: the package's own first, the others sorted."""
    own = OWN.get(seam, {})
    return [*own, *sorted(extension_names(seam) - own.keys())]


def find_extension(seam: str, name: str) -> Any | None:
    """Return the thing with this name, None if nothing has it.

    Raises ConfigError for a thing that cannot be imported or has a wrong type, and for a name that two packs add.
    """
    for session in reversed(_sessions):  # the innermost first
        if (addition := session.of(seam).get(name)) is not None:
            return addition.thing
    if (addition := _installed().get(seam, {}).get(name)) is not None:
        return addition.thing
    return None


def load_extensions(seam: str) -> Mapping[str, Any]:
    """Return all things of a seam by name, imported. Those that fail are left out, and noted in `list_problems`."""
    loaded = {}
    for name in sorted(extension_names(seam)):
        try:
            loaded[name] = find_extension(seam, name)
        except ConfigError as error:
            _problems[str(error)] = None
    return loaded


def session_extensions(seam: str) -> Mapping[str, Any]:
    """Return the things that plugins of the running session add under a seam, {} without a session."""
    if not _sessions:
        return {}
    return {name: addition.thing for name, addition in _sessions[-1].of(seam).items()}


def list_problems() -> list[str]:
    """Return the problems of packs that this process has found so far. Everything else keeps working."""
    return [*_problems]


def check_own_names() -> None:
    """Add a problem for each name of this package that another distribution's pack claims. The name keeps its meaning.

    Imports the rooms with our names, if there is such a pack.
    """
    for additions in _installed().values():
        for addition in additions.values():
            if addition.distribution != _DISTRIBUTION and addition.name in addition.seam.own_names():
                _problems[_describe_taken(addition)] = None


class SessionExtensions:
    """Additions of one session's plugins, until `close`.

    The state belongs to the process, because files are validated deep inside of models that do not get the session.
    Nested sessions (pytester's) have their own additions: a name of the inner session hides the outer one's.
    """

    def __init__(self) -> None:
        self._added: Table = {}
        _sessions.append(self)

    def of(self, seam: str) -> Mapping[str, Addition]:
        """Return the additions of this session's plugins under a seam."""
        return self._added.get(seam, {})

    def add(self, seam: str, name: str, thing: object, owner: str = "a plugin") -> None:
        """Add a thing, or a reference to it. `owner` is its pack or file in messages.

        Raises ConfigError for a name that exists already, and for a thing of a wrong type.
        """
        addition = Addition(SEAMS[seam], name, thing, owner)
        if not isinstance(thing, str):
            addition.thing  # noqa: B018 - raises for a wrong type
        # Additions of an outer session are no conflict: a project's tests may run its own conftest in an inner session.
        if name in self.of(seam) or name in installed_names(seam) or name in addition.seam.own_names():
            raise ConfigError(_describe_taken(addition))
        self._added.setdefault(seam, {})[name] = addition
        _forget()

    def close(self) -> None:
        """Remove the additions. May be called twice."""
        if self in _sessions:
            _sessions.remove(self)
            _forget()


def forget_packs() -> None:
    """Read the installed packs again at the next look-up: the path of modules has changed."""
    _installed.cache_clear()
    _forget()


@cache
def _installed() -> Table:
    """Return the additions of all installed packs. A wrong pack is one of the problems, and does not affect others."""
    _problems.clear()
    table: Table = {
        key: {name: Addition(SEAMS[key], name, value, "this package", _DISTRIBUTION) for name, value in things.items()}
        for key, things in OWN.items()
    }
    # Entry points of the old form last: a pack that has the same name counts
    for entry in sorted(read_entry_points(GROUP), key=lambda entry: " " in entry.name):
        for addition in _read_pack(entry):
            first = table.setdefault(addition.seam.key, {}).setdefault(addition.name, addition)
            if addition.name in OWN.get(addition.seam.key, ()):
                _problems[_describe_taken(addition)] = None
            elif addition.problem is None and first.value != addition.value:
                first.problem = f"{first}, and {addition}; uninstall one of them"
                _problems[first.problem] = None
    return table


def _read_pack(entry: EntryPoint) -> Iterator[Addition]:
    if " " in entry.name:
        yield from _read_old_form(entry)
        return
    owner = f"the pack {entry.name!r} of {entry.distribution}"
    try:
        pack = resolve(entry.value.partition("[")[0])  # without extras
        if not isinstance(pack, Registration):
            raise ConfigError(f"found {type(pack).__name__}, expected a Pack")
    except Exception as error:  # noqa: BLE001 - an import runs code of others
        _problems[f"{owner} is ignored: {entry.value}: {_describe(error)}"] = None
        return
    for field, things in pack.fields.items():
        for name, thing in things.items():
            yield Addition(FIELDS[field], name, thing, owner, entry.distribution)


def _read_old_form(entry: EntryPoint) -> Iterator[Addition]:
    """Yield an addition with a problem for an entry point `SEAM NAME`, the form of earlier versions."""
    key, _, name = entry.name.partition(" ")
    thing = repr(entry.value)
    if key == "source":
        name, *rest = name.split()
        patterns = [word for word in rest if not word.startswith("~")]
        words = [word[1:] for word in rest if word.startswith("~")]
        thing = f"SourceFiles({entry.value!r}, {patterns}, {words})"
    field = SEAMS[key].field if key in SEAMS else "FIELD"
    problem = (
        f"{entry.distribution}: the entry point {entry.name!r} has the form of earlier versions; write "
        f'`PACK = Pack(NAME, {field}={{{name!r}: {thing}}})`, and its entry point `NAME = "MODULE:PACK"`'
    )
    _problems[problem] = None
    if key in SEAMS:
        addition = Addition(SEAMS[key], name, entry.value, entry.distribution, entry.distribution)
        addition.problem = problem
        yield addition


def _describe_taken(addition: Addition) -> str:
    return f"{addition}, which exists already; choose another name"


def _describe(error: Exception) -> str:
    if isinstance(error, ImportError | AttributeError | ConfigError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class WithExtensions(Mapping[str, "T"]):
    """Things by name: those that are given, and those added under a seam, imported when one is first asked for."""

    def __init__(self, seam: str, given: Mapping[str, T]) -> None:
        self._seam, self._given = seam, given

    def __getitem__(self, name: str) -> T:
        if name in self._given:
            return self._given[name]
        found: T | None = find_extension(self._seam, name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in extension_names(self._seam)

    def __iter__(self) -> Iterator[str]:
        yield from self._given
        yield from sorted(extension_names(self._seam) - self._given.keys())

    def __len__(self) -> int:
        return len(self._given.keys() | extension_names(self._seam))


class LazyTable(Mapping[str, "T"]):
    """Things of this package by name, each in the module that `homes` names, imported when it is first asked for."""

    def __init__(self, homes: Mapping[str, str], find: Callable[[ModuleType, str], T] = getattr) -> None:
        self._homes, self._find = homes, find

    def __getitem__(self, name: str) -> T:
        return self._find(import_module(self._homes[name]), name)

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)
