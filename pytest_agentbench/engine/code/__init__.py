"""Code as a part of identities: what it would take to notice that an agent, a check or a metric is another one.

The source of the modules it consists of, what their variables hold, the versions of the packages they import, and the
state of the object that is called. Equal in all processes and on all machines that have the same code.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from pytest_agentbench.engine.code.members import is_plain
from pytest_agentbench.engine.code.modules import Modules, Stamp, changed, summed
from pytest_agentbench.engine.code.places import Place, find, kind_of, place_of_class, place_of_function
from pytest_agentbench.engine.code.values import Untold, Values
from pytest_agentbench.store.fingerprints import plain


@dataclass(frozen=True, slots=True)
class Code:
    """The identity of a piece of code, `shown` as JSON. It holds as long as the files `unloaded` do not change."""

    shown: Mapping[str, Any]
    unloaded: Mapping[str, Stamp]


class CodeReader:
    """Tells the identity of code, for one session: a file is read once.

    `rootdir` is what paths are relative to, `began` when the session did, in ns since the epoch.
    """

    def __init__(self, rootdir: Path, began: int) -> None:
        self.rootdir, self.began = rootdir, began
        self._modules = Modules(rootdir, began)

    def of(self, thing: Any, made_by: Iterable[Callable[..., Any]] = (), **given: Any) -> Code:
        """The identity of a callable, of the functions that made it, and of what these were `given`.

        Raises Untold where it cannot be told: there is no source, or too much state.
        """
        values, makers = Values(self.rootdir, self.began), [each for each in made_by if not _is_of_others(each)]
        shown: dict[str, Any] = {"callable": values.of(thing)}
        if makers:
            shown["made_by"] = [values.of(each) for each in makers]
        shown |= values.named(given.items())
        roots = [place for each in (thing, *makers) for place in _sources(each)]
        reached = self._modules.reached(roots, values.reached)
        shown |= {"modules": summed(reached.modules), "values": summed(reached.values), "packages": reached.packages}
        return Code(plain({name: part for name, part in shown.items() if part != {}}), reached.unloaded)

    def of_file(self, file: Path) -> Code:
        """The identity of a Python file that another process runs, with the modules that it imports. Raises Untold."""
        return self._unloaded(Place(file.stem, str(file)), str(file.parent))

    def of_module(self, name: str) -> Code:
        """The same of a module that another process imports."""
        place = find(name)
        return Code({"missing": name}, {}) if place is None else self._unloaded(place, None)

    def _unloaded(self, place: Place, beside: str | None) -> Code:
        reached = self._modules.reached_elsewhere(place, beside)
        return Code({"modules": summed(reached.modules), "packages": reached.packages}, reached.unloaded)


def _is_of_others(function: Callable[..., Any]) -> bool:
    """Whether it is Python's, pytest's or ours."""
    return all(kind_of(place.name, place.file) == "other" for place in _sources(function))


def _sources(thing: Any) -> list[Place]:
    """The modules whose code is called. Raises Untold for what is not written in Python."""
    if isinstance(thing, functools.partial):
        return _sources(thing.func)
    if isinstance(thing, MethodType):
        return _sources(thing.__func__)
    if isinstance(thing, FunctionType):
        wrapped = vars(thing).get("__wrapped__")
        return [place_of_function(thing), *(_sources(wrapped) if callable(wrapped) else ())]
    if isinstance(thing, type):
        return [place_of_class(thing)]
    if inspect.getattr_static(thing, "__wrapped__", None) is not None:
        return _sources(thing.__wrapped__)
    place = place_of_class(type(thing))
    called = inspect.getattr_static(type(thing), "__call__", None)
    if not isinstance(called, FunctionType) and kind_of(place.name, place.file) != "own":
        raise Untold(f"{type(thing).__qualname__} is not written in Python")
    return [place]
