"""The standard form of a row: an object with `question` and, if it has them, `id`, `answer`, `metadata` and more.

Files that are used as they are have it already; fields and classes of a descriptor make it. Whatever asks for a part of
an item asks here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_agentbench.config import RowFields
from pytest_agentbench.sources.benchmark_item import BenchmarkItem

CORE = ("id", "question", "answer", "metadata")
MISSING = object()
"""What `look_up` and `field_of` give where there is nothing."""

_CORE = frozenset(CORE)
_KINDS = {dict: "an object", list: "a list", tuple: "a list", bool: "true or false", type(None): "null"}


def look_up(value: Any, path: str) -> Any:
    """What a dotted path leads to from the top of a raw row; a number is a place in a list. A key may have dots too."""
    if isinstance(value, dict) and path in value:
        return value[path]
    first, _, rest = path.partition(".")
    if isinstance(value, dict) and rest and first in value:
        return look_up(value[first], rest)
    if isinstance(value, list) and first.isdecimal() and int(first) < len(value):
        return look_up(value[int(first)], rest) if rest else value[int(first)]
    return MISSING


def field_of(item: Mapping[str, Any], path: str) -> Any:
    """The field of an item: `question`, `id`, `answer`, `metadata`, `metadata.x`, or `x` for short."""
    if path in ("id", "question", "answer"):
        return item.get(path, MISSING)
    if path == "metadata":
        return metadata_of(item)
    path = path.removeprefix("metadata.")
    own = look_up(item.get("metadata"), path)
    return look_up(item, path) if own is MISSING and path.partition(".")[0] not in _CORE else own


def map_fields(row: Mapping[str, Any], fields: RowFields) -> dict[str, Any]:
    """A raw row in the standard form. Raises ValueError where it has no question."""
    item: dict[str, Any] = {}
    for name in ("id", "question", "answer"):
        found = look_up(row, getattr(fields, name))
        if found is not MISSING:
            item[name] = found
    if "question" not in item:
        raise ValueError(f"question: {unknown(fields.question, row)}")
    own = look_up(row, fields.metadata)
    used = {getattr(fields, name) for name in CORE}
    others = {key: value for key, value in row.items() if key not in used}
    return {**item, "metadata": _merged(others, None if own is MISSING else own)}


def metadata_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """All other keys, and the pairs of `metadata`, which win."""
    return _merged({key: value for key, value in item.items() if key not in _CORE}, item.get("metadata"))


def answer_of(item: Mapping[str, Any]) -> str | None:
    """The answer as text: "" for null, None where there is none."""
    if "answer" not in item:
        return None
    answer = item["answer"]
    return "" if answer is None else str(answer)


def texts_of(tags: object) -> list[str]:
    """The tags that a field holds: a text, or the texts of a list."""
    if not isinstance(tags, list):
        return [tags] if isinstance(tags, str) else []
    return [each for each in tags if isinstance(each, str)]


def parse_item(data: Any, line_num: int) -> BenchmarkItem:
    """An object of the standard form as an item; one without an id is `item_<line_num>`.

    Raises ValueError for what is none, with a reason for people.
    """
    require_item(data)
    own_id = data.get("id")
    return BenchmarkItem(
        id=f"item_{line_num}" if own_id is None else str(own_id),
        question=data["question"],
        answer=answer_of(data) or "",
        metadata=metadata_of(data),
    )


def require_item(value: Any) -> None:
    """Raises ValueError, with a reason for people, for a value that is no item."""
    if not isinstance(value, dict):
        raise ValueError(f"found {kind(value)}, expected an object with a `question`")
    question = value.get("question")
    if not isinstance(question, str):
        found = kind(question) if "question" in value else "none"
        raise ValueError(f"question: found {found}, expected a text; this is what the agent is asked")
    if not question or question.isspace():
        raise ValueError("question: found a blank text; this is what the agent is asked")
    own_id = value.get("id")
    if own_id == "" or isinstance(own_id, (dict, list)):
        raise ValueError(
            f"id: found {kind(own_id)}, expected a text or a number; without `id` the place names the item"
        )


def dump(item: Mapping[str, Any]) -> bytes:
    """The item as JSON. Raises ValueError for what JSON has no form for."""
    try:
        text = json.dumps(item, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"found what is no JSON value: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(item).encode()


def unknown(path: str, names: Iterable[str]) -> str:
    """`found no field 'x'`, and what may have been meant."""
    near = difflib.get_close_matches(path, (name for name in names if isinstance(name, str)), n=1)
    return f"found no field {path!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def kind(value: object) -> str:
    """What a value is, for people, in the words of JSON."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "a number"
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _merged(others: dict[str, Any], own: Any) -> dict[str, Any]:
    if isinstance(own, dict):
        return {**others, **own}
    return others if own is None else {**others, "metadata": own}
