"""Find the files that a folder's collection reads as datasets."""

from __future__ import annotations

from pathlib import Path

from pytest_agentbench.sources.discovery import find_source
from pytest_agentbench.sources.rows import DATASETS


def is_dataset(path: Path, top: Path | None = None) -> bool:
    """Return whether a folder's collection takes the file as a dataset."""
    return find_source(path, top) is DATASETS
