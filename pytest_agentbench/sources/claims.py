"""Which data files a descriptor uses: a folder's collection reads these through the descriptor only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.config import is_descriptor_name, match_files, read
from pytest_agentbench.errors import ConfigError

_SETTLED = 2.0
"""Seconds after which a folder's time of change tells for sure that it is the same."""


class _Claims(NamedTuple):
    """What a descriptor uses: `listed` are its `files`, `others` its examples, `tree` the folder of its source.

    `unknown`: it cannot be read, so nobody knows.
    """

    listed: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    tree: str | None = None
    unknown: bool = False


def claimed(path: Path, top: Path) -> bool:
    """Whether a descriptor beside the file, or in a folder above it up to `top`, uses it.

    What an unreadable descriptor uses is not known: no file beside it is taken for a dataset of its own.
    """
    text = str(path)
    for descriptor in _descriptors_above(path, top):
        claims = _claims_of(descriptor)
        beside = os.path.dirname(descriptor) == os.path.dirname(text)
        if text in claims.listed or text in claims.others or (claims.unknown and beside):
            return True
        if claims.tree is not None and (text + os.sep).startswith(claims.tree + os.sep):
            return True
    return False


def descriptors_listing(path: Path, top: Path) -> list[Path]:
    """The descriptors beside the file, or in a folder above it up to `top`, that have it in their `files`."""
    text = os.path.normpath(path)
    return [Path(each) for each in _descriptors_above(path, top) if text in _claims_of(each).listed]


def _descriptors_above(path: Path, top: Path) -> Iterator[str]:
    for folder in path.parents:
        yield from _descriptors_in(str(folder))
        if folder == top or not folder.is_relative_to(top):
            return


def _descriptors_in(folder: str) -> tuple[str, ...]:
    """A folder is listed once: it may hold thousands of data files."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return ()
    settled = time.time() - changed / 1e9 > _SETTLED
    return _listed(folder, changed) if settled else _listed.__wrapped__(folder, changed)


@lru_cache(maxsize=10_000)
def _listed(folder: str, _changed: int) -> tuple[str, ...]:
    try:
        names = sorted(name for name in os.listdir(folder) if is_descriptor_name(name))
    except OSError:
        return ()
    return tuple(os.path.join(folder, name) for name in names)


def _claims_of(descriptor: str) -> _Claims:
    try:
        status = os.stat(descriptor)
    except OSError:
        return _Claims(unknown=True)
    return _read_claims(
        descriptor, status.st_mtime_ns, status.st_size, os.stat(os.path.dirname(descriptor)).st_mtime_ns
    )


@lru_cache(maxsize=1000)
def _read_claims(descriptor: str, _changed: int, _size: int, _folder_changed: int) -> _Claims:
    try:
        data: Any = read(Path(descriptor)).data
    except ConfigError:
        return _Claims(unknown=True)
    if not isinstance(data, dict) or "schema_version" not in data:
        return _Claims()  # another tool's
    folder = os.path.dirname(descriptor)
    shots = data.get("few_shot")
    place = str(data.get("source") or "").removeprefix("hf:")
    return _Claims(
        listed=_matches(data.get("files"), folder),
        others=_matches([shots.get("file")] if isinstance(shots, dict) else None, folder),
        tree=os.path.normpath(os.path.join(folder, place)) if place.startswith((".", "/")) else None,
    )


def _matches(patterns: object, folder: str) -> frozenset[str]:
    texts = [each for each in patterns if isinstance(each, str)] if isinstance(patterns, list) else []
    return frozenset(str(path) for text in texts for path in match_files(text, folder))
