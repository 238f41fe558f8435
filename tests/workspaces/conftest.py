"""The real podman, and a stub of it that needs no installation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.docker_here import IMAGE
from support.podman_here import PodmanLacks, podman
from support.stub_engine import installed


@pytest.fixture(scope="session")
def real_podman() -> Iterator[str]:
    """Podman with the image for tests."""
    try:
        with podman() as program:
            yield program
    except PodmanLacks as lacks:
        pytest.skip(f"podman cannot run here: {lacks}")


@pytest.fixture
def stub(tmp_path: Path) -> str:
    """An engine that isolates nothing, with the name of the image for tests."""
    (tmp_path / "programs").mkdir()
    return installed(tmp_path / "stub", {IMAGE: tmp_path / "programs"})


@pytest.fixture(params=["stub", pytest.param("real_podman", marks=pytest.mark.full)])
def engine(request: pytest.FixtureRequest) -> str:
    """Both, one after the other."""
    return str(request.getfixturevalue(request.param))
