"""Run sessions in this process with a project for each test, for tests of the plugin and of packs."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import metadata
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from support.bench import Bench

import pytest_agentbench

_LIBRARIES = ("openai", "httpcore2", "jsonschema", "regex", "filelock", "rich.table", "jsonpath", "requests")
_SITE_PACKAGES = sysconfig.get_path("purelib")
_ENTRY_POINTS = property(lru_cache(1_000)(metadata.Distribution.entry_points.fget))
_METADATA = property(lru_cache(1_000)(metadata.Distribution.metadata.fget))
_FIXTURE = type(pytest.fixture(lambda: None))
_fixture_names: WeakKeyDictionary[ModuleType, list[str]] = WeakKeyDictionary()


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
    # pytest looks at all 2,300 names of its plugins for fixtures. With the above it is 13 % of a session of one case
    monkeypatch.setattr("_pytest.fixtures.dir", _list_fixtures, raising=False)
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


def _installed(path: str) -> Iterable[metadata.Distribution]:
    return _site_packages() if path == _SITE_PACKAGES else metadata.Distribution.discover(path=[path])


@cache
def _site_packages() -> list[metadata.Distribution]:
    return list(metadata.Distribution.discover(path=[_SITE_PACKAGES]))


def _list_fixtures(holder: Any) -> list[str]:
    """Return `dir(holder)`; of a module only the names of fixtures."""
    if not isinstance(holder, ModuleType):
        return dir(holder)
    if holder not in _fixture_names:
        _fixture_names[holder] = sorted(name for name, value in vars(holder).items() if type(value) is _FIXTURE)
    return _fixture_names[holder]
