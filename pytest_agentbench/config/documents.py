"""YAML and JSON text to plain data, safely, with the line and column of every value for those who complain about it."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode
from yaml.constructor import SafeConstructor

from pytest_agentbench.bounded.files import MAX_TEXT, FileRefusedError, KeyTwiceError, pairs_without_repeats, read_file
from pytest_agentbench.errors import ConfigError

Loc: TypeAlias = tuple[int | str, ...]
"""The way to a value: mapping keys and sequence indexes from the top of a file."""

MAX_BYTES = MAX_TEXT
MAX_DEPTH = 100
MAX_ALIASED = 100_000
"""How many values aliases may add to a file."""
MAX_NUMBER = 1000
"""Characters of a number: reading `1:59:59:...` takes time that grows with their square."""

_SHOWN = 60
"""So many characters of a text are quoted."""
_TAB = "found a tab, expected blanks; YAML is indented with blanks only"
_TOO_DEEP = f"found more than {MAX_DEPTH} levels of nesting"
_PREFIX = "tag:yaml.org,2002:"
_STR, _MAP, _SEQ, _MERGE = (_PREFIX + name for name in ("str", "map", "seq", "merge"))
_AS_TEXT = frozenset({_STR, _PREFIX + "timestamp", _PREFIX + "value"})
_IMPLICIT = yaml.CSafeLoader.yaml_implicit_resolvers
_scalars = SafeConstructor()


class Problem(NamedTuple):
    """Something wrong at a place of a file; `line` and `column` count from 1."""

    line: int
    column: int
    message: str


@dataclass
class Document:
    """One parsed file. `problems` are faults of the text itself, such as duplicate keys.

    `place` returns line and column of a value, for data that are not the whole text.
    """

    path: Path
    text: bytes
    data: Any
    problems: list[Problem] = field(default_factory=list)
    node: Node | None = None
    place: Callable[[Loc], tuple[int, int]] | None = None
    _children: dict[int, dict[Any, tuple[Node | None, Node]]] = field(default_factory=dict, repr=False)
    """The children of each node that a problem led through, by the node's id: a file may have thousands of problems."""

    def problem(self, loc: Loc, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem at the value that `loc` leads to, or the nearest one; with `at_key`, at its key."""
        line, column = self._place(loc, at_key) if self.place is None else self.place(loc)
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
        name = name.replace("\n", "\\n")  # a key may have lines, a problem has one
        return Problem(line, column, f"{name}: {message}" if name else message)

    def error(self, problems: Iterable[Problem]) -> ConfigError:
        """Return all problems as one error, in the order of the file."""
        unique = sorted(set(problems), key=lambda problem: (problem.line, problem.column, problem.message))
        return ConfigError("\n".join(f"{self.path}:{p.line}:{p.column}: {p.message}" for p in unique))

    def _place(self, loc: Loc, at_key: bool) -> tuple[int, int]:
        """Return line and column, from 1. A JSON file is composed as YAML for it, which nearly every JSON text is."""
        node = self._composed
        if node is None:
            return 1, 1
        mark = node.start_mark
        for part in loc:
            key, child = self._find_child(node, part)
            if child is None:
                break
            node = child
            mark = key.start_mark if key is not None and at_key else child.start_mark
        return mark.line + 1, mark.column + 1

    @cached_property
    def _composed(self) -> Node | None:
        try:
            return self.node or _Loader(self.text).get_single_node()
        except yaml.YAMLError:
            return None

    def _find_child(self, node: Node, part: int | str) -> tuple[Node | None, Node | None]:
        """Return key node and value node of one part of the way; (None, None) if there is no such part."""
        if isinstance(node, MappingNode):
            # Keys are ids of nodes, which stay valid because `_composed` keeps all nodes alive.
            if (children := self._children.get(id(node))) is None:
                # Reversed, so that of a key that is there twice the first counts
                pairs = ((key, value) for key, value in reversed(node.value) if isinstance(key, ScalarNode))
                children = self._children[id(node)] = {key.value: (key, value) for key, value in pairs}
            return children.get(part, (None, None))
        if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            return None, node.value[part]
        return None, None


def read_document(path: Path) -> Document:
    """Return the document of a YAML file.

    :raises ConfigError: it cannot be read, is too large, or is no YAML that is safe to load.
    """
    return parse_yaml(read_bytes(path), path)


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Read the file's bytes, at most `limit` of them. Raises ConfigError."""
    try:
        return read_file(path, limit)
    except FileRefusedError as error:
        advice = "; move data out of the file" if error.errno == errno.EFBIG else ""
        raise ConfigError(f"{path}:1:1: {error.strerror}{advice}") from error
    except OSError as error:
        raise ConfigError(f"{path}:1:1: cannot be read: {error.strerror or error}") from error


def parse_yaml(text: bytes, path: Path) -> Document:
    """Return YAML 1.1 as PyYAML's safe loader reads it, but keys and dates stay texts, and numbers are finite."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, path) from error
    finally:
        loader.dispose()
    document = Document(path, text, None, node=node)
    if node is not None:
        document.data = _Builder(document).value(node, 0)
    return document


def parse_json(text: bytes, path: Path) -> Document:
    """Return JSON (UTF-8, BOM allowed) without duplicate keys, NaN or Infinity."""

    def constant(name: str) -> Any:
        raise ValueError(f"found {name}, expected a finite number")

    try:
        data = json.loads(text.decode("utf-8-sig"), object_pairs_hook=pairs_without_repeats, parse_constant=constant)
    except KeyTwiceError as error:
        # Nearly every JSON text is YAML, of which the places are known
        twice = parse_yaml(text, path)
        raise twice.error(twice.problems or [Problem(1, 1, f"not valid JSON: {error}")]) from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}:1:1: not valid JSON: {error}") from error
    return Document(path, text, data)


class _TooDeep(yaml.MarkedYAMLError):
    def __init__(self, mark: yaml.Mark) -> None:
        super().__init__(_TOO_DEEP, mark)


class _Loader(yaml.CSafeLoader):
    """The C parser with the parts of node composition that are Python made cheap, and its recursion bounded."""

    depth = 0

    # libyaml composes nodes recursively in C. It calls these two methods around each level, so they can
    # bound the depth.
    def descend_resolver(self, parent: Node | None, _index: Any) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH and parent is not None:
            raise _TooDeep(parent.start_mark)

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            if implicit[0]:
                # As PyYAML's resolver does, without its path resolvers, which nobody here registers.
                for tag, pattern in _IMPLICIT.get(value[:1], ()):
                    if pattern.match(value):
                        return str(tag)
            return _STR
        if kind is MappingNode:
            return _MAP
        return _SEQ


class _Builder:
    """Builds data from nodes in one pass. An alias is built again at each use, so the total is bounded."""

    def __init__(self, document: Document) -> None:
        self.document = document
        # A file without aliases has fewer values than bytes, so only aliases can use up this budget.
        self.left = MAX_ALIASED + len(document.text)

    def value(self, node: Node, depth: int) -> Any:
        if isinstance(node, ScalarNode):
            # `is`: `_Loader.resolve` returns this very object, and most nodes of a file are texts.
            if node.tag is _STR:
                return node.value
            return self.scalar(node)
        # Counted before the children are built: `a: [*b, *b]`, nine levels deep, expands to a billion values.
        self.left -= len(node.value)
        if self.left < 0 or depth > MAX_DEPTH:
            raise self.document.error([_problem_at(node, "aliases expand to too many values; use no aliases")])
        if node.tag not in (_MAP, _SEQ):
            self.complain(node, _refuse_tag(node))
        depth += 1
        if isinstance(node, MappingNode):
            return self.mapping(node, depth)
        return [self.value(item, depth) for item in node.value]

    def mapping(self, node: MappingNode, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: list[Node] = []
        for key, child in node.value:
            name = key.value
            if key.tag is not _STR:
                if key.tag == _MERGE:
                    merged.append(child)
                    continue
                if not isinstance(key, ScalarNode):
                    self.complain(key, "found a collection as a key, expected a text")
                    continue
            if name in data:
                self.complain(key, f"duplicate key {name!r}; remove one of them")
            data[name] = self.value(child, depth)
        for child in merged:
            for mapping in self.merge_sources(child, depth):
                data = {**mapping, **data}  # own keys win over merged ones, earlier sources over later ones
        return data

    def merge_sources(self, node: Node, depth: int) -> list[dict[str, Any]]:
        """Return the mappings that `<<` names: one, or a list of them of which the first wins."""
        value = self.value(node, depth)
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            self.complain(node, "found something else after '<<', expected a mapping or a list of mappings")
            return []
        return sources

    def scalar(self, node: ScalarNode) -> Any:
        tag = node.tag
        if tag in _AS_TEXT:
            return node.value
        try:
            if len(node.value) > MAX_NUMBER:  # Python's conversion takes time that grows with the square
                raise ValueError
            if tag == _PREFIX + "bool":
                return _scalars.construct_yaml_bool(node)
            if tag == _PREFIX + "int":
                return _scalars.construct_yaml_int(node)
            if tag == _PREFIX + "float":
                number = _scalars.construct_yaml_float(node)
                if math.isfinite(number):
                    return number
                raise ValueError
            if tag == _PREFIX + "null":
                return None
        except (ValueError, KeyError, IndexError, OverflowError):
            self.complain(node, f"found {node.value[:40]!r}, expected a finite {tag.removeprefix(_PREFIX)}")
            return None
        self.complain(node, _refuse_tag(node))
        return None

    def complain(self, node: Node, message: str) -> None:
        self.document.problems.append(_problem_at(node, message))


def _refuse_tag(node: Node) -> str:
    tag = str(node.tag).replace(_PREFIX, "!!", 1)
    return f"the tag {tag} is not allowed, only plain YAML values are; put a text in quotes"


def _problem_at(node: Node, message: str) -> Problem:
    return Problem(node.start_mark.line + 1, node.start_mark.column + 1, message)


def _syntax_error(error: Exception, text: bytes, path: Path) -> ConfigError:
    if getattr(error, "problem_mark", None) or getattr(error, "context_mark", None):
        line, column, reason = _explain_syntax(error, text.decode("utf-8-sig", "replace").splitlines())
        return ConfigError(f"{path}:{line + 1}:{column + 1}: not valid YAML: {reason}")
    position = getattr(error, "position", 0)
    before: Sequence[bytes] = text[:position].split(b"\n")
    reason = getattr(error, "reason", str(error))
    advice = "remove them" if "control characters" in reason else "save the file as UTF-8"
    return ConfigError(f"{path}:{len(before)}:{len(before[-1]) + 1}: not valid YAML: {reason}; {advice}")


def _explain_syntax(error: Any, lines: Sequence[str]) -> tuple[int, int, str]:
    """Return line and column (from 0) of a syntax error where its author would look for it, with advice."""
    context, problem = error.context or "", getattr(error, "problem", None) or ""
    mark = getattr(error, "problem_mark", None) or error.context_mark
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in (indent := line[: len(line) - len(line.lstrip())]):
        return mark.line, indent.index("\t"), _TAB
    if "maximum nesting depth" in problem:  # libyaml counts to 1,000 itself, before a node of the first level is made
        return mark.line, mark.column, _TOO_DEEP
    rest = line[mark.column :].strip()
    if "cannot start any token" in problem:
        if line[mark.column :].startswith("\t"):
            return mark.line, mark.column, _TAB
        return mark.line, mark.column, f"found {rest[:1]!r}, which cannot begin a text; put the text in quotes"
    if "block sequence entries are not allowed" in problem:
        reason = "found a '-' after a key; begin the list on a new line, or put the text in quotes"
        return mark.line, mark.column, reason
    if "undefined alias" in problem:
        said = f"found {rest[:_SHOWN]!r}, which refers to a missing anchor; put the text in quotes"
        return mark.line, mark.column, said
    if "unknown escape" in problem:
        said = f"found '{rest[:2]}' in double quotes, which is not an escape sequence; put the text in single quotes"
        return mark.line, mark.column, said
    if "mapping values are not allowed" in problem:
        reason = "found a second ':' in the line, or a line with another indentation than its neighbours"
        return mark.line, mark.column, f"{reason}; put a text with ':' in quotes, or mend the indentation"
    if "could not find expected ':'" in problem:
        begun = error.context_mark
        word = "".join(lines[begun.line : begun.line + 1])[begun.column :].strip()
        return begun.line, begun.column, f"found {word[:_SHOWN]!r}, expected 'key: value' with a blank after the colon"
    if "quoted scalar" in context:
        return error.context_mark.line, error.context_mark.column, "the quote that begins here is never closed"
    if "flow" in context:
        begun = error.context_mark
        at = begun.line, begun.column
        bracket = "".join(lines[begun.line : begun.line + 1])[begun.column :][:1]
        if bracket not in ("[", "{"):  # libyaml names the end of the text instead
            at, bracket = _find_last_bracket(lines[: mark.line + 1], mark.column)
        return *at, f"{bracket!r} begins here and is not closed, or a comma is missing, before line {mark.line + 1}"
    if "did not find expected key" in problem:
        reason = f"found {rest[:_SHOWN]!r}, which does not continue the lines before it"
        return (
            mark.line,
            mark.column,
            f"{reason}; put the whole text in quotes, or indent the line as its neighbours are",
        )
    if "expected '-' indicator" in problem:
        reason = f"found {rest[:_SHOWN]!r}, expected a '-' as before it"
        return mark.line, mark.column, f"{reason}; indent the line as its neighbours are"
    if "single document" in context:
        return mark.line, mark.column, "found a second document after '---', expected one; move it to another file"
    return mark.line, mark.column, ", ".join(filter(None, (context, problem)))


def _find_last_bracket(lines: Sequence[str], column: int) -> tuple[tuple[int, int], str]:
    """Return line and column, from 0, of the last bracket that opens before the end of these lines, and it."""
    for number in range(len(lines) - 1, -1, -1):
        text = lines[number][:column] if number == len(lines) - 1 and column else lines[number]
        if (at := max(text.rfind("["), text.rfind("{"))) >= 0:
            return (number, at), text[at]
    return (len(lines) - 1, column), "["


def make_located_error(path: Path, problems: Iterable[tuple[Loc, str]]) -> ConfigError:
    """Return the error of a file's problems that were found later, at their places. The file is read again."""
    document = read_document(path)
    return document.error(document.problem(loc, message) for loc, message in problems)
