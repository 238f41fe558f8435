"""The sample plugin as if it were installed, for tests that run in this process."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_agentbench as ab
from pytest_agentbench import extensions
from pytest_agentbench.testing.samples import sample_case

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
    extensions.forget_packs()
    yield
    monkeypatch.undo()
    extensions.forget_packs()


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """A file of the sample's kind, with one bad row."""
    file = tmp_path / "sums.cards"
    file.write_text("cards\nWhat is 1 + 1? = 2\nWhat is 2 + 2?\nWhat is 3 + 3? = 6 | 1\n")
    return file


@pytest.fixture
def shell(tmp_path: Path) -> ab.Case:
    """A case of the sample's runner, with two turns."""
    first, second = (ab.Message(role="user", content=text) for text in ("echo Call. >> notes.txt", "cat notes.txt"))
    runner = ab.RunnerSpec(type="shell")
    return sample_case(path=tmp_path / "test.yaml", runner=runner, messages=(first,), turns=(second,))
