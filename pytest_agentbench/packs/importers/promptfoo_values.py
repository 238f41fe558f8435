"""Values of a promptfoo file with their place in it, and the data files that `file://` names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from yaml import Node, ScalarNode, SequenceNode

from pytest_agentbench.config.documents import Document, Loc, parse_yaml, read_bytes, read_document
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import Place

_OF_YAML_1_1 = re.compile(r"yes|no|on|off|[-+]?(?:[\d_]+:[\d:._]*|0[0-7_]+)", re.IGNORECASE)
"""Texts of YAML 1.2 that YAML 1.1 reads as a boolean or a number (017: for 17)."""


@dataclass(frozen=True)
class PlacedValue:
    """A value, its path from the top of its file, and the function that maps a path to a place."""

    value: Any
    loc: Loc
    locate: Callable[[Loc], Place]

    @property
    def place(self) -> Place:
        """Return file, line and column of the value, or of the nearest value around it."""
        return self.locate(self.loc)

    @property
    def where(self) -> str:
        """Return `file:line:column: tests[0].vars`."""
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.loc).removeprefix(".")
        if name:
            return f"{self.place}: {name}"
        return str(self.place)

    def below(self, part: int | str) -> PlacedValue:
        """Return the value at a key or an index; its value is None if it does not exist."""
        value, member = self.value, None
        if isinstance(value, dict):
            member = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            member = value[part]
        return PlacedValue(member, (*self.loc, part), self.locate)

    def each(self) -> Iterator[PlacedValue]:
        """Yield the elements of a list, or the value itself if it is not a list; nothing for a missing value."""
        if isinstance(self.value, list):
            yield from (self.below(at) for at in range(len(self.value)))
        elif self.value is not None:
            yield self


def read_file_value(path: Path) -> PlacedValue:
    """Read a YAML or JSON file as a whole.

    :raises ConfigError: it cannot be read, or has duplicate keys or tags.
    """
    document = read_document(path)
    if document.problems:
        raise document.error(document.problems)
    return PlacedValue(load_yaml_1_2(document), (), lambda loc: _place(document, loc))


def load_yaml_1_2(document: Document) -> Any:
    """Return the data by YAML 1.2: only `true` and `false` are booleans; `yes`, `12:30` and 017 are texts; 1.0 is 1."""
    # PyYAML reads YAML 1.1, promptfoo's js-yaml 1.2: an unquoted `yes` is a text there.
    if document.node is None:
        return document.data
    return _by_yaml_1_2(document.node, document.data)


def _by_yaml_1_2(node: Node, data: Any) -> Any:
    if isinstance(node, ScalarNode):
        plain = isinstance(data, bool | int | float) and _OF_YAML_1_1.fullmatch(node.value) is not None
        if plain:
            return node.value
        if isinstance(data, float) and data.is_integer():
            return int(data)
        return data
    if isinstance(node, SequenceNode):
        return [_by_yaml_1_2(item, value) for item, value in zip(node.value, data, strict=True)]
    nodes = {key.value: child for key, child in node.value}
    return {**data, **{name: _by_yaml_1_2(nodes[name], value) for name, value in data.items() if name in nodes}}


def make_row_value(value: Any, place: Place) -> PlacedValue:
    """Return a row of a table as a value whose parts all have the row's place."""
    return PlacedValue(value, (), lambda _: place)


def _place(document: Document, loc: Loc) -> Place:
    problem = document.problem(loc, "")
    return Place(str(document.path), problem.line, problem.column)


SCHEME = "file://"
_CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb", ".go", ".sh", ".exe")
_YAML = (".yaml", ".yml", ".json")
_MOST = 1000
_MAGIC = re.compile(r"[*?[]")


class BadReferenceError(Exception):
    """A reference cannot be followed; the text is the reason."""


def is_reference(value: Any) -> bool:
    """Return whether a value names a file."""
    return isinstance(value, str) and value.startswith(SCHEME)


def is_code(reference: str) -> bool:
    """Return whether a reference names a program, or a function in one."""
    return reference.removeprefix(SCHEME).partition(":")[0].lower().endswith(_CODE)


def find_named_files(reference: str, folder: Path) -> list[Path]:
    """Return the files that a reference names, which may be a glob pattern; at least one.

    :raises BadReferenceError: the reference names code, no file, or a file outside of the folder.
    """
    if is_code(reference):
        raise BadReferenceError(f"{reference} is code, which is not run")
    top = os.path.realpath(folder)
    outside = BadReferenceError(f"{reference} is outside of {folder}; copy it there")
    paths = []
    try:
        # `..` is resolved in the text of the pattern, before the file system is read.
        pattern = os.path.relpath(os.path.join(folder, reference.removeprefix(SCHEME)), folder)
        if pattern.split(os.sep)[0] == os.pardir:
            raise outside
        for path in islice(_matching(pattern, Path(top)), _MOST + 1):
            # Links are resolved first, so a link to a file outside is refused like a path to it.
            real = os.path.realpath(path)
            if os.path.commonpath([top, real]) != top:
                raise outside
            paths.append(Path(real))
    except ValueError as error:
        raise BadReferenceError(f"{reference} names no file: {error}") from error
    if not paths:
        raise BadReferenceError(f"{reference} names no file in or below {folder}")
    if len(paths) > _MOST:
        raise BadReferenceError(f"{reference} names more than {_MOST:,} files")
    return sorted(paths)


def _matching(pattern: str, top: Path) -> Iterator[Path]:
    """Yield the files below a folder that match. `**` follows no links, because links may form a circle."""
    if (top / pattern).is_file():
        yield top / pattern
    elif _MAGIC.search(pattern):
        # Until Python 3.13 a final `**` matches only folders.
        if pattern.endswith("**"):
            pattern += "/*"
        yield from filter(Path.is_file, top.glob(pattern))


def find_named_file(reference: str, folder: Path) -> Path:
    """Return the one file that a reference names."""
    paths = find_named_files(reference, folder)
    if len(paths) > 1:
        raise BadReferenceError(f"{reference} names {len(paths)} files, expected one")
    return paths[0]


def read_file_text(path: Path) -> str:
    """Return a file's text without white space around it."""
    try:
        return read_bytes(path).decode("utf-8-sig").strip()
    except ConfigError as error:
        raise BadReferenceError(str(error)) from error
    except UnicodeDecodeError as error:
        raise BadReferenceError(f"{path} is not text: {error.reason}") from error


def read_file_data(path: Path) -> Any:
    """Return the value of a YAML or JSON file, or the text of another file."""
    if path.suffix.lower() not in _YAML:
        return read_file_text(path)
    try:
        document = parse_yaml(read_bytes(path), path)
    except ConfigError as error:
        raise BadReferenceError(str(error)) from error
    if document.problems:
        raise BadReferenceError(str(document.error(document.problems)))
    return load_yaml_1_2(document)
