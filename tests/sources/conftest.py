"""Files of rows and descriptors below the root of a test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.sources.dataset import Dataset, open_dataset


@pytest.fixture
def rows(tmp_path):
    """Writes a JSONL file below the root."""
    (tmp_path / "pytest.ini").touch()

    def write(name: str, *values: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join((v if isinstance(v, str) else json.dumps(v)) + "\n" for v in values))
        return path

    return write


@pytest.fixture
def describe(tmp_path):
    """Writes a descriptor and opens its dataset."""
    (tmp_path / "pytest.ini").touch()

    def write(fields: dict | str, name: str = "data/dataset.yaml", opened: Path | None = None, **options) -> Dataset:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = fields if isinstance(fields, str) else yaml.safe_dump({"schema_version": 1, **fields})
        path.write_text(text)
        return open_dataset(opened or path, ConfigRoot(tmp_path), **options)

    return write
