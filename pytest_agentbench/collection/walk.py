"""The folders that pytest collects: followed links, and the maximum depth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_agentbench.collection.roots import session_roots
from pytest_agentbench.config.folders import describe_depth
from pytest_agentbench.options import Settings


class DeepFolder(pytest.Directory):
    """A folder that is nested too deep. Its collection is an error."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Raise the error."""
        raise self.CollectError(describe_depth(self.path))


def is_in_guest(link: Path, config: pytest.Config, settings: Settings) -> bool:
    """Return whether a link is in a guest, whose links to folders are not followed."""
    try:
        return session_roots(config, settings).of(link).is_guest
    except pytest.UsageError:
        return False  # the first file with cases raises it
