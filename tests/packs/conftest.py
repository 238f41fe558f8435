"""A project for each test that runs sessions; the others pay nothing for them."""

from __future__ import annotations

import pytest
from support.sessions import bench, import_rooms

__all__ = ["bench"]


@pytest.fixture(autouse=True)
def _rooms(request: pytest.FixtureRequest) -> None:
    if "pytester" in request.fixturenames:
        import_rooms()
