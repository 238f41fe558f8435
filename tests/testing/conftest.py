"""The sample plugin as if it were installed, for tests that run in this process."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_agentbench import extensions

SAMPLE = Path(__file__).parents[1] / "sample_plugin"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what an installer notes of the sample: its name and its entry points."""
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["pytest_agentbench.packs"]
    folder = tmp_path_factory.mktemp("site")
    info = folder / "agentbench_sample-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}\n" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("".join(["[pytest_agentbench.packs]\n", *lines]))
    return folder


@pytest.fixture(autouse=True)
def sample(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sample plugin among the packs of this process."""
    monkeypatch.syspath_prepend(str(SAMPLE))
    monkeypatch.syspath_prepend(str(site))
    extensions._table.cache_clear()
    yield
    monkeypatch.undo()
    extensions._table.cache_clear()
