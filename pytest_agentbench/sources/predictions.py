"""Files of predictions: an agent's answers from elsewhere, by item id or in the order of a dataset's items."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from pytest_agentbench.bounded.json_files import (
    BadItem,
    Item,
    first_character,
    is_document,
    read_items,
    repeated_keys,
)
from pytest_agentbench.config.dataset_file import PredictionFields
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.items import MISSING, describe_kind, is_answered, look_up

_MOST_PROBLEMS = 20


def field_problem(error: Mapping[str, object]) -> str:
    """Return one of pydantic's errors as a sentence with the field, the value found and the expected one."""
    loc = error["loc"]
    where = ".".join(map(str, loc)) if isinstance(loc, tuple) and loc else ""
    if error["type"] == "missing":
        return f"{where}: found nothing, expected a value"
    found = json.dumps(error["input"], ensure_ascii=False, default=str)
    message = str(error["msg"])
    said = f"found {found if len(found) <= 60 else f'{found[:57]}...'}; {message[:1].lower()}{message[1:]}"
    if where:
        return f"{where}: {said}"
    return said


def refuse_file(path: Path, problems: Sequence[str]) -> NoReturn:
    """Raise ConfigError with the first 20 problems of a file, `file:line:column: ...` each, and how many more."""
    more = [f"{path}: and {len(problems) - _MOST_PROBLEMS} more problems"] * (len(problems) > _MOST_PROBLEMS)
    raise ConfigError("\n".join([*problems[:_MOST_PROBLEMS], *more]))


def valid_items(
    path: Path, items: Iterable[Item | BadItem], problems: list[str], expected: str | None = None
) -> Iterator[Item]:
    """Yield the valid values of a file. Add the errors of the others to `problems`.

    The first of all problems also names the `expected` content of the file.
    """
    for item in items:
        if isinstance(item, Item):
            yield item
            continue
        reason = item.reason
        if expected is not None and not problems:
            reason = f"{reason}; {expected}"
        problems.append(f"{path}:{item.line}:{item.column}: {reason}")


_ID_KEYS = ("id", "item_id", "case_id", "task_id")
_PREDICTION_KEYS = ("prediction", "predictions", "predicted_answer")
_RECORD_KEYS = frozenset({*_ID_KEYS, *_PREDICTION_KEYS, "question", "answer", "metadata"})
_OF_EVALUATIONS = ("benchmark_info", "evaluation_results", "average_score", "evaluated_items")
_RESULTS = "evaluation_results"
_MOST_REPORTED = 20
_EXPECTED = (
    "expected JSON or JSONL: {item id: prediction}, a list of predictions in item order, or objects with an `id` and a "
    "`prediction`"
)
_EXPECTED_VALUE = "expected a text, a number, a boolean, null, an object {output, tool_calls}, or a list of these"


def read_predictions(path: Path) -> dict[str, Any] | list[Any]:
    """Return the predictions of a file unchanged: by item id, or, without ids, in item order.

    The content determines the form: an object `{id: prediction}` with any ids, a list of predictions, a list or JSONL
    lines of objects with an id (`id`, `item_id`, `case_id` or `task_id`) and a `prediction` (or `predictions`,
    `predicted_answer`; `answer` in a run's log), or saved results (seed 001): an object with one list of such objects.
    `as_prediction` checks the predictions themselves; one of a wrong type is no error here.
    Raises ConfigError with up to 20 problems of the file, `file:line:column: ...` each.
    """
    items = read_items(path, inside=_RESULTS)
    first = next(items, None)
    if first is None:
        raise ConfigError(f"{path}:1:1: found no prediction, {_EXPECTED}")
    rest = chain((first,), items)
    if isinstance(first, Item):
        if not isinstance(first.value, dict) and is_document(path, inside=_RESULTS):
            if first_character(path) in "[{":
                return _in_order(path, rest)
            raise ConfigError(f"{path}:{first.line}:1: found {describe_kind(first.value)}, {_EXPECTED}")
        if isinstance(first.value, dict) and not _is_record(first.value) and first_character(path) == "{":
            # One object alone is {id: prediction}; with more behind it is a line of JSONL that lacks its id
            second = next(items, None)
            if second is None:
                return _by_key(path, first)
            rest = chain((first, second), items)
    return _records(path, rest)


def read_mapped_predictions(path: Path, fields: PredictionFields) -> dict[str, Any]:
    """Return the predictions of a file by item id, from the places that a descriptor names.

    Objects with one id are samples, in file order. Raises ConfigError with up to 20 problems of the file.
    """
    problems: list[str] = []
    predictions: dict[str, list[Any]] = {}
    items = read_items(path, inside=fields.items or _RESULTS)
    for item in valid_items(path, items, problems, _EXPECTED):
        try:
            for identifier, prediction in _mapped(item.value, fields):
                predictions.setdefault(identifier, []).append(prediction)
        except ValueError as error:
            problems.append(f"{path}:{item.line}:1: {error}")
    _raise(problems)
    return {name: samples[0] if len(samples) == 1 else samples for name, samples in predictions.items()}


def _mapped(value: Any, fields: PredictionFields) -> Iterator[tuple[str, Any]]:
    """Yield ids and predictions of an object. Raises ValueError if it lacks one of the fields."""
    if not isinstance(value, dict):
        raise ValueError(f"found {describe_kind(value)}, expected an object, as `predictions` of the dataset.yaml says")
    if fields.lists:
        for prediction, place in fields.lists.items():
            identifiers = look_up(value, place)
            if not isinstance(identifiers, list):
                raise ValueError(f"predictions.lists.{prediction}: found no list {place!r}, expected one of ids")
            yield from ((str(identifier), prediction) for identifier in identifiers)
        return
    held = look_up(value, fields.items) if fields.items is not None else None
    objects: Iterable[Any] = held if isinstance(held, list) else [value]
    if fields.id is None:
        objects = value.items()
    for one in objects:
        identifier, record = one if fields.id is None else (look_up(one, fields.id), one)
        if identifier is MISSING or isinstance(identifier, dict | list) or identifier in (None, ""):
            raise ValueError(f"predictions.id: found no text or number {fields.id!r}, expected the id of a row")
        prediction = look_up(record, fields.prediction or "")
        if prediction is MISSING:
            raise ValueError(
                f"predictions.prediction: found no field {fields.prediction!r} of {str(identifier)[:80]!r}"
            )
        yield str(identifier), prediction


def as_prediction(value: object) -> str | tuple[str, ...] | None:
    """Return a prediction as metrics take it: a text, several (one per repetition), or None, which is no answer.

    Numbers and booleans become their text; of an answer with its tool calls the answer is returned.
    Raises ValueError for anything else.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_text(sample, f"{number}. sample: ") for number, sample in enumerate(value, 1))
    return _text(value)


def has_calls(value: object) -> bool:
    """Return whether a prediction is an answer with the tool calls of its run: `{output, tool_calls}`."""
    return isinstance(value, dict) and value.keys() == {"output", "tool_calls"}


def _text(value: object, place: str = "") -> str:
    if isinstance(value, dict) and has_calls(value):
        value = value["output"]
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    raise ValueError(f"{place}found {describe_kind(value)}, {_EXPECTED_VALUE}")


def _in_order(path: Path, items: Iterable[Item | BadItem]) -> list[Any]:
    problems: list[str] = []
    values = [item.value for item in valid_items(path, items, problems, _EXPECTED)]
    _raise(problems)
    return values


def _by_key(path: Path, item: Item) -> dict[str, Any]:
    repeated = repeated_keys(item)
    _raise([f"{path}:{line}:1: {_duplicate(key, first)}" for key, first, line in repeated])
    predictions: dict[str, Any] = item.value
    lists = [key for key, value in predictions.items() if _is_list_of_records(value)]
    if len(lists) == 1:  # the original's rollouts keep results under a key of an evaluation
        return _records(path, read_items(path, inside=lists[0]))
    if said := [key for key in _OF_EVALUATIONS if key in predictions]:
        found = f"found an evaluation ({', '.join(said)}) that holds no list of results"
        raise ConfigError(f"{path}:{item.line}:1: {found}, {_EXPECTED}")
    if not predictions:
        raise ConfigError(f"{path}:{item.line}:1: found no prediction, {_EXPECTED}")
    return predictions


def _records(path: Path, items: Iterable[Item | BadItem]) -> dict[str, Any]:
    problems: list[str] = []
    predictions: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for item in valid_items(path, items, problems, _EXPECTED):
        try:
            identifier, prediction = _record(item.value)
            if identifier in lines:
                raise ValueError(_duplicate(identifier, lines[identifier]))
        except ValueError as error:
            problems.append(f"{path}:{item.line}:1: {error}")
            continue
        predictions[identifier], lines[identifier] = prediction, item.line
    _raise(problems)
    return predictions


def _is_record(value: dict[str, Any]) -> bool:
    """Return whether the only object of a file is one prediction, or lacks a part of it, and maps no ids.

    An item's id may be any text, `id` and `prediction` too: one such key alone does not make a record.
    """
    try:
        _record(value)
    except ValueError:
        return bool(value) and value.keys() <= _RECORD_KEYS
    return True


def _is_list_of_records(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    keys = (*_ID_KEYS, *_PREDICTION_KEYS)
    return all(isinstance(element, dict) and any(key in element for key in keys) for element in value)


def _record(value: Any) -> tuple[str, Any]:
    """Id and prediction of an object that has both. Raises ValueError for any other value."""
    if not isinstance(value, dict):
        raise ValueError(f"found {describe_kind(value)}, expected an object with an `id` and a `prediction`")
    names = [key for key in _ID_KEYS if key in value]
    held = [key for key in _PREDICTION_KEYS if key in value]
    # In a log `answer` is the agent's answer; in any other object it may be the right one
    if not held and (is_answered(value) or ({"task_id", "answer"} <= value.keys() and "question" not in value)):
        held = ["answer"]
    if not names or len(held) != 1:
        found = ", ".join(map(repr, list(value)[:10])) or "no key"
        raise ValueError(
            f"found an object with {found}, expected an id (`id`, `item_id`, `case_id` or `task_id`) and one of "
            "`prediction`, `predictions` and `predicted_answer`, or a run's log with its `answer`"
        )
    identifier = value[names[0]]
    if isinstance(identifier, (dict, list)) or identifier in (None, ""):
        raise ValueError(f"{names[0]}: found {describe_kind(identifier)}, expected the item's id, a text or a number")
    return str(identifier), value.get(held[0])


def _duplicate(identifier: str, line: int) -> str:
    return f"found a second prediction for {identifier[:80]!r}, the first is on line {line}; several belong in one list"


def _raise(problems: list[str]) -> None:
    if not problems:
        return
    more = len(problems) - _MOST_REPORTED
    shown = problems[:_MOST_REPORTED] + ([f"... and {more} more problems of this file"] if more > 0 else [])
    raise ConfigError("\n".join(shown))
