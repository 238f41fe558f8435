"""Values of a file of promptfoo that know where they stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import Node, ScalarNode, SequenceNode

from pytest_agentbench.cli.foreign.drafts import Place
from pytest_agentbench.config import Document, Loc, read

_OF_YAML_1_1 = re.compile(r"yes|no|on|off|[-+]?(?:[\d_]+:[\d:._]*|0[0-7_]+)", re.IGNORECASE)
"""What YAML 1.1 takes for a boolean or a number, and 1.2 for a text (017: for 17)."""


@dataclass(frozen=True)
class Spot:
    """A value, the way to it from the top of its file, and what tells the place of such a way."""

    value: Any
    loc: Loc
    locate: Callable[[Loc], Place]

    @property
    def place(self) -> Place:
        """Line and column of the value, or as near as one gets."""
        return self.locate(self.loc)

    @property
    def where(self) -> str:
        """`file:line:column: tests[0].vars`."""
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.loc).removeprefix(".")
        return f"{self.place}: {name}" if name else str(self.place)

    def below(self, part: int | str) -> Spot:
        """What a key or an index leads to; None as its value where there is nothing."""
        value = self.value
        if isinstance(value, dict):
            found = value.get(str(part))
        else:
            found = value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None
        return Spot(found, (*self.loc, part), self.locate)

    def each(self) -> Iterator[Spot]:
        """The elements of a list; the value itself where it is none, and nothing where there is none."""
        if isinstance(self.value, list):
            yield from (self.below(at) for at in range(len(self.value)))
        elif self.value is not None:
            yield self


def top(path: Path) -> Spot:
    """A YAML or JSON file as a whole.

    :raises ConfigError: it cannot be read, or has duplicate keys or tags.
    """
    document = read(path)
    if document.problems:
        raise document.error(document.problems)
    return Spot(as_promptfoo_reads(document), (), lambda loc: _place(document, loc))


def as_promptfoo_reads(document: Document) -> Any:
    """The data by YAML 1.2: only `true` and `false` are booleans, `yes` is a text, as are `12:30` and 017; 1.0 is 1."""
    return document.data if document.node is None else _by_yaml_1_2(document.node, document.data)


def _by_yaml_1_2(node: Node, data: Any) -> Any:
    if isinstance(node, ScalarNode):
        plain = isinstance(data, bool | int | float) and _OF_YAML_1_1.fullmatch(node.value) is not None
        if plain:
            return node.value
        return int(data) if isinstance(data, float) and data.is_integer() else data
    if isinstance(node, SequenceNode):
        return [_by_yaml_1_2(item, value) for item, value in zip(node.value, data, strict=True)]
    nodes = {key.value: child for key, child in node.value}
    return {name: _by_yaml_1_2(nodes[name], value) if name in nodes else value for name, value in data.items()}


def of_row(value: Any, place: Place) -> Spot:
    """A row of a table: everything of it stands at the row's place."""
    return Spot(value, (), lambda _: place)


def _place(document: Document, loc: Loc) -> Place:
    problem = document.problem(loc, "")
    return Place(str(document.path), problem.line, problem.column)
