"""Run sessions in this process with a project for each test, for tests of the plugin and of packs."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from functools import cache

import pytest
from support.bench import Bench

import pytest_agentbench

_LIBRARIES = ("openai", "httpcore2", "jsonschema", "regex", "filelock", "rich.table", "jsonpath", "requests")


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
    # pytest looks for fixtures behind decorators in all 2,300 names of its own plugins: 9 of a session's 50 ms
    search = "_pytest.fixtures.FixtureManager._check_for_wrapped_fixture"
    monkeypatch.setattr(search, lambda *args: None, raising=False)
    return Bench(pytester)
