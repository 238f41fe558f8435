"""Files of predictions: an agent's answers from elsewhere, by item id or in the order of a dataset's items."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from pytest_agentbench.bounded.json_files import BadItem, Item, first_character, is_document, read_items, repeated_keys
from pytest_agentbench.config.dataset_file import PredictionFields
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.items import MISSING, describe_kind, is_answered, look_up

_MOST_PROBLEMS = 20


def field_problem(error: Mapping[str, object]) -> str:
    """Return one of pydantic's errors as a sentence with the field, the value found and the expected one."""
    loc = error["loc"]
    assert isinstance(loc, tuple)
    where = ".".join(map(str, loc))
    if error["type"] == "missing":
        return f"{where}: found nothing, expected a value"
    value = json.dumps(error["input"], ensure_ascii=False, default=str)
    if len(value) > 60:
        value = f"{value[:57]}..."
    message = str(error["msg"])
    problem = f"found {value}; {message[:1].lower()}{message[1:]}"
    if where:
        return f"{where}: {problem}"
    return problem


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
_EXPECTED_VALUE = (
    "expected a text, a number, a boolean, null, an object {output, tool_calls}, an object {answers} with one of these "
    "for each turn, or a list of these"
)


def read_predictions(path: Path) -> dict[str, Any] | list[Any]:
    """Return the predictions of a file unchanged: by item id, or, without ids, in item order.

    The content determines the form: an object `{id: prediction}` with any ids, a list of predictions, a list or JSONL
    lines of objects with an id (`id`, `item_id`, `case_id` or `task_id`) and a `prediction` (or `predictions`,
    `predicted_answer`; `answer` in a run's log), or saved results (seed 001): an object with one list of such objects.
    `as_prediction` checks the predictions themselves; one of a wrong type is no error here.
    Raises ConfigError with up to 20 problems of the file, `file:line:column: ...` each.
    """
    items = read_items(path, inside=_RESULTS)
    first = next(items, None)  # the file is read once: `chain` puts the values that were looked at back
    if first is None:
        raise ConfigError(f"{path}:1:1: found no prediction, {_EXPECTED}")
    rest = chain((first,), items)
    if isinstance(first, Item):
        if not isinstance(first.value, dict) and is_document(path, inside=_RESULTS):
            if first_character(path) in "[{":
                return _in_order(path, rest)
            raise ConfigError(f"{path}:{first.line}:1: found {describe_kind(first.value)}, {_EXPECTED}")
        if isinstance(first.value, dict) and not _is_record(first.value) and first_character(path) == "{":
            # An object alone is {id: prediction}. If more follow, it is a line of JSONL that lacks its id.
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
    single = {name: samples[0] for name, samples in predictions.items() if len(samples) == 1}
    return predictions | single


def _mapped(value: Any, fields: PredictionFields) -> Iterator[tuple[str, Any]]:
    """Yield ids and predictions of an object. Raises ValueError if it lacks one of the fields."""
    if not isinstance(value, dict):
        raise ValueError(f"found {describe_kind(value)}, expected an object, by `predictions` of the dataset.yaml")
    if fields.lists:
        for prediction, place in fields.lists.items():
            identifiers = look_up(value, place)
            if not isinstance(identifiers, list):
                raise ValueError(f"predictions.lists.{prediction}: found no list {place!r}, expected one of ids")
            yield from ((str(identifier), prediction) for identifier in identifiers)
        return
    pairs: Iterable[tuple[Any, Any]] = value.items()
    if fields.id is not None:
        records = look_up(value, fields.items) if fields.items is not None else None
        if not isinstance(records, list):
            records = [value]
        pairs = [(look_up(record, fields.id), record) for record in records]
    for identifier, record in pairs:
        if identifier is MISSING or isinstance(identifier, dict | list) or identifier in (None, ""):
            raise ValueError(f"predictions.id: found no text or number {fields.id!r}, expected the id of a row")
        prediction = look_up(record, fields.prediction or "")
        if prediction is MISSING:
            raise ValueError(
                f"predictions.prediction: found no field {fields.prediction!r} of {str(identifier)[:80]!r}"
            )
        yield str(identifier), prediction


def as_prediction(value: object) -> str | tuple[str, ...] | None:
    """Return a prediction for metrics: a text, several (one per repetition), or None if there is no answer.

    Numbers and booleans become texts. Of an answer with its tool calls only the answer is returned, of a conversation
    only the last one. Raises ValueError for anything else.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_text(sample, f"{number}. sample: ") for number, sample in enumerate(value, 1))
    return _text(value)


def has_calls(value: object) -> bool:
    """Return whether a prediction is an answer with the tool calls of its run: `{output, tool_calls}`."""
    return isinstance(value, dict) and value.keys() == {"output", "tool_calls"}


def has_turns(value: object) -> bool:
    """Return whether a prediction is a conversation: `{answers: [...]}`, one answer for each turn."""
    return isinstance(value, dict) and value.keys() == {"answers"}


def _text(value: object, place: str = "") -> str:
    if isinstance(value, dict) and has_turns(value) and isinstance(value["answers"], list) and value["answers"]:
        value = value["answers"][-1]
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
    if len(lists) == 1:  # the original's rollouts store results under a key of an evaluation
        return _records(path, read_items(path, inside=lists[0]))
    if keys := [key for key in _OF_EVALUATIONS if key in predictions]:
        found = f"found an evaluation ({', '.join(keys)}) without a list of results"
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
            # All problems of the file are reported together, not only the first one.
            problems.append(f"{path}:{item.line}:1: {error}")
            continue
        predictions[identifier], lines[identifier] = prediction, item.line
    _raise(problems)
    return predictions


def _is_record(value: dict[str, Any]) -> bool:
    """Return whether the only object of a file is one prediction, complete or not, and no map of ids.

    An item's id may be any text, also `id` or `prediction`, so one such key alone does not make a record.
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
    """Return the id and the prediction of an object that has both. Raises ValueError for any other value."""
    if not isinstance(value, dict):
        raise ValueError(f"found {describe_kind(value)}, expected an object with an `id` and a `prediction`")
    names = [key for key in _ID_KEYS if key in value]
    keys = [key for key in _PREDICTION_KEYS if key in value]
    # In the log of a run `answer` is the agent's answer. In any other object it may be the right answer.
    if not keys and (is_answered(value) or ({"task_id", "answer"} <= value.keys() and "question" not in value)):
        keys = ["answer"]
    if not names or len(keys) != 1:
        found = ", ".join(map(repr, list(value)[:10])) or "no key"
        raise ValueError(
            f"found an object with {found}, expected an id (`id`, `item_id`, `case_id` or `task_id`) and one of "
            "`prediction`, `predictions` and `predicted_answer`, or a run's log with its `answer`"
        )
    identifier = value[names[0]]
    if isinstance(identifier, (dict, list)) or identifier in (None, ""):
        raise ValueError(f"{names[0]}: found {describe_kind(identifier)}, expected the item's id, a text or a number")
    return str(identifier), value.get(keys[0])


def _duplicate(identifier: str, line: int) -> str:
    return f"found a second prediction for {identifier[:80]!r}, the first is on line {line}; several belong in one list"


def _raise(problems: list[str]) -> None:
    if not problems:
        return
    lines = problems[:_MOST_REPORTED]
    if len(problems) > _MOST_REPORTED:
        lines.append(f"... and {len(problems) - _MOST_REPORTED} more problems of this file")
    raise ConfigError("\n".join(lines))
