"""Rows of a session: the values that figures need are in memory, the rest is on disk in the journal.

A row as a dict takes 2 kB and more. The 10,000 rows of a long session would be most of its memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from pydantic_core import PydanticSerializationError, to_json

from pytest_agentbench.reports.rows import Row

# The default separators and a new encoder for each row would take half as long again
encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Return a value as report.json and journals have it. Raises ValueError for NaN and infinities."""


def encode_row(row: Row) -> bytes:
    """Return a row as report.json and journals have it, in ASCII. Raises ValueError as `encode_json` does."""
    # A quarter of the time that the standard library takes, but it leaves characters as they are that terminals obey
    with suppress(PydanticSerializationError):
        text = to_json({**row}, inf_nan_mode="constants")
        # One by one: an expression for all three would take as long as the rest
        if text.isascii() and b"\x7f" not in text and b"NaN" not in text and b"Infinity" not in text:
            return text
    return encode_json({**row}).encode()


_EQUAL = {"model_id", "variant", "label", "scripted", "own_agent", "predictions", "repetition", "dataset", "must_pass"}
_EQUAL |= {"policy", "outcome", "status", "end_reason", "reused", "evaluation_reused", "cassette", "usage_source"}
"""Members that many rows of a session have in common."""
_OWN = {"nodeid", "case_id", "parameters", "adapted", "tags", "fields", "thresholds", "metrics", "agreement", "judge"}
_OWN |= {"skills", "skill", "run_on", "final_score", "usage", "cost_usd", "at_least", "duration_seconds", "streaming"}
_OWN |= {"roles", "conversation"}
"""Members that figures are made of, and that differ from row to row."""
_ON_DISK = object()
_NO_MEMBERS: dict[str, Any] = {}
_NO_ITEMS: list[Any] = []
_MOST_SHARED = 1024
"""Equal values of rows are one object, as long as there are no more than this."""
_LOST: dict[str, Any] = {
    **dict.fromkeys(("line", "fingerprint", "artifact", "evaluation", "measure")),
    "checks": [],
    "message": "the row of this run in the session's journal was changed or cannot be read any more",
}
"""Members of a row whose text is lost. Other members that were on disk only are missing."""


class RowTexts(Protocol):
    """Rows as JSON, by number."""

    def row_text(self, number: int) -> bytes | None:
        """Return the text of a row, or None if the file no longer contains it unchanged."""


class _At(int):
    """The place of a member among a row's own."""


class _Names:
    """Names of a row's members, grouped by place (in memory, shared, on disk). Many rows share one object."""

    def __init__(self, names: Iterable[str]) -> None:
        self.every = (*names,)
        self.own, self.equal = ([name for name in self.every if name in kind] for kind in (_OWN, _EQUAL))
        self.others = [name for name in self.every if name not in _OWN | _EQUAL]


class RowKeeper:
    """Makes rows of a session into rows that are kept, whose texts are in `texts`."""

    def __init__(self, texts: RowTexts) -> None:
        self._texts = texts
        self._values: dict[str, Any] = {}
        self._names: dict[tuple[str, ...], _Names] = {}
        self._shapes: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._last: tuple[int, Row] = -1, {}

    def keep(self, row: Row, number: int, at: int) -> KeptRow:
        """Return the row whose text has this number, at this place in the session's order."""
        every = tuple(row)
        if (names := self._names.get(every)) is None:
            names = self._names[every] = _Names(every)
        own = tuple([self._share(row[name]) for name in names.own])
        return KeptRow(self, self._shape(row, names), own, number, at)

    def text(self, row: KeptRow) -> str:
        """Return a row as JSON."""
        if (text := self._texts.row_text(row.number)) is not None:
            return text.decode("ascii")
        return encode_row(row.without_text()).decode("ascii")

    def load(self, row: KeptRow) -> Row:
        """Return the row whole."""
        # Figures and lists read several members of one row in succession: the last row is cached.
        if self._last[0] != row.number:
            self._last = row.number, json.loads(self.text(row))
        return self._last[1]

    def _share(self, value: Any) -> Any:
        if not isinstance(value, dict | list):
            return value
        if not value:
            if isinstance(value, dict):
                return _NO_MEMBERS
            return _NO_ITEMS
        text = repr(value)  # distinguishes 1, 1.0 and True, which are equal
        if len(self._values) < _MOST_SHARED:
            return self._values.setdefault(text, value)
        return self._values.get(text, value)

    def _shape(self, row: Row, names: _Names) -> dict[str, Any]:
        """Return by name a value that many rows have in common, a place among the row's own, or _ON_DISK."""
        equal = [row[name] for name in names.equal]
        empty = [None if (value := row[name]) is None else value == [] for name in names.others]
        key = names, *equal, *empty
        if (shape := self._shapes.get(key)) is None:
            shape = dict.fromkeys(names.every, _ON_DISK)
            shape |= {
                name: row[name] for name, is_empty in zip(names.others, empty, strict=True) if is_empty is not False
            }
            shape |= zip(names.equal, equal, strict=True)
            shape |= {name: _At(at) for at, name in enumerate(names.own)}
            self._shapes[key] = shape
        return shape


# A row is split by its members: `_OWN` values are a tuple of the row, `_EQUAL` and empty values are in a shape that
# rows share (a session has a few shapes), all others are read from the journal. A dict of the same members takes eight
# times the memory of the tuple: 10,000 runs would need 10 MB more.


class KeptRow(Mapping[str, Any]):
    """Read-only row: the members that figures need are in memory, any other member is read from disk.

    `number` is the number of its text, `at` its position in the session's order.
    """

    __slots__ = ("_keeper", "_own", "_shape", "at", "number")

    def __init__(self, keeper: RowKeeper, shape: Mapping[str, Any], own: tuple[Any, ...], number: int, at: int) -> None:
        self._keeper, self._shape, self._own, self.number, self.at = keeper, shape, own, number, at

    def __getitem__(self, name: str) -> Any:
        value = self._shape[name]
        if type(value) is _At:
            return self._own[value]
        if value is _ON_DISK:
            return self._keeper.load(self).get(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member, or `default` if the row has no member of this name."""
        if name not in self._shape:
            return default
        if self._shape[name] is _ON_DISK:
            return self._keeper.load(self).get(name, default)
        return self[name]

    def __contains__(self, name: object) -> bool:
        if self._shape.get(name) is _ON_DISK:  # type: ignore[call-overload]
            return name in self._keeper.load(self)
        return name in self._shape

    def __iter__(self) -> Iterator[str]:
        return iter(self._shape)

    def __len__(self) -> int:
        return len(self._shape)

    def text(self) -> str:
        """Return the row as JSON."""
        return self._keeper.text(self)

    def without_text(self) -> Row:
        """Return the row without the members on disk, for a row whose text is lost."""
        return {name: self[name] for name, value in self._shape.items() if value is not _ON_DISK} | _LOST
