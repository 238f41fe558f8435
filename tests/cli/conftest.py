"""Fixtures of the tests of `agentbench store`."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_support import Shop
from support.stored import as_files

from pytest_agentbench.cli import main


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path)


@pytest.fixture(params=[Path, as_files], ids=["database", "files"])
def turn(request):
    """Turn the documents of a store into files, as on a network file system, or leave the store as it is."""
    return request.param


@pytest.fixture
def store(capsys):
    def call(*argv):
        code = main(["store", *map(str, argv)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call
