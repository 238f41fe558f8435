"""The folders that pytest collects: which links are followed, how deep folders may lie, and where no cases are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_agentbench.collection.roots import session_roots
from pytest_agentbench.config.base import is_inside
from pytest_agentbench.config.folders import describe_depth
from pytest_agentbench.options import Settings


class DeepFolder(pytest.Directory):
    """A folder that is nested too deep: an error in place of what lies in it."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Raise the error."""
        raise self.CollectError(describe_depth(self.path))


def leads_astray(link: Path, config: pytest.Config, settings: Settings) -> bool:
    """Return whether a link to a folder is not to be followed: it leads to a folder around it, or lies in a guest.

    Two links to `..` in one folder are 2^n paths of n links. Links in a guest can do so without leading around.
    """
    real = os.path.realpath(link)
    if any(is_inside(os.path.realpath(folder), real) for folder in link.parents):
        return True
    try:
        return session_roots(config, settings).of(link).is_guest
    except pytest.UsageError:
        return False  # the first file with cases raises it
