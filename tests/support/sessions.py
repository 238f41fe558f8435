"""Run sessions in this process with a project for each test, for tests of the plugin and of packs."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import metadata
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import pluggy._manager
import pytest
from support.bench import Bench

import pytest_agentbench

_LIBRARIES = ("openai", "httpcore2", "jsonschema", "regex", "filelock", "rich.table", "jsonpath", "requests")
_SITE_PACKAGES = sysconfig.get_path("purelib")
_ENTRY_POINTS = property(lru_cache(1_000)(metadata.Distribution.entry_points.fget))
_METADATA = property(lru_cache(1_000)(metadata.Distribution.metadata.fget))
_FIXTURE = type(pytest.fixture(lambda: None))
_fixture_names: WeakKeyDictionary[object, list[str]] = WeakKeyDictionary()
_hook_names: WeakKeyDictionary[object, list[str]] = WeakKeyDictionary()
_find_any_hook = getattr(pluggy._manager, "_static_hook_attr", None)


@cache
def import_rooms() -> None:
    """Import all modules that sessions in this process import, once, before the first session.

    pytester forgets the imports of a session; sessions share modules that are loaded already.
    """
    for module in pkgutil.walk_packages(pytest_agentbench.__path__, "pytest_agentbench."):
        if module.name != "pytest_agentbench.distributed.shares" and "__main__" not in module.name:
            importlib.import_module(module.name)
    for name in _LIBRARIES:
        importlib.import_module(name)


@pytest.fixture
def bench(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENROUTER_API_KEY",
        "PYTEST_ADDOPTS",
        "PYTEST_XDIST_WORKER",  # these tests may themselves run in a worker
        "PYTEST_XDIST_WORKER_COUNT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of a conftest.py that a test changes within a second
    read_installed_packages_once(monkeypatch)
    # pytest looks at all 2,300 names of its plugins for fixtures, and pluggy for hooks: a quarter of a session's time
    monkeypatch.setattr("_pytest.fixtures.dir", _list_fixtures, raising=False)
    monkeypatch.setattr("pluggy._manager.dir", _list_hooks, raising=False)
    monkeypatch.setattr("pluggy._manager._static_hook_attr", _find_hook, raising=False)
    return Bench(pytester)


def read_installed_packages_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share what is read of installed packages between sessions, of which pytest reads all in each: 6 of 28 ms.

    Packages outside of site-packages are read again: a test may add one between two sessions.
    """
    monkeypatch.setattr(
        metadata, "distributions", lambda: [package for path in sys.path for package in _installed(path)]
    )
    monkeypatch.setattr(metadata.Distribution, "entry_points", _ENTRY_POINTS)
    monkeypatch.setattr(metadata.Distribution, "metadata", _METADATA)
    monkeypatch.setattr(metadata, "distribution", _find_distribution)  # by name, of which pluggy and we ask the version


def _installed(path: str) -> Iterable[metadata.Distribution]:
    return _site_packages() if path == _SITE_PACKAGES else metadata.Distribution.discover(path=[path])


@cache
def _site_packages() -> list[metadata.Distribution]:
    return list(metadata.Distribution.discover(path=[_SITE_PACKAGES]))


def _find_distribution(name: str) -> metadata.Distribution:
    return _site_packages_by_name().get(name) or metadata.Distribution.from_name(name)


@cache
def _site_packages_by_name() -> dict[str, metadata.Distribution]:
    return {package.name: package for package in _site_packages()}


def _list_fixtures(holder: Any) -> list[str]:
    """Return the names of the fixtures of a module, or of the class of an object."""
    owner = holder if isinstance(holder, (ModuleType, type)) else type(holder)
    if owner not in _fixture_names:
        owners = owner.__mro__ if isinstance(owner, type) else [owner]
        values = {name: value for each in owners for name, value in vars(each).items()}
        _fixture_names[owner] = sorted(name for name, value in values.items() if type(value) is _FIXTURE)
    return _fixture_names[owner]


def _list_hooks(plugin: Any) -> list[str]:
    """Return the names of a module by which pytest recognizes hooks; of another plugin all names."""
    if not isinstance(plugin, ModuleType):
        return dir(plugin)
    if plugin not in _hook_names:
        _hook_names[plugin] = [name for name in dir(plugin) if name.startswith("pytest_")]
    return _hook_names[plugin]


def _find_hook(plugin: object, name: str) -> Any:
    """Return what pluggy's search for a hook returns, for the functions of a module without the search."""
    function = vars(plugin).get(name) if isinstance(plugin, ModuleType) else None
    return (function, function) if isinstance(function, FunctionType) else _find_any_hook(plugin, name)
