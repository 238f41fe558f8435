"""`Benchmark`: questions and answers of a file in Python, and the evaluation of predictions (seed 001)."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from pytest_agentbench.benchmark.concurrency import (
    DEFAULT_AT_ONCE,
    Desk,
    Pending,
    default_workers,
    finish_all,
    score_in_chunks,
)
from pytest_agentbench.benchmark.results import EvaluationResult, read_results, summarize, write_results
from pytest_agentbench.benchmark.scoring import ChosenMetric, MetricLookup, Scorer, find_registered
from pytest_agentbench.config.dataset_file import find_only_field
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import missing_extra, require_compat, wrong_names
from pytest_agentbench.records.case import Compat, MetricSpec
from pytest_agentbench.sources.case_source import BadRow
from pytest_agentbench.sources.dataset import EXACT_MATCH, Dataset
from pytest_agentbench.sources.discovery import open_questions
from pytest_agentbench.sources.items import BenchmarkItem, parse_item
from pytest_agentbench.sources.rows import read_benchmark_items


@dataclass(frozen=True, slots=True)
class Aligned:
    """`predictions` in the order of the items, None for an item without one. `unmatched` are the ids of no item."""

    predictions: list[Any]
    unmatched: list[str]


def _align(
    predictions: Mapping[Any, Any] | Sequence[Any], ids: Sequence[str], dataset: str, places: Sequence[int], rows: int
) -> Aligned:
    """Return the predictions of the items with these `ids`, also by case id (`<dataset>.<id>`), else in order.

    A list answers the items, or all `rows` of the data, of which the items have the 0-based `places`. Raises
    ConfigError for anything else, and for a list of another length: it would compare the wrong texts.
    """
    if isinstance(predictions, Mapping):
        return _by_id(_convert_ids(predictions), ids, dataset)
    if not isinstance(predictions, Sequence) or isinstance(predictions, (str, bytes, bytearray)):
        raise ConfigError(
            f"predictions: found {type(predictions).__name__}, expected a mapping {{id: prediction}}, or a list with "
            "one prediction for each item, in order"
        )
    if len(predictions) == len(ids):
        return Aligned(list(predictions), [])
    # The list may also answer all rows of the file, some of which could not be loaded.
    if len(predictions) == rows and len(places) == len(ids):
        return Aligned([predictions[place] for place in places], [])
    expected = f"{len(ids):,}, one for each item in order"
    if rows > len(ids):
        expected = f"{expected} ({rows - len(ids):,} more rows could not be loaded)"
    raise ConfigError(
        f"predictions: found a list of {len(predictions):,}, expected {expected}; a mapping {{id: prediction}} may "
        "leave items out"
    )


def _by_id(predictions: Mapping[str, Any], ids: Sequence[str], dataset: str) -> Aligned:
    known = set(ids)
    others = [key for key in predictions if key not in known]
    if not others:
        return Aligned([predictions.get(item_id) for item_id in ids], [])
    # A case id is the full name, so it takes precedence over the item's id.
    by_case = {name: key for key in others if (name := key.removeprefix(f"{dataset}.")) in known}
    keys = [by_case.get(item_id, item_id) for item_id in ids]
    used = set(keys)
    return Aligned([predictions.get(key) for key in keys], [key for key in predictions if key not in used])


def _convert_ids(predictions: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return the predictions with whole numbers in ids converted to texts."""
    if all(type(key) is str for key in predictions):
        return predictions
    converted: dict[str, Any] = {}
    for key, value in predictions.items():
        # True is an int, but it must not answer the item with the id 1.
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise ConfigError(f"predictions: found the id {key!r}, expected a text or a whole number")
        if (text := str(key)) in converted:
            raise ConfigError(f"predictions: found the id {text!r} twice, as a text and as a number")
        converted[text] = value
    return converted


PathLike = str | os.PathLike[str]

_REFUSED_OVERRIDES = {
    "_compute_metric": "override _get_metric_function, which returns the function of a metric's name",
    "_get_metric_details": "let the metric return Measured(score, details)",
}
"""Methods of the original that have no counterpart here, with their replacements."""

_SHOWN = 5
_PACKAGE = f"{__name__.partition('.')[0]}."


class BenchmarkWarning(UserWarning):
    """Rows that cannot be loaded, predictions of no item, or items without a score were left out."""


class Benchmark:
    """Questions with their answers, and the evaluation of predictions.

    Override `_parse_item` for rows of another shape, and `_exact_match` or another `_<metric>` to redefine a metric.
    `dataset` is the loaded data, None before there is any. `load_errors` has a line `file:line:column: reason` for each
    row that could not be used. `evaluation_results` are the results of the last `evaluate`, and `unmatched_ids` the ids
    of its predictions that no item has.
    """

    _get_metric_function = MetricLookup(find_registered)
    """The function of a metric's name. A function that is assigned to a benchmark may fall back to it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, remedy in _REFUSED_OVERRIDES.items():
            if name in cls.__dict__:
                raise ConfigError(f"{cls.__qualname__}.{name}: found an override that is never called; {remedy}")
        # An override becomes the lowest lookup, so that functions assigned to an instance can fall back to it.
        override = cls.__dict__.get("_get_metric_function")
        if override is not None and not isinstance(override, MetricLookup):
            cls._get_metric_function = MetricLookup(override)

    def __init__(self, data_path: PathLike | None = None, name: str | None = None, description: str = "") -> None:
        self.name, self.description = name or "Benchmark", description
        self._declared = name, description
        self.data_path: str | None = None
        self.items: list[BenchmarkItem] = []
        self._by_id: dict[str, BenchmarkItem] = {}
        self._places: list[int] = []  # of the items among all rows of the data
        self._rows = 0
        self.load_errors: list[str] = []
        self.evaluation_results: list[EvaluationResult] = []
        self.unmatched_ids: list[str] = []
        self.dataset: Dataset | None = None
        self._summary: dict[str, Any] | None = None
        if data_path is not None:
            self.load_data(data_path)

    def __repr__(self) -> str:
        summary = f"{type(self).__name__} {self.name!r}: {len(self.items):,} items"
        if self.data_path is None:
            return f"<{summary}>"
        return f"<{summary} of {self.data_path}>"

    def load_data(self, data_path: PathLike) -> None:
        """Load a data file (JSON, JSONL) or a dataset.yaml. It replaces the loaded data.

        Rows that cannot be used are left out, each with a line in `load_errors`, with one BenchmarkWarning for all.
        Raises ConfigError if the file cannot be read.
        """
        path = Path(data_path).absolute()
        dataset = open_questions(path, self._root(path), run_code=True)
        if type(self)._parse_item is not Benchmark._parse_item:
            dataset = replace(dataset, parse=self._parse_item)
        rows = list(read_benchmark_items(dataset))
        errors = [row.message for row in rows if isinstance(row, BadRow)]
        self._set_items([row for row in rows if not isinstance(row, BadRow)])
        self._places, self._rows = [place for place, row in enumerate(rows) if not isinstance(row, BadRow)], len(rows)
        self.load_errors, self.dataset = errors, dataset
        self.evaluation_results, self.unmatched_ids, self._summary = [], [], None
        self.data_path = os.fspath(data_path)
        declared = dataset.descriptor and dataset.descriptor.name
        self.name = self._declared[0] or declared or f"Benchmark_{path.name}"
        self.description = self._declared[1] or dataset.description
        if errors:
            _warn(f"rows that could not be loaded: {len(errors):,}; {errors[0]}")

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """Return the metrics that the dataset names, by default exact_match."""
        if self.dataset:
            return self.dataset.metrics
        return (EXACT_MATCH,)

    def get_items(self) -> list[BenchmarkItem]:
        """Return all items, in order."""
        return list(self.items)

    def get_item(self, item_id: str) -> BenchmarkItem | None:
        """Return the item with this id, or None."""
        return self._by_id.get(str(item_id))

    def get_questions(self) -> list[str]:
        """Return the questions of all items, in order."""
        return [item.question for item in self.items]

    def get_answers(self) -> list[str]:
        """Return the right answers of all items, in order."""
        return [item.answer for item in self.items]

    def evaluate(
        self,
        predictions: Mapping[Any, Any] | Sequence[Any],
        metric: str | MetricSpec | None = None,
        concurrent: bool = True,
        max_workers: int | None = None,
        *,
        missing: Literal["zero", "skip"] = "zero",
        compat: Compat | None = None,
        progress: Callable[[int, int], None] | None = None,
        output: PathLike = "outputs",
        **kwargs: Any,
    ) -> list[EvaluationResult]:
        """Return the results of all items, in order. An item that cannot be scored does not affect the others.

        `predictions` is `{item id: prediction}`, or a list with one for each item. A prediction is a text, a number,
        true or false, None for no answer, or a list of these for metrics of samples. `metric` is a name, by default the
        dataset's first metric, else exact_match; `kwargs` are its options. A row with an `evaluator` is decided by the
        evaluator. With `missing="zero"` an item without a prediction counts as 0. `compat="v1"` selects the metrics of
        the original, "v2" the metrics of its rewrite for rollouts.

        Up to `max_workers` items are scored at the same time (default: 16 for metrics that ask models, else the default
        of `concurrent.futures`), one after the other without `concurrent`. `progress` gets the number of finished items
        and the total. Answers of models are stored below the folder `output`.

        Raises ConfigError for an unknown metric, one whose package is missing, and predictions of a wrong shape.
        """
        _expect(missing in ("zero", "skip"), f"missing: found {missing!r}, expected 'zero' or 'skip'")
        require_compat(compat)
        _expect(
            max_workers is None or (isinstance(max_workers, int) and max_workers >= 1),
            f"max_workers: found {max_workers!r}, expected a whole number, at least 1",
        )
        _expect(bool(self.dataset or self.items), "this benchmark has no data; load_data(path) first")
        chosen = self._choose_metric(self._spec(metric, compat, kwargs))
        name = self.dataset.name if self.dataset else self.name
        aligned = _align(predictions, [item.id for item in self.items], name, self._places, self._rows)
        scorer = self._scorer(chosen, 0.0 if missing == "zero" else None)
        if not concurrent:
            max_workers = 1
        at_once = (max_workers or default_workers(), max_workers or DEFAULT_AT_ONCE)
        results = self._score(scorer, aligned.predictions, at_once, Path(output), progress)
        self.evaluation_results, self.unmatched_ids = results, aligned.unmatched
        self._summary = summarize(self.name, self.description, len(self.items), chosen.spec.name, results)
        self._warn_of_results()
        return list(results)

    def get_summary(self) -> dict[str, Any]:
        """Return name, description, counts and scores of the last evaluation. Scores are None before the first one."""
        empty = summarize(self.name, self.description, len(self.items), None, self.evaluation_results)
        return {**empty, **(self._summary or {})}

    def save_results(self, file_path: PathLike) -> None:
        """Write `{benchmark_info, evaluation_results, summary}` as JSON, atomically.

        Raises ConfigError before there are results, InfrastructureError if the file cannot be written.
        """
        _expect(self._summary is not None, "there are no results to save; evaluate first")
        info = {
            "name": self.name,
            "description": self.description,
            "data_path": self.data_path,
            "total_items": len(self.items),
        }
        write_results(Path(file_path), info, self.evaluation_results, self.get_summary())

    def load_results(self, file_path: PathLike) -> None:
        """Restore results that `save_results` wrote. A benchmark without data also gets their name and items.

        Of an item's metadata only the evaluator is stored. Raises ConfigError for a file without results.
        """
        saved = read_results(Path(file_path))
        if self.dataset is None:
            self.name = str(saved.info.get("name") or self.name)
            self.description = str(saved.info.get("description") or self.description)
            self.data_path = saved.info.get("data_path")
            self._set_items([_restore_item(result) for result in saved.results])
        self.evaluation_results, self.unmatched_ids, self._summary = saved.results, [], saved.summary

    def _parse_item(self, data: dict[str, Any], line_num: int) -> BenchmarkItem:
        """Return an object of the file as an item; `line_num` is its line in JSONL, its position in JSON, from 1.

        An exception makes the object a bad row.
        """
        return parse_item(data, line_num)

    def _set_items(self, items: list[BenchmarkItem]) -> None:
        self.items, self._by_id = items, {item.id: item for item in items}
        self._places, self._rows = [*range(len(items))], len(items)

    def _spec(self, metric: str | MetricSpec | None, compat: Compat | None, args: dict[str, Any]) -> MetricSpec:
        if metric is None:
            metric = self.metrics[0]
        if not isinstance(metric, (str, MetricSpec)) or not metric:
            raise ConfigError(
                f"metric: found {metric!r}, expected a name; `@metric(name)` gives a function of your own one"
            )
        spec = MetricSpec(name=metric) if isinstance(metric, str) else metric
        return spec.model_copy(update={"compat": compat or spec.compat, "args": {**spec.args, **args}})

    def _choose_metric(self, spec: MetricSpec) -> ChosenMetric:
        chosen = ChosenMetric(spec, self._get_metric_function(spec.name))
        problem = (chosen.registered and missing_extra(spec.name, spec.compat)) or wrong_names(
            chosen.function, spec.args
        )
        _expect(problem is None, f"metric {spec.name}: {problem}")
        return chosen

    def _scorer(self, chosen: ChosenMetric, missing: float | None) -> Scorer:
        dataset = replace(self.dataset or Dataset(Path(self.name), self.name), metrics=(chosen.spec,))
        # Options such as "{{ answer }}" differ from row to row, and are rendered for each row.
        args, descriptor = chosen.spec.args, dataset.descriptor
        by_row = dataset.recipe is not None and any(find_only_field(value) for value in args.values())
        by_row = by_row or (descriptor is not None and descriptor.answer_is is not None)
        return Scorer(chosen, self._get_metric_function, dataset, by_row, missing)

    def _score(
        self,
        scorer: Scorer,
        predictions: Sequence[Any],
        at_once: tuple[int, int],
        output: Path,
        progress: Callable[[int, int], None] | None,
    ) -> list[EvaluationResult]:
        """Score items on threads, then on an event loop the items whose metrics ask models.

        `at_once` are the numbers of threads and of items that ask models at the same time.
        """
        done, items = 0, self.items

        def report_done(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None and more:
                progress(done, len(items))

        results = score_in_chunks(
            lambda at: scorer.score(items[at], predictions[at]),
            len(items),
            at_once[0],
            lambda chunk: report_done(sum(not isinstance(result, Pending) for result in chunk)),
        )
        pending = [result for result in results if isinstance(result, Pending)]
        if pending:  # without them no event loop and no client is needed
            finished = iter(finish_all(pending, self._desk(output), at_once[1], report_done))
            results = [next(finished) if isinstance(result, Pending) else result for result in results]
        return cast("list[EvaluationResult]", results)

    def _desk(self, output: Path) -> Desk:
        if self.dataset is None:
            return Desk(self._root(Path(self.name).absolute()), output, (), self.name)
        path, recipe = self.dataset.path, self.dataset.recipe
        return Desk(self._root(path), output, recipe.files if recipe else (path,), self.dataset.name)

    @staticmethod
    def _root(path: Path) -> ConfigRoot:
        return find_root(path, Path.cwd(), None)

    def _warn_of_results(self) -> None:
        if ids := self.unmatched_ids:
            names = ", ".join(map(repr, ids[:_SHOWN]))
            if len(ids) > _SHOWN:
                names = f"{names} and {len(ids) - _SHOWN:,} more"
            _warn(f"predictions that belong to no item of {self.name}: {names}")
        failed = [result for result in self.evaluation_results if result.failed]
        if failed:
            first = failed[0]
            _warn(
                f"items that could not be scored and are in no average: {len(failed):,} of {len(self.items):,}; "
                f"{first.item_id!r}: {first.error}"
            )


def create_benchmark(data_path: PathLike, name: str | None = None, description: str = "") -> Benchmark:
    """Return the benchmark of a data file or a dataset.yaml; the default `name` is `Benchmark_<file name>`.

    Raises ConfigError if the file cannot be read.
    """
    return Benchmark(data_path, name, description)


def _restore_item(result: EvaluationResult) -> BenchmarkItem:
    item = BenchmarkItem(result.item_id, result.question, result.ground_truth)
    item.typed_answer = result.details.get("typed_answer")
    if (evaluator := result.details.get("evaluator")) is not None:
        item.metadata = {"evaluator": evaluator}
    return item


def _expect(met: bool, problem: str) -> None:
    if not met:
        raise ConfigError(problem)


def _warn(message: str) -> None:
    """Warn at the line outside of this package that called it."""
    # A fixed stacklevel might point into this package: evaluate() may be called directly, by a subclass or by the
    # command.
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, BenchmarkWarning, stacklevel=level)
