"""Fixtures of the tests of output folders."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from pytest_agentbench.store.database import Documents, open_documents
from pytest_agentbench.store.output_folder import DATABASE


@pytest.fixture
def documents(tmp_path) -> Documents:
    return open_documents(tmp_path)


@pytest.fixture
def asked(tmp_path):
    """Return a function that runs a statement on the database like another program."""

    def ask(statement: str, *values: object) -> list[tuple]:
        with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
            return database.execute(statement, values).fetchall()

    return ask
