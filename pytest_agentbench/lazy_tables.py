"""Tables of things by name, each of which is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from pytest_agentbench.extensions import extension_names, find_extension

T = TypeVar("T")


class WithExtensions(Mapping[str, T]):
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


class LazyTable(Mapping[str, T]):
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
