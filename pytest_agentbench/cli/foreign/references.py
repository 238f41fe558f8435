"""What `file://` names in a file of promptfoo: read as data, from the config's folder and below only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_agentbench.cli.foreign.spots import as_promptfoo_reads
from pytest_agentbench.config import parse_yaml, read_bytes
from pytest_agentbench.errors import ConfigError

SCHEME = "file://"
_CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb", ".go", ".sh", ".exe")
_YAML = (".yaml", ".yml", ".json")
_MOST = 1000
_MAGIC = re.compile(r"[*?[]")


class BadReference(Exception):
    """Why a reference cannot be followed."""


def is_reference(value: Any) -> bool:
    """Whether a value names a file."""
    return isinstance(value, str) and value.startswith(SCHEME)


def is_code(reference: str) -> bool:
    """Whether a reference names a program, or a function in one."""
    return reference.removeprefix(SCHEME).partition(":")[0].lower().endswith(_CODE)


def named_files(reference: str, folder: Path) -> list[Path]:
    """The files that a reference names, by a glob pattern too; at least one.

    :raises BadReference: it names code, nothing, or something outside of the folder.
    """
    if is_code(reference):
        raise BadReference(f"{reference} is code, which is not run")
    top = os.path.realpath(folder)
    outside = BadReference(f"{reference} lies outside of {folder}; copy it there")
    found = []
    try:
        pattern = os.path.relpath(os.path.join(folder, reference.removeprefix(SCHEME)), folder)
        if pattern.split(os.sep)[0] == os.pardir:
            raise outside
        for path in islice(_matching(pattern, Path(top)), _MOST + 1):
            real = os.path.realpath(path)
            if os.path.commonpath([top, real]) != top:
                raise outside
            found.append(Path(real))
    except ValueError as error:
        raise BadReference(f"{reference} names no file: {error}") from error
    if not found:
        raise BadReference(f"{reference} names no file in or below {folder}")
    if len(found) > _MOST:
        raise BadReference(f"{reference} names more than {_MOST:,} files")
    return sorted(found)


def _matching(pattern: str, top: Path) -> Iterator[Path]:
    """The files below a folder; `**` follows no links, which may lead around in circles."""
    if (top / pattern).is_file():
        yield top / pattern
    elif _MAGIC.search(pattern):
        pattern = f"{pattern}/*" if pattern.endswith("**") else pattern
        yield from (path for path in top.glob(pattern) if path.is_file())


def named_file(reference: str, folder: Path) -> Path:
    """The one file that a reference names."""
    found = named_files(reference, folder)
    if len(found) > 1:
        raise BadReference(f"{reference} names {len(found)} files, expected one")
    return found[0]


def text_of(path: Path) -> str:
    """A file's text without white space around it."""
    try:
        return read_bytes(path).decode("utf-8-sig").strip()
    except ConfigError as error:
        raise BadReference(str(error)) from error
    except UnicodeDecodeError as error:
        raise BadReference(f"{path} is no text: {error.reason}") from error


def data_of(path: Path) -> Any:
    """A YAML or JSON file's value; another file's text."""
    if path.suffix.lower() not in _YAML:
        return text_of(path)
    try:
        document = parse_yaml(read_bytes(path), path)
    except ConfigError as error:
        raise BadReference(str(error)) from error
    if document.problems:
        raise BadReference(str(document.error(document.problems)))
    return as_promptfoo_reads(document)
