"""Rows of a dataset: one streaming pass with the fields that collection needs, and the conversion of a row to a
case.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_agentbench.bounded.json_files import BadItem, Item, parse_value, read_items
from pytest_agentbench.config.base import DATA_SUFFIXES, Known, Scope, suggest
from pytest_agentbench.config.case_file import named_verifiers
from pytest_agentbench.config.dataset_file import DatasetDescriptor
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.pattern_doubts import list_pattern_doubts
from pytest_agentbench.config.sections import map_servers
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import normalize_tags
from pytest_agentbench.records.case import (
    COMPARING_METRICS,
    Case,
    HiddenFile,
    Message,
    MetricSpec,
    RunnerSpec,
    Verifier,
    legal_id,
)
from pytest_agentbench.records.check_specs import BUILTIN_KINDS, Check
from pytest_agentbench.records.gold import Gold, are_integers, gold_reply
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    Claims,
    OpenedSource,
    SourceCase,
    SourceRequest,
    StoredAnswers,
    limit_bad,
)
from pytest_agentbench.sources.dataset import Dataset, Row, claims_of_descriptor, open_dataset, shows_questions
from pytest_agentbench.sources.items import (
    BenchmarkItem,
    answer_of,
    answer_text_of,
    call_parser,
    describe_kind,
    dump_item,
    field_of,
    is_answered,
    metadata_of,
    require_item,
    take_expected,
    texts_of,
    typed_answer_of,
)
from pytest_agentbench.sources.recipe import Recipe, place_in_file
from pytest_agentbench.sources.test_yaml import make_command, make_verifier, named_tools
from pytest_agentbench.terminal_text import shorten_text, visible

_EVALUATOR = frozenset({"func", "args"})
_READ_JSON = frozenset({"json_match"})
"""Metrics whose ground truth is JSON, so that a list or an object is one answer."""

GradingParts = tuple[tuple[Check, ...], tuple[MetricSpec, ...], Gold | None]
"""Checks, metrics and reference."""


def read_grading(dataset: Dataset, item: Mapping[str, Any], metadata: Mapping[str, Any]) -> GradingParts:
    """Return the checks, metrics and gold that decide an item. Without answer and evaluator only a judge can decide it,
    or metrics that need no answer.

    Raises ValueError for an unusable evaluator, and for metrics that need fields which the item lacks.
    """
    evaluator = evaluator_of(metadata)
    if evaluator is None:
        metrics, recipe = dataset.metrics, dataset.recipe
        answer = answer_of(item, as_json=_compares_json(dataset, None))
        if not answer:
            metrics = tuple(metric for metric in metrics if metric.name not in COMPARING_METRICS)
        if recipe is not None:
            metrics = recipe.metrics(metrics, item)
        return (), tuple(_reading_choices(dataset, metric, item) for metric in metrics), answer
    if not isinstance(evaluator, dict) or not isinstance(evaluator.get("func"), str) or evaluator.keys() - _EVALUATOR:
        raise ValueError(
            f"evaluator: found {json.dumps(evaluator)[:80]}, expected "
            "{func: a registered check or metric, args: {...}}"
        )
    try:
        return _evaluated(dataset, evaluator["func"], evaluator.get("args") or {}, item)
    except ValidationError as error:
        reasons = "; ".join(
            f"args.{item['loc'][-1]}: {item['msg'].removeprefix('Value error, ')}" for item in error.errors()
        )
        raise ValueError(f"evaluator: {reasons}") from error
    except ValueError as error:
        raise ValueError(f"evaluator: {error}") from error


def evaluator_of(metadata: Mapping[str, Any] | None) -> Any:
    """Return the evaluator that replaces the comparison with the answer, or None.

    An evaluator of OSWorld's form, whose `result` names the state of a desktop, is metadata for a user's metric.
    """
    evaluator = (metadata or {}).get("evaluator")
    if not isinstance(evaluator, dict) or "func" not in evaluator:
        return evaluator
    if "result" in evaluator or evaluator["func"] == "infeasible":
        return None
    return evaluator


def _evaluated(dataset: Dataset, name: str, args: Any, item: Mapping[str, Any]) -> GradingParts:
    """Return the check or metric of an evaluator.

    A metric's `args` may have `threshold` (default 1.0) and `reference` (default: the answer); the others are passed to
    the metric.
    """
    if not isinstance(args, dict):
        raise ValueError(f"args: found {describe_kind(args)}, expected an object")
    known = dataset.known
    if name in BUILTIN_KINDS or name in (known.checks or ()):
        check = Check.model_validate({"check_id": "evaluator", "declarative": {**args, "kind": name}})
        return (check,), (), answer_of(item, as_json=_compares_json(dataset, name))
    if known.metrics is not None and name not in known.metrics:
        names = {*BUILTIN_KINDS, *(known.checks or ()), *known.metrics}
        raise ValueError(f"func: found {name!r}, expected a registered check or metric{suggest(name, names)}")
    args = dict(args)
    if "reference" in args:
        item = {"answer": args.pop("reference")}
    reference = answer_of(item, as_json=_compares_json(dataset, name))
    if not reference and name in COMPARING_METRICS:
        raise ValueError(f"{name!r} has nothing to compare with; give the row an `answer` or args a `reference`")
    compat = dataset.descriptor and dataset.descriptor.compat
    metric = MetricSpec(name=name, threshold=args.pop("threshold", 1.0), args=args, compat=compat)
    return (), (_reading_choices(dataset, metric, item),), reference


def _compares_json(dataset: Dataset, evaluator: str | None) -> bool:
    """Return whether a list or an object is one answer: a metric compares JSON, or an evaluator that is a check."""
    if evaluator is None:
        return any(metric.name in _READ_JSON for metric in dataset.metrics)
    return evaluator in _READ_JSON or evaluator in BUILTIN_KINDS or evaluator in (dataset.known.checks or ())


def _reading_choices(dataset: Dataset, metric: MetricSpec, item: Mapping[str, Any]) -> MetricSpec:
    """Return a metric. multiple_choice gets the kind of answers, from the descriptor or from the type of the answer."""
    if metric.name != "multiple_choice" or "answer_is" in metric.args:
        return metric
    kind: str | None = None
    if (descriptor := dataset.descriptor) is not None:
        kind = descriptor.answer_is
        if descriptor.choices is not None and descriptor.choices.letters_answer:
            kind = "letter"
    # Metrics compare texts. Only the row still has the answer's type.
    if kind is None and are_integers(item.get("answer")):
        kind = "integer"
    if kind is None:
        return metric
    return metric.model_copy(update={"args": {**metric.args, "answer_is": kind}})


_MOST_SPLITS = 20
_MOST_FIELDS = 10
_STANDARD_FIELDS = frozenset({"id", "answer", "tags", "metadata"})
_Place = int | tuple[Path, int]


def read_rows(dataset: Dataset) -> Iterator[Row | BadRow]:
    """Yield the items of the dataset, in one pass. After 100 bad ones the rest are only counted, in a last BadRow.

    Raises ConfigError if the dataset cannot be read.
    """
    _ = dataset.shots  # report problems of the examples before any row
    rows = _rows(dataset)
    if dataset.descriptor is not None and dataset.descriptor.shuffle_seed is not None:
        rows = _shuffled(rows, dataset.descriptor.shuffle_seed, dataset.descriptor.limit)
    yield from limit_bad(
        rows, lambda last, more: _bad(dataset, last.path, BadItem(last.line, 1, ""), f"{more} more items are bad")
    )


def _rows(dataset: Dataset) -> Iterator[Row | BadRow]:
    """Yield the rows of the dataset's split in file order; without a seed nothing behind the limit is read."""
    recipe = dataset.recipe
    firsts: dict[str, _Place] = {}
    splits: set[str] = set()
    lacking: dict[str, Loc] = {}
    remaining: int | None = None
    if recipe is not None:
        if recipe.only is None:  # one of several files may lack a field that the others have
            lacking = recipe.never_found()
        if recipe.descriptor.shuffle_seed is None:  # with a seed any row may be among the first, so all are read
            remaining = recipe.descriptor.limit
    index = 0
    for path, values in _parts(dataset, splits):
        if remaining == 0:
            break
        for value in values:
            if isinstance(value, BadItem):
                yield _bad(dataset, path, value, value.reason)
            else:
                yield (row := _row(dataset, path, value, index, firsts, lacking))
                if remaining is not None and isinstance(row, Row) and not (remaining := remaining - 1):
                    break
            index += 1
    if not index and not firsts:
        yield _nothing(dataset, splits)
    elif recipe is not None and firsts:
        for name, place in lacking.items():
            yield BadRow(1, recipe.place(place, f"found no row with a field {name!r}"), recipe.path)


def _parts(dataset: Dataset, splits: set[str]) -> Iterator[tuple[Path, Iterable[Item | BadItem]]]:
    """Yield each file with its values of the split. Adds the names of all splits to `splits`."""
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
        if (
            isinstance(value, BadItem) or (row_split := recipe.split_of(value.value)) == split
        ):  # its split is unknown, so it is reported with the rows of this split
            yield value
        elif len(splits) >= _MOST_SPLITS:
            continue
        elif isinstance(row_split, str):
            splits.add(repr(row_split))
        else:
            splits.add(f"rows without a text in {recipe.descriptor.fields.split!r}")


def _shuffled(rows: Iterator[Row | BadRow], seed: int, limit: int | None) -> Iterator[Row | BadRow]:
    """Yield the bad rows, then at most `limit` good rows in the seed's order."""
    good: list[Row] = []
    for row in rows:
        if isinstance(row, Row):
            good.append(row)
        else:
            yield row
    # By a hash of the id and not by random: a row that is added or removed does not change the rank of others.
    ranked = sorted(good, key=lambda row: sha256(f"{seed}{row.case_id}".encode()).digest())
    yield from ranked[:limit]


def _row(
    dataset: Dataset, path: Path, value: Item, index: int, firsts: dict[str, _Place], lacking: dict[str, Loc]
) -> Row | BadRow:
    """Return the value as a row. `firsts` maps earlier case ids to their places. `lacking` are the fields that no
    earlier row had.
    """
    line, number, raw, item, *_ = value
    recipe = dataset.recipe
    try:
        if dataset.takes_expected:
            item = take_expected(item)
        took_expected = item is not value.value
        if recipe is not None or dataset.parse is not None:
            item = _standard_item(dataset, item, number)
        if item is not value.value:
            raw = dump_item(item)
        _require_sound(dataset, raw, item)
        if recipe is not None:
            recipe.prompt(item)
            recipe.hidden_texts(item)
            recipe.context(item)
            tags = _shared_tags(recipe.tags(item))
            # The first rows of a sound file empty `lacking`, so this loop costs nothing for the others.
            for name in [name for name in lacking if not recipe.lacks(item, name)]:
                del lacking[name]
        else:
            # Most rows have no metadata, and `field_of` takes longer than a look-up.
            tags_field = field_of(item, "tags") if "metadata" in item else item.get("tags")
            tags = _shared_tags(tuple(texts_of(tags_field)))
    except ValueError as error:
        return _bad(dataset, path, value, f"{error}{_advise_descriptor(dataset, item)}")
    identifier = str(item["id"]) if item.get("id") is not None else _default_id(dataset, path, number)
    case_id = f"{dataset.name}.{legal_id(identifier)}"
    if case_id in firsts:
        place = _first(dataset, firsts[case_id])
        reason = f"id: found {identifier[:80]!r} again, first {place}; give each item its own id"
        return _bad(dataset, path, value, reason)
    firsts[case_id] = line if recipe is None else (path, line)
    return Row(line, case_id, tags, raw, path, index, took_expected)


def _advise_descriptor(dataset: Dataset, item: Any) -> str:
    """Return the fields of a row without a question and without a dataset.yaml, and the command that writes one."""
    if dataset.recipe is not None or dataset.parse is not None or not isinstance(item, dict) or "question" in item:
        return ""
    unknown = [repr(name) for name in item if name not in _STANDARD_FIELDS]
    if not unknown or is_answered(item):
        return ""
    names = ", ".join(unknown[:_MOST_FIELDS])
    if len(unknown) > _MOST_FIELDS:
        names = f"{names} and {len(unknown) - _MOST_FIELDS} more"
    command = f"agentbench new dataset {shlex.quote(os.path.relpath(dataset.path))}"
    return f"; found {names}: `{command}` writes a dataset.yaml that names the fields"


def _standard_item(dataset: Dataset, value: Any, number: int) -> Any:
    """Return a raw value in the standard form, made by the user's class or the descriptor's fields.

    Raises ValueError if they fail.
    """
    if dataset.recipe is not None:
        return dataset.recipe.item(value, number, dataset.parse)
    if dataset.parse is not None:
        return call_parser(dataset.parse, value, number)
    return value


def _require_sound(dataset: Dataset, raw: bytes, item: Any) -> None:
    """Raise ValueError for a value, of the standard form, that cannot be a row."""
    require_item(item)
    if is_answered(item):
        raise ValueError("found an agent's answer: predictions and logs of runs are no cases; pass the dataset itself")
    if b"\\u" in raw and _is_no_text(raw, item):
        raise ValueError("found half of a surrogate pair (\\ud800-\\udfff), which is no text")
    is_text = isinstance(item.get("answer", ""), str)
    if "evaluator" in item or "metadata" in item or dataset.recipe is not None or not is_text:
        read_grading(dataset, item, metadata_of(item))


def _default_id(dataset: Dataset, path: Path, number: int) -> str:
    if dataset.recipe is None:
        return f"item_{number}"
    return dataset.recipe.default_id(path, number)


_shared_tags = lru_cache(maxsize=1024)(normalize_tags)
"""Return one object for all rows with the same tags."""


def _is_no_text(raw: bytes, item: dict[str, Any]) -> bool:
    """Return whether a text of the item has half of a surrogate pair. An id may: there it is replaced."""
    # Only an escape can produce half of a pair, so most items need not be encoded for this check.
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return False
    try:
        json.dumps({key: item[key] for key in item if key != "id"}, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _first(dataset: Dataset, place: _Place) -> str:
    """Return the place where an id was first used: in the file, in one of several, or in a source."""
    if isinstance(place, int):
        return f"on line {place}"
    path, line = place
    if dataset.recipe is not None and path == dataset.recipe.path:
        return f"in row {line}"
    if path == dataset.path:
        return f"on line {line}"
    return f"at {path}:{line}"


def _nothing(dataset: Dataset, splits: set[str]) -> BadRow:
    recipe, reason = dataset.recipe, "found no item, expected at least one object with a `question`"
    if recipe is not None and splits:
        message = recipe.place(("split",), f"found no row of it, only {', '.join(sorted(splits))}")
        return BadRow(1, message, recipe.path)
    if recipe is not None and recipe.only is None:
        return BadRow(1, recipe.place(("files" if recipe.files else "source",), reason), recipe.path)
    return _bad(dataset, dataset.path, BadItem(1, 1, ""), reason)


def _bad(dataset: Dataset, path: Path, value: Item | BadItem, reason: str) -> BadRow:
    return BadRow(value.line, visible(f"{_place_of(dataset, path, value)}: {reason}"), path)


def _place_of(dataset: Dataset, path: Path, value: Item | BadItem) -> str:
    return place_in_file(path, value) if dataset.recipe is None else dataset.recipe.where(path, value)


_TITLE = 60
_RUNNER = RunnerSpec(type="llm_probe")


def row_case(dataset: Dataset, row: Row) -> Case:
    """Return the case of a row of `read_rows`: the question as a user message, the answer as the reference.

    A descriptor may put examples before the question, and the question into a prompt. A row without answer and
    evaluator has no metric: only a judge can decide it.
    """
    item: dict[str, Any] = parse_value(row.raw)
    metadata = metadata_of(item)
    checks, metrics, reference = read_grading(dataset, item, metadata)
    question = item["question"]
    fields: dict[str, Any] = {"messages": (Message(role="user", content=question),), "runner": _RUNNER}
    if dataset.recipe is not None:
        fields = _described(dataset, dataset.recipe, item)
    if reference is not None:
        fields["reference"] = gold_reply(reference)
    if not isinstance(reference, str):
        fields["golds"] = reference
    case = Case(
        case_id=row.case_id,
        title=short_title(question),
        path=row.path,
        line=row.line,
        dataset=dataset.name,
        tags=row.tags,
        checks=checks,
        metrics=metrics,
        metadata=metadata,
        **fields,
    )
    if case.skill is None:
        return case
    from pytest_agentbench.sources.triggers import add_trigger_check

    return add_trigger_check(case)


def read_benchmark_items(dataset: Dataset) -> Iterator[BenchmarkItem | BadRow]:
    """Yield the rows of `read_rows` as items: `question` is the prompt, `answer` is "" if there is none.

    Raises ConfigError if the dataset cannot be read.
    """
    for row in read_rows(dataset):
        if isinstance(row, BadRow):
            yield row
        else:
            yield _benchmark_item(dataset, row)


def _described(dataset: Dataset, recipe: Recipe, item: dict[str, Any]) -> dict[str, Any]:
    """Return the descriptor's fields for every case."""
    descriptor = recipe.descriptor
    messages = [Message(role="user", content=recipe.prompt(item))]
    if dataset.shots is not None:
        messages = [*dataset.shots.before(item["question"]), *messages]
    return {
        "messages": tuple(messages),
        "runner": descriptor.runner,
        "report_only": descriptor.report_only,
        "context": recipe.context(item),
        "tools": named_tools(descriptor.context),
        "verify": _verifiers(recipe, item),
        "setup": make_command(descriptor.setup, recipe.path),
        "teardown": make_command(descriptor.teardown, recipe.path),
        "mcp_servers": map_servers(descriptor.mcp_servers),
        "skill": descriptor.skill,
    }


def _verifiers(recipe: Recipe, item: Mapping[str, Any]) -> tuple[Verifier, ...]:
    if recipe.descriptor.verify is None:
        return ()
    (declared,) = named_verifiers(recipe.descriptor.verify)
    verifier = make_verifier(declared, recipe.scope)
    texts = (HiddenFile(target=path, text=text) for path, text in recipe.hidden_texts(item).items())
    return (verifier.model_copy(update={"files": (*verifier.files, *texts)}),)


def _benchmark_item(dataset: Dataset, row: Row) -> BenchmarkItem:
    item: dict[str, Any] = parse_value(row.raw)
    metadata = metadata_of(item)
    evaluator = evaluator_of(metadata) or {"func": None}
    identifier, question = item.get("id"), item["question"]
    if identifier is None:
        identifier = row.case_id.removeprefix(f"{dataset.name}.")
    if dataset.recipe is not None:
        question = dataset.recipe.prompt(item)
    return BenchmarkItem(
        id=str(identifier),
        question=question,
        answer=answer_text_of(item, as_json=_compares_json(dataset, evaluator["func"])),
        metadata=metadata,
        typed_answer=typed_answer_of(item),
    )


def short_title(question: str) -> str:
    """Return the beginning of the question, in one line."""
    words = " ".join(question[: 4 * _TITLE].split())
    return shorten_text(words, _TITLE)


@dataclass(frozen=True, slots=True, eq=False)
class _CaseBuilder:
    """Builds the case of a row when it runs, so that 10,000 items keep no parsed rows."""

    dataset: Dataset
    row: Row

    def __call__(self) -> Case:
        return row_case(self.dataset, self.row)

    def with_prompt(self, template: str) -> Case:
        """Return the case with another template for the prompt. Raises ValueError for a field that the row lacks."""
        return row_case(self.dataset.with_prompt(template), self.row)


class OpenedDataset(OpenedSource):
    """A file of questions or a descriptor. Rows are read in one pass and parsed again when they run."""

    ordered = alike = True

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset.path)
        self.dataset, self.name, self.metrics = dataset, dataset.name, dataset.metrics
        if dataset.descriptor is not None:
            self.prediction_fields = dataset.descriptor.predictions
            self.declaring = dataset.descriptor if dataset.descriptor.variants else None
        self._metric_names = tuple(name.encode() for name in dataset.known.metrics or ())
        self._first_expected: Row | None = None

    @property
    def file(self) -> Path:
        """Return the descriptor, if there is one, even if one of its data files was opened."""
        if self.dataset.recipe is None:
            return self.path
        return self.dataset.recipe.path

    @property
    def part(self) -> Path:
        """Return the file whose rows are counted. One of several data files has its rows counted separately."""
        recipe = self.dataset.recipe
        if recipe is not None and recipe.only is not None and len(recipe.files) > 1:
            return self.path
        return self.file

    @property
    def is_remote(self) -> bool:  # type: ignore[override]
        """Return whether reading the rows downloads them."""
        return self.dataset.descriptor is not None and self.dataset.descriptor.is_remote

    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the rows of `read_rows`. `subject` is ignored: a dataset has none."""
        for row in read_rows(self.dataset):
            if isinstance(row, BadRow):
                yield row
            else:
                if row.took_expected:
                    self._first_expected = self._first_expected or row
                make, own_metrics = _CaseBuilder(self.dataset, row), self._decides(row)
                repetitions = self._count_repetitions(make)
                yield SourceCase(row.case_id, row.tags, row.path, row.line, make, row.index, own_metrics, repetitions)

    def _count_repetitions(self, make: _CaseBuilder) -> int:
        descriptor = self.dataset.descriptor
        if descriptor is None or descriptor.skill is None:
            return 1
        from pytest_agentbench.sources.triggers import count_repetitions

        try:
            return count_repetitions(make())
        except ConfigError:  # the row's item reports it
            return 1

    def _decides(self, row: Row) -> bool:
        """Return whether the row's evaluator may name a metric. Most rows have none."""
        # A search in the text, because rows are parsed only when they run, and collection may read 100,000 of them.
        return b"evaluator" in row.raw and any(name in row.raw for name in self._metric_names)

    def explain(self, row: SourceCase, problems: Sequence[tuple[Loc, str]]) -> ConfigError:
        """Return the error for problems of a row. Checks, metrics and gold of a row come from its evaluator."""
        return ConfigError(f"{row.path}:{row.line}:1: evaluator: {'; '.join(text for _, text in problems)}")

    def doubts(self, known: Known) -> Iterator[tuple[str, str]]:
        """Yield doubts about names in a descriptor that only a plugin can define, and about results that are hard to
        repeat.
        """
        recipe = self.dataset.recipe
        if recipe is not None:
            yield from ((recipe.place(loc, text), text) for loc, text in _descriptor_doubts(recipe.descriptor, known))

    def field_doubts(self) -> Iterator[tuple[str, str]]:
        """Yield the doubts about the descriptor's runner and patterns, and about plugins of its variants."""
        recipe = self.dataset.recipe
        if recipe is None:
            return
        if self.declaring is not None:
            from pytest_agentbench.config.field_doubts import list_part_doubts

            yield from ((doubt, doubt) for doubt in list_part_doubts(self.declaring))
        if recipe.descriptor.runner.overrides:
            from pytest_agentbench.config.field_doubts import list_runner_doubts

            yield from list_runner_doubts(recipe.path, recipe.descriptor.runner)
        yield from list_pattern_doubts(recipe.path, (), recipe.descriptor.context, ("context",))

    def row_notes(self) -> Iterator[str]:
        """Yield a note if rows without an answer have the field `expected`, at the first of them."""
        if (row := self._first_expected) is not None:
            advice = "`fields: {answer: expected}` in a dataset.yaml says so"
            place = _place_of(self.dataset, row.path, BadItem(row.line, 1, ""))
            yield f"{place}: expected: taken as the answer, here and in the rows below without `answer`; {advice}"

    def row_doubts(self, rows: Iterable[SourceCase]) -> Iterator[str]:
        """Yield doubts about questions and answers. Raises ConfigError if examples cannot be read."""
        from pytest_agentbench.sources.quality import find_doubts

        parsed = (row.make.row for row in rows if isinstance(row.make, _CaseBuilder))
        yield from (f"{doubt.place}: warning: {doubt.text}" for doubt in find_doubts(self.dataset, parsed))


def _descriptor_doubts(descriptor: DatasetDescriptor, known: Known) -> Iterator[tuple[Loc, str]]:
    """Yield doubts about a descriptor at its fields, whether or not its rows can be read."""
    for at, metric in enumerate(descriptor.metrics):
        yield from ((("metrics", at, "name"), text) for text in unregistered("metric", [metric.name], known.metrics))
    yield from ((("runner",), text) for text in unregistered("runner", [descriptor.runner.type], known.runners))
    if descriptor.is_remote:
        yield ("source",), "its rows were not checked: nothing is downloaded here; pytest --collect-only reads them"
        if descriptor.revision is None:
            yield (
                ("source",),
                "no revision is named, so rows may change and results with them; add `revision: <commit>`",
            )


def unregistered(kind: str, names: Iterable[str], registered: Collection[str] | None) -> Iterator[str]:
    """Yield a doubt for each name of a kind that is not registered. None: the registered names are unknown."""
    for name in names:
        if registered is not None and name not in registered:
            yield f"the {kind} {name!r} is not built in; a plugin or conftest.py must register it"


class Datasets(CaseSource):
    """Files of questions (JSON, JSONL) and their descriptors (dataset.yaml)."""

    names_data = True

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return whether it is one of our descriptors, or a file whose first items are questions."""
        if path.suffix in DATA_SUFFIXES:
            return shows_questions(path, head)
        return super().holds_cases(path, head)

    def open(self, path: Path, request: SourceRequest) -> OpenedDataset:
        """Return the dataset of a descriptor or data file. Raises ConfigError."""
        root, known, outside = request.root, request.known, request.allow_outside
        run_code = request.run_code
        return OpenedDataset(open_dataset(path, root, known, request.metrics, run_code=run_code, allow_outside=outside))

    def claims(self, data: Mapping[str, Any], scope: Scope) -> Claims:
        """Return the data files of a descriptor."""
        return claims_of_descriptor(data, scope)


DATASETS = Datasets()
