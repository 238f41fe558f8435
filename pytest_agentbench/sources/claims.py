"""Which data files a descriptor uses: a folder's collection reads these through the descriptor only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from pytest_agentbench.config import Scope, is_descriptor_name, is_reports_name, match_files, read, resolve_path
from pytest_agentbench.errors import ConfigError

_SETTLED = 2.0
"""Seconds after which a folder's time of change tells for sure that it is the same."""


class _Claims(NamedTuple):
    """What a descriptor uses: `listed` are its `files`, `others` its examples, `tree` the folder of its source.

    Of a reports.yaml all files of rows are `others`. `unknown`: it cannot be read, or says neither files nor source,
    so nobody knows.
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
        claims = _claims_of(descriptor, top)
        beside = os.path.dirname(descriptor) == os.path.dirname(text)
        if text in claims.listed or text in claims.others or (claims.unknown and beside):
            return True
        if claims.tree is not None and (text + os.sep).startswith(claims.tree + os.sep):
            return True
    return False


def descriptors_listing(path: Path, top: Path) -> list[Path]:
    """The descriptors beside the file, or in a folder above it up to `top`, that have it in their `files`."""
    text = os.path.normpath(path)
    return [Path(each) for each in _descriptors_above(path, top) if text in _claims_of(each, top).listed]


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
        names = sorted(name for name in os.listdir(folder) if is_descriptor_name(name) or is_reports_name(name))
    except OSError:
        return ()
    return tuple(os.path.join(folder, name) for name in names)


def _claims_of(descriptor: str, top: Path) -> _Claims:
    folder = os.path.dirname(descriptor)
    root = str(top) if (folder + os.sep).startswith(str(top) + os.sep) else folder
    try:
        status = os.stat(descriptor)
        return _read_claims(descriptor, root, status.st_mtime_ns, status.st_size, os.stat(folder).st_mtime_ns)
    except OSError:
        return _Claims(unknown=True)


@lru_cache(maxsize=1000)
def _read_claims(descriptor: str, root: str, _changed: int, _size: int, _folder_changed: int) -> _Claims:
    try:
        data: Any = read(Path(descriptor)).data
    except ConfigError:
        return _Claims(unknown=True)
    if not isinstance(data, dict) or "schema_version" not in data:
        return _Claims()  # another tool's
    if is_reports_name(os.path.basename(descriptor)):
        return _Claims(others=_of_reports(data, Scope(os.path.dirname(descriptor), os.path.realpath(root))))
    files, source, shots = data.get("files"), data.get("source"), data.get("few_shot")
    if not (_are_texts(files) or isinstance(source, str)):
        return _Claims(unknown=True)
    scope = Scope(os.path.dirname(descriptor), os.path.realpath(root))
    place = str(source or "").removeprefix("hf:")
    return _Claims(
        listed=_matches(files, scope),
        others=_matches([shots.get("file")] if isinstance(shots, dict) else None, scope),
        tree=os.path.normpath(os.path.join(scope.folder, place)) if place.startswith((".", "/")) else None,
    )


def _of_reports(data: dict[str, Any], scope: Scope) -> frozenset[str]:
    """The files of rows that a reports.yaml names."""
    patterns = data.get("reports")
    single = [data.get(name) for name in ("queries", "criteria", "references")]
    texts = [text for text in (*(patterns if isinstance(patterns, list) else ()), *single) if isinstance(text, str)]
    return _matches(texts, scope)


def _matches(patterns: object, scope: Scope) -> frozenset[str]:
    """The files that patterns name. One that leaves the root is refused when the descriptor is read."""
    found: set[str] = set()
    for text in patterns if _are_texts(patterns) else ():
        try:
            resolve_path(text, scope)
            found.update(map(str, match_files(text, scope.folder)))
        except ValueError:
            continue
    return frozenset(found)


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
