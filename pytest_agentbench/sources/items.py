"""Items of datasets: the standard form of a row, its Python object, and the user's class that makes items of rows."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_agentbench.config.dataset_file import AnswerRule, RowFields
from pytest_agentbench.config.source_imports import source_spec
from pytest_agentbench.records.gold import Gold, gold_reply, json_text, read_gold


@dataclass
class BenchmarkItem:
    """A question with its expected answer ("" if there is none) and all other fields (seed 001)."""

    id: str
    question: str
    answer: str = ""
    metadata: dict[str, Any] | None = None
    typed_answer: Any = field(default=None, repr=False, compare=False)
    """The answer of a row if it is no text; `answer` is its text."""

    @property
    def row_answer(self) -> Any:
        """Return the row's answer with its type, or the text if a user's code has changed it."""
        item = {"answer": self.typed_answer}
        if self.typed_answer is None or self.answer not in (answer_text_of(item), answer_text_of(item, as_json=True)):
            return self.answer
        return self.typed_answer


# The standard form of a row: an object with `question` and optional `id`, `answer`, `metadata` and other fields.
#
# Rows of files without a descriptor must have this form. The fields or the class of a descriptor convert other rows to
# it. All other modules read parts of an item by the functions below.


CORE = ("id", "question", "answer", "metadata")
MISSING = object()
"""Result of `look_up` and `field_of` for an absent value."""

_CORE = frozenset(CORE)
_PLACE = re.compile(r"-?[0-9]{1,9}")  # bounded, because int() refuses very long numbers
_KINDS = {str: "a text", dict: "an object", list: "a list", tuple: "a list", bool: "true or false", type(None): "null"}


def look_up(value: Any, path: str) -> Any:
    """Return the value at a dotted path in a raw row. A number is an index of a list, from its end if negative; `*`
    is every element. Keys may contain dots.
    """
    if isinstance(value, dict) and path in value:  # first, because a key may contain dots
        return value[path]
    first, _, rest = path.partition(".")
    if isinstance(value, dict) and rest and first in value:
        return look_up(value[first], rest)
    if isinstance(value, list) and first == "*":
        if not rest:
            return value
        found = (look_up(element, rest) for element in value)
        return [inner for inner in found if inner is not MISSING]
    if isinstance(value, list) and _PLACE.fullmatch(first) and -len(value) <= int(first) < len(value):
        if rest:
            return look_up(value[int(first)], rest)
        return value[int(first)]
    return MISSING


def field_of(item: Mapping[str, Any], path: str) -> Any:
    """Return the field of an item: `question`, `id`, `answer`, `metadata`, `metadata.x`, or `x` for short."""
    if path in ("id", "question", "answer"):
        return item.get(path, MISSING)
    if path == "metadata":
        return metadata_of(item)
    path = path.removeprefix("metadata.")
    value = look_up(item.get("metadata"), path)
    # A row without `metadata` has its other fields at the top.
    if value is MISSING and path.partition(".")[0] not in _CORE:
        return look_up(item, path)
    return value


def map_fields(row: Mapping[str, Any], fields: RowFields) -> dict[str, Any]:
    """Return a raw row in the standard form. Raises ValueError if it has no question."""
    item: dict[str, Any] = {}
    for name in ("id", "question", "answer"):
        value = look_up(row, fields.path(name))
        if value is not MISSING:
            item[name] = value
    if isinstance(fields.answer, AnswerRule) and "answer" in item:
        item["answer"] = {fields.answer.rule: item["answer"]}
    if "question" not in item:
        raise ValueError(f"question: {describe_unknown_field(fields.question, row)}")
    used = {fields.path(name) for name in CORE}
    metadata = {key: value for key, value in row.items() if key not in used}
    own = look_up(row, fields.metadata)
    if own is not MISSING:
        metadata = _merged(metadata, own)
    return {**item, "metadata": metadata}


def take_expected(row: Any) -> Any:
    """Return a raw row with its field `expected` as the answer if it has no `answer`, else the row unchanged.

    `expected` stays a field of the metadata. Only a text, a number, true or false, or a list of these is an answer.
    """
    if not isinstance(row, dict) or "expected" not in row or "answer" in row:
        return row
    expected = row["expected"]
    values = expected if isinstance(expected, list) else [expected]
    if not values or not all(isinstance(value, str | int | float) for value in values):
        return row
    return {**row, "answer": expected}


def metadata_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return all keys that are no core field. Those inside `metadata` take precedence over those next to it."""
    return _merged({key: value for key, value in item.items() if key not in _CORE}, item.get("metadata"))


def answer_of(item: Mapping[str, Any], *, as_json: bool = False) -> Gold | None:
    """Return the answer, one text or several right ones: "" for null, None if there is none.

    `as_json`: a list or an object is one answer, its JSON. Raises ValueError for an object without a rule.
    """
    if "answer" not in item:
        return None
    answer = item["answer"]
    if isinstance(answer, str):  # nearly all answers
        return answer
    if as_json:
        return read_gold(json_text(answer))
    return read_gold(answer)


def answer_text_of(item: Mapping[str, Any], *, as_json: bool = False) -> str:
    """Return a right answer as one text, "" if there is none. For metrics of JSON the text is JSON."""
    try:
        return gold_reply(answer_of(item, as_json=as_json) or "")
    except ValueError:
        return gold_reply(answer_of(item, as_json=True) or "")


def typed_answer_of(item: Mapping[str, Any]) -> Any:
    """Return the answer if it is no text, else None."""
    answer = item.get("answer")
    if isinstance(answer, str):
        return None
    return answer


_PREDICTED = frozenset({"prediction", "predictions", "predicted_answer"})


def is_answered(keys: Collection[str]) -> bool:
    """Return whether an object with these keys contains an answer, and is not itself a question of a dataset.

    Such objects are predictions, and logs of runs, which have two of: the task's id, its success, the trace (`messages`
    or a `trajectory`). In a log `answer` is the agent's answer.
    """
    logged = ("task_id" in keys) + ("success" in keys) + ("messages" in keys or "trajectory" in keys)
    return logged > 1 or not _PREDICTED.isdisjoint(keys)


def texts_of(tags: object) -> list[str]:
    """Return the tags in a field: a text, or the texts of a list."""
    if isinstance(tags, str):
        return [tags]
    if isinstance(tags, list):
        return [tag for tag in tags if isinstance(tag, str)]
    return []


def parse_item(data: Any, line_num: int) -> BenchmarkItem:
    """Return an object of the standard form as an item. Its default id is `item_<line_num>`.

    Raises ValueError with a readable reason for any other object.
    """
    require_item(data)
    identifier = f"item_{line_num}" if data.get("id") is None else str(data["id"])
    return BenchmarkItem(
        id=identifier,
        question=data["question"],
        answer=answer_text_of(data),
        metadata=metadata_of(data),
        typed_answer=typed_answer_of(data),
    )


def require_item(value: Any) -> None:
    """Raise ValueError with a readable reason for a value that is no item."""
    if not isinstance(value, dict):
        raise ValueError(f"found {describe_kind(value)}, expected an object with a `question`")
    question = value.get("question")
    if not isinstance(question, str):
        found = describe_kind(question) if "question" in value else "none"
        raise ValueError(f"question: found {found}, expected a text; it is the agent's task")
    if not question or question.isspace():
        raise ValueError("question: found a blank text; it is the agent's task")
    own_id = value.get("id")
    if own_id == "" or isinstance(own_id, (dict, list)):
        raise ValueError(
            f"id: found {describe_kind(own_id)}, expected a text or a number; without `id` the place names the item"
        )


def dump_item(item: Mapping[str, Any]) -> bytes:
    """Return the item as JSON. Raises ValueError for values that JSON cannot represent."""
    try:
        text = json.dumps(item, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"found a value that is not JSON: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates become escapes; collection reports them as an error of the row
        return json.dumps(item).encode()


def describe_unknown_field(path: str, names: Iterable[str]) -> str:
    """Return `found no field 'x'` with a suggestion."""
    problem = f"found no field {path!r}"
    if near := difflib.get_close_matches(path, (name for name in names if isinstance(name, str)), n=1):
        return f"{problem}; did you mean {near[0]!r}?"
    return problem


def describe_kind(value: object) -> str:
    """Return the type of a value in words, by the types of JSON."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "a number"
    if value == "":
        return "an empty text"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _merged(others: dict[str, Any], own: Any) -> dict[str, Any]:
    if isinstance(own, dict):
        return {**others, **own}
    if own is None:
        return others
    return {**others, "metadata": own}


ItemParser = Callable[[dict[str, Any], int], BenchmarkItem]
"""`_parse_item(data, line_num)` of an object: `line_num` is the line in JSONL, else the position; both count from 1."""


def load_item_class(name: str, folder: Path) -> ItemParser:
    """Return the `_parse_item` of an object of `module:Class`, made without arguments.

    The module is imported as Python finds it, else from the file `module.py` in `folder`. It is trusted like a
    conftest.py. Raises ValueError if there is no such class or its constructor fails.
    """
    module_name, _, class_name = name.partition(":")
    module = _import(module_name, folder)
    item_class = getattr(module, class_name, None)
    if not isinstance(item_class, type):
        raise ValueError(f"found no class {class_name!r} in {getattr(module, '__file__', module_name)}")
    try:
        parse = getattr(item_class(), "_parse_item", None)
    except (Exception, SystemExit) as error:  # the user's code may raise anything, also call sys.exit
        raise ValueError(f"{class_name}() failed: {describe_error(error)}") from error
    if not callable(parse):
        raise ValueError(f"the class {class_name!r} has no method _parse_item(self, data, line_num)")
    return parse  # type: ignore[no-any-return]


def call_parser(parse: ItemParser, data: dict[str, Any], line_num: int) -> dict[str, Any]:
    """Return the result of the user's parser for a row, as a row of the standard form.

    Raises ValueError if the result is not an item.
    """
    name = getattr(parse, "__qualname__", "_parse_item")
    try:
        item = parse(data, line_num)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name} raised {describe_error(error)}") from error
    if not isinstance(item, BenchmarkItem):
        raise ValueError(f"{name} returned {type(item).__name__}, expected a BenchmarkItem")
    if not isinstance(item.metadata, dict | None):
        raise ValueError(f"{name}: metadata: found {type(item.metadata).__name__}, expected a dict")
    standard = {"id": item.id, "question": item.question, "metadata": item.metadata or {}}
    if item.answer is None:
        return standard
    return {**standard, "answer": item.row_answer}


def describe_error(error: BaseException) -> str:
    """Return an exception in one short line."""
    text = " ".join(str(error).split())[:200]
    if text:
        return f"{type(error).__name__}: {text}"
    return type(error).__name__


def _import(name: str, folder: Path) -> ModuleType:
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    try:
        if _is_importable(name):
            return importlib.import_module(name)
        if file.is_file():
            return _import_file(file)
    except (Exception, SystemExit) as error:
        raise ValueError(f"cannot import {name}: {describe_error(error)}") from error
    raise ValueError(f"found no module {name!r}, neither on the import path nor as {file}")


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # `find_spec` imports the packages above the module, which may be missing
        return False


def _import_file(file: Path) -> ModuleType:
    """Return the module of a file. Its name is unique, because files in other folders may have the same name."""
    name = f"{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = source_spec(name, file)
    assert spec.loader is not None
    # Registered before it runs, because dataclasses and pickle look up the module of a class by its name.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
