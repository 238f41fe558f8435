"""A dataset's rows: one streaming pass for what collection needs of each, and the whole row as the case that runs it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.shared_sections import map_servers
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.tasks import BadTask, TaskEntry, TaskSettings, read_tasks
from pytest_agentbench.records.case import Case, Message, MetricSpec, RunnerSpec
from pytest_agentbench.records.check_specs import BUILTIN_KINDS, Check
from pytest_agentbench.sources.dataset import ANSWERED, Dataset, legal_id
from pytest_agentbench.sources.items import (
    BenchmarkItem,
    answer_of,
    call_parser,
    describe_kind,
    dump_item,
    field_of,
    metadata_of,
    require_item,
    texts_of,
)
from pytest_agentbench.sources.json_files import BadItem, Item, parse_value, read_items
from pytest_agentbench.sources.recipe import Recipe
from pytest_agentbench.sources.test_yaml import named_tools
from pytest_agentbench.terminal_text import visible

_EVALUATOR = frozenset({"func", "args"})
Deciders = tuple[tuple[Check, ...], tuple[MetricSpec, ...], str | None]
"""Checks, metrics and reference."""


def deciders(dataset: Dataset, item: Mapping[str, Any], metadata: Mapping[str, Any]) -> Deciders:
    """What decides an item with that metadata; without answer and evaluator there is no metric: only a judge can.

    Raises ValueError for an evaluator that says nothing usable, and for metrics that need what the item lacks.
    """
    answer = answer_of(item)
    evaluator = metadata.get("evaluator")
    if evaluator is None:
        if not answer:
            return (), (), answer
        recipe = dataset.recipe
        return (), dataset.metrics if recipe is None else recipe.metrics(dataset.metrics, item), answer
    if not isinstance(evaluator, dict) or not isinstance(evaluator.get("func"), str) or evaluator.keys() - _EVALUATOR:
        raise ValueError(
            f"evaluator: found {json.dumps(evaluator)[:80]}, expected "
            "{func: a registered check or metric, args: {...}}"
        )
    try:
        return _evaluated(dataset, evaluator["func"], evaluator.get("args") or {}, answer)
    except ValidationError as error:
        reasons = "; ".join(
            f"args.{each['loc'][-1]}: {each['msg'].removeprefix('Value error, ')}" for each in error.errors()
        )
        raise ValueError(f"evaluator: {reasons}") from error
    except ValueError as error:
        raise ValueError(f"evaluator: {error}") from error


def _evaluated(dataset: Dataset, name: str, args: Any, answer: str | None) -> Deciders:
    """The check or metric of an evaluator.

    A metric's `args` may hold `threshold` (default 1.0) and `reference` (default: the answer); the rest is its own.
    """
    if not isinstance(args, dict):
        raise ValueError(f"args: found {describe_kind(args)}, expected an object")
    known = dataset.known
    if name in BUILTIN_KINDS or name in (known.checks or ()):
        check = Check.model_validate({"check_id": "evaluator", "declarative": {**args, "kind": name}})
        return (check,), (), answer
    if known.metrics is not None and name not in known.metrics:
        names = {*BUILTIN_KINDS, *(known.checks or ()), *known.metrics}
        raise ValueError(f"func: found {name!r}, expected a registered check or metric{suggest(name, names)}")
    own = dict(args)
    reference = answer_of({"answer": own.pop("reference")}) if "reference" in own else answer
    if not reference:
        raise ValueError(f"{name!r} has nothing to compare with; give the row an `answer` or args a `reference`")
    compat = dataset.descriptor.compat if dataset.descriptor is not None else None
    metric = MetricSpec(name=name, threshold=own.pop("threshold", 1.0), args=own, compat=compat)
    return (), (metric,), reference


_MOST_REPORTED = 100
_MOST_SPLITS = 20
_Place = int | tuple[Path, int]


class Row(NamedTuple):
    """An item as collection keeps it.

    `raw` is its JSON in the standard form, of a task with what its groups say, parsed again when it runs. `path` and
    `line` (1-based) say where it stands: its data file, or for a source the descriptor and the row's number. `index` is
    its 0-based place among all items of the dataset (of its split), good or bad, before they are shuffled or limited.
    """

    line: int
    case_id: str
    tags: tuple[str, ...]
    raw: bytes
    path: Path
    index: int  # type: ignore[assignment]  # the tuple's method is of no use here


class BadRow(NamedTuple):
    """An item that cannot be used; `message` is a whole sentence, `file:line:column: ...`."""

    line: int
    message: str
    path: Path


def read_rows(dataset: Dataset) -> Iterator[Row | BadRow]:
    """The items of the dataset, in one pass; after 100 bad ones the rest are only counted, in one last BadRow.

    Raises ConfigError where the dataset cannot be read at all.
    """
    _ = dataset.shots  # what is wrong with the examples is told before any row
    rows = _rows(dataset) if dataset.tasks is None else _task_rows(dataset, dataset.tasks)
    if dataset.descriptor is not None and dataset.descriptor.shuffle_seed is not None:
        rows = _shuffled(rows, dataset.descriptor.shuffle_seed, dataset.descriptor.limit)
    bad = 0
    for row in rows:
        if isinstance(row, Row) or (bad := bad + 1) <= _MOST_REPORTED:
            yield row
        else:
            last = row
    if bad > _MOST_REPORTED:
        yield _bad(dataset, last.path, BadItem(last.line, 1, ""), f"{bad - _MOST_REPORTED} more items are bad")


def _rows(dataset: Dataset) -> Iterator[Row | BadRow]:
    """The rows of the dataset's split in file order; without a seed nothing behind the limit is read."""
    recipe = dataset.recipe
    firsts: dict[str, _Place] = {}
    splits: set[str] = set()
    lacking = recipe.never_found() if recipe is not None and recipe.only is None else {}
    wanted = recipe.descriptor.limit if recipe is not None and recipe.descriptor.shuffle_seed is None else None
    index = 0
    for path, values in _parts(dataset, splits):
        if wanted == 0:
            break
        for value in values:
            if isinstance(value, BadItem):
                yield _bad(dataset, path, value, value.reason)
            else:
                yield (row := _row(dataset, path, value, index, firsts, lacking))
                if wanted is not None and isinstance(row, Row) and not (wanted := wanted - 1):
                    break
            index += 1
    if not index and not firsts:
        yield _nothing(dataset, splits)
    elif recipe is not None and firsts:
        for name, place in lacking.items():
            yield BadRow(1, recipe.place(place, f"found no row with a field {name!r}"), recipe.path)


def _task_rows(dataset: Dataset, settings: TaskSettings) -> Iterator[Row | BadRow]:
    """The tasks of a task file; the id of a case is that of its task."""
    path, index = dataset.path, -1
    for index, task in enumerate(read_tasks(path)):
        if isinstance(task, BadTask):
            yield BadRow(task.line, task.message, path)
        else:
            tags = _shared_tags(settings.tags(task.entry))
            yield Row(task.line, legal_id(task.entry.task_id), tags, task.raw, path, index)
    if index < 0:
        yield _bad(dataset, path, BadItem(1, 1, ""), "found no task, expected at least one with a task_id")


def _parts(dataset: Dataset, splits: set[str]) -> Iterator[tuple[Path, Iterable[Item | BadItem]]]:
    """Each file with its values, those of other splits left out; `splits` gets the names of all that were met."""
    recipe = dataset.recipe
    if recipe is None:
        yield dataset.path, read_items(dataset.path)
    elif recipe.descriptor.split is None or recipe.descriptor.source is not None:
        yield from recipe.parts()
    else:
        for path, values in recipe.parts():
            yield path, _of_split(values, recipe, recipe.descriptor.split, splits)


def _of_split(
    values: Iterable[Item | BadItem], recipe: Recipe, split: str, splits: set[str]
) -> Iterator[Item | BadItem]:
    for value in values:
        own = split if isinstance(value, BadItem) else recipe.split_of(value.value)
        if own == split:
            yield value
        elif len(splits) < _MOST_SPLITS:
            at = recipe.descriptor.fields.split
            splits.add(repr(own) if isinstance(own, str) else f"rows without a text in {at!r}")


def _shuffled(rows: Iterator[Row | BadRow], seed: int, limit: int | None) -> Iterator[Row | BadRow]:
    """The bad rows and, in the seed's order, as many of the good ones as the limit lets through."""
    kept: list[Row] = []
    for row in rows:
        if isinstance(row, Row):
            kept.append(row)
        else:
            yield row
    ranked = sorted(kept, key=lambda row: sha256(f"{seed}{row.case_id}".encode()).digest())
    yield from ranked[:limit]


def _row(
    dataset: Dataset, path: Path, value: Item, index: int, firsts: dict[str, _Place], lacking: dict[str, Loc]
) -> Row | BadRow:
    """The value as a row. `firsts` maps the case ids so far to their places, `lacking` has fields that no row had."""
    line, number, raw, item, *_ = value
    recipe = dataset.recipe
    try:
        if recipe is not None or dataset.parse is not None:
            item = standard_item(dataset, item, number)
            raw = raw if item is value.value else dump_item(item)
        _require_sound(dataset, raw, item)
        if recipe is not None:
            recipe.prompt(item)
            tags = _shared_tags(recipe.tags(item))
            for name in [name for name in lacking if not recipe.lacks(item, name)]:
                del lacking[name]
        else:
            held = field_of(item, "tags") if "metadata" in item else item.get("tags")
            tags = () if held is None else _shared_tags(tuple(texts_of(held)))
    except ValueError as error:
        return _bad(dataset, path, value, str(error))
    own_id = item.get("id")
    identifier = str(own_id) if own_id is not None else _default_id(dataset, path, number)
    case_id = f"{dataset.name}.{legal_id(identifier)}"
    if case_id in firsts:
        place = _first(dataset, firsts[case_id])
        reason = f"id: found {identifier[:80]!r} again, first {place}; give each item its own id"
        return _bad(dataset, path, value, reason)
    firsts[case_id] = line if recipe is None else (path, line)
    return Row(line, case_id, tags, raw, path, index)


def standard_item(dataset: Dataset, value: Any, number: int) -> Any:
    """A raw value in the standard form: what the user's class or the descriptor's fields make of it.

    Raises ValueError where they cannot.
    """
    if dataset.recipe is not None:
        return dataset.recipe.item(value, number, dataset.parse)
    return call_parser(dataset.parse, value, number) if dataset.parse is not None else value


def _require_sound(dataset: Dataset, raw: bytes, item: Any) -> None:
    """Raises ValueError for a value, of the standard form, that cannot be a row."""
    require_item(item)
    if not ANSWERED.isdisjoint(item):
        raise ValueError("found a `prediction`: predictions are no cases; pass the dataset that they answer")
    if b"\\u" in raw and _is_no_text(raw, item):
        raise ValueError("found half of a surrogate pair (\\ud800-\\udfff), which is no text")
    if "evaluator" in item or "metadata" in item or dataset.recipe is not None:
        deciders(dataset, item, metadata_of(item))


def _default_id(dataset: Dataset, path: Path, number: int) -> str:
    return f"item_{number}" if dataset.recipe is None else dataset.recipe.default_id(path, number)


@lru_cache(maxsize=1024)
def _shared_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Stripped, deduplicated, sorted; one object for all rows that say the same."""
    return tuple(sorted({tag.strip() for tag in tags} - {""}))


def _is_no_text(raw: bytes, item: dict[str, Any]) -> bool:
    """Whether a text of the item has half of a surrogate pair. In its id that is replaced."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return False
    try:
        json.dumps({key: item[key] for key in item if key != "id"}, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _first(dataset: Dataset, place: _Place) -> str:
    """Where an id came first: in the file, in one of several, or in a source."""
    if isinstance(place, int):
        return f"on line {place}"
    path, line = place
    if dataset.recipe is not None and path == dataset.recipe.path:
        return f"in row {line}"
    return f"on line {line}" if path == dataset.path else f"at {path}:{line}"


def _nothing(dataset: Dataset, splits: set[str]) -> BadRow:
    recipe, reason = dataset.recipe, "found no item, expected at least one object with a `question`"
    if recipe is not None and splits:
        message = recipe.place(("split",), f"found no row of it, only {', '.join(sorted(splits))}")
        return BadRow(1, message, recipe.path)
    if recipe is not None and recipe.only is None:
        return BadRow(1, recipe.place(("files" if recipe.files else "source",), reason), recipe.path)
    return _bad(dataset, dataset.path, BadItem(1, 1, ""), reason)


def _bad(dataset: Dataset, path: Path, value: Item | BadItem, reason: str) -> BadRow:
    if dataset.recipe is not None:
        place = dataset.recipe.where(path, value)
    else:
        place = f"{path}:{value.line}:{value.column if isinstance(value, BadItem) else 1}"
    return BadRow(value.line, visible(f"{place}: {reason}"), path)


_TITLE = 60
_RUNNER = RunnerSpec(type="llm_probe")


def row_case(dataset: Dataset, row: Row) -> Case:
    """The case of a row that `read_rows` gave: the question as a user message, the answer as the reference; of a task
    file, the task with its servers.

    A descriptor may put examples before it and the question into a prompt. Without answer and evaluator there is no
    metric: only a judge can decide it.
    """
    item: dict[str, Any] = parse_value(row.raw)
    if dataset.tasks is not None:
        return _task_case(dataset, dataset.tasks, row, TaskEntry.model_validate(item))
    metadata = metadata_of(item)
    checks, metrics, reference = deciders(dataset, item, metadata)
    question = item["question"]
    if dataset.recipe is not None:
        described = _described(dataset, dataset.recipe, item)
    else:
        described = {"messages": (Message(role="user", content=question),), "runner": _RUNNER}
    return Case(
        case_id=row.case_id,
        title=short_title(question),
        path=row.path,
        line=row.line,
        dataset=dataset.name,
        tags=row.tags,
        checks=checks,
        metrics=metrics,
        reference=reference,
        metadata=metadata,
        **described,
    )


def read_benchmark_items(dataset: Dataset) -> Iterator[BenchmarkItem | BadRow]:
    """The rows of `read_rows` as items: `question` is what the agent is asked, `answer` "" where there is none.

    Raises ConfigError where the dataset cannot be read at all, and for tasks: to answer them needs runs.
    """
    if dataset.tasks is not None:
        raise ConfigError(f"{dataset.path}:1:1: found tasks for MCP servers, expected questions; pytest runs tasks")
    for row in read_rows(dataset):
        yield row if isinstance(row, BadRow) else _benchmark_item(dataset, row)


def _task_case(dataset: Dataset, settings: TaskSettings, row: Row, entry: TaskEntry) -> Case:
    return Case(
        case_id=row.case_id,
        title=short_title(settings.text(entry)),
        path=row.path,
        line=row.line,
        dataset=dataset.name,
        tags=row.tags,
        metrics=dataset.metrics,
        **settings.case_fields(entry),
    )


def _described(dataset: Dataset, recipe: Recipe, item: dict[str, Any]) -> dict[str, Any]:
    """What the descriptor says of every case."""
    descriptor, shots = recipe.descriptor, dataset.shots
    asked = Message(role="user", content=recipe.prompt(item))
    return {
        "messages": (*(shots.before(item["question"]) if shots is not None else ()), asked),
        "runner": descriptor.runner,
        "context": descriptor.context,
        "tools": named_tools(descriptor.context),
        "mcp_servers": map_servers(descriptor.mcp_servers),
    }


def _benchmark_item(dataset: Dataset, row: Row) -> BenchmarkItem:
    item: dict[str, Any] = parse_value(row.raw)
    own_id = item.get("id")
    return BenchmarkItem(
        id=row.case_id.removeprefix(f"{dataset.name}.") if own_id is None else str(own_id),
        question=item["question"] if dataset.recipe is None else dataset.recipe.prompt(item),
        answer=answer_of(item) or "",
        metadata=metadata_of(item),
    )


def short_title(question: str) -> str:
    """The beginning of what is asked, in one line."""
    words = " ".join(question[: 4 * _TITLE].split())
    return words if len(words) <= _TITLE else f"{words[: _TITLE - 1].rstrip()}…"
