"""Being another user than root for a while, where this process is root: root may open everything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user who may open nothing of root's."""
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
