"""Modules that the engine's threads import, which pytest does not rewrite."""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from pytest_agentbench.engine.user_code import PlainImports


def test_only_pytests_thread_rewrites_imported_modules(pytester: pytest.Pytester, monkeypatch) -> None:
    pytester.makepyfile(rewritten_helper="assert True")
    monkeypatch.syspath_prepend(pytester.path)
    pytest.register_assert_rewrite("rewritten_helper")
    before = [*sys.meta_path]
    remove = PlainImports().install()
    try:
        here = importlib.util.find_spec("rewritten_helper")
        with ThreadPoolExecutor(1) as pool:
            there = pool.submit(importlib.util.find_spec, "rewritten_helper").result()
            missing = pool.submit(importlib.util.find_spec, "no_such_module").result()
    finally:
        remove()
    assert not isinstance(here.loader, SourceFileLoader)
    assert isinstance(there.loader, SourceFileLoader)
    assert Path(there.origin) == pytester.path / "rewritten_helper.py"
    assert missing is None
    assert sys.meta_path == before
