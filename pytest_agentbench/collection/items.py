"""Items, one case on one model once, and their files: a `test.yaml` is one case, a dataset many."""

from __future__ import annotations

import functools
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.config.loader import make_located_error
from pytest_agentbench.engine.driver import AHEAD, JOB, RESULT, RUNNER_FIXTURE
from pytest_agentbench.engine.job import Job, Plan, Result
from pytest_agentbench.engine.servers import SERVERS_FIXTURE
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.records.case import Case, MetricSpec, Model
from pytest_agentbench.reports.assertion import error_report, failure_report
from pytest_agentbench.sources.dataset import Dataset
from pytest_agentbench.sources.rows import BadRow, Row, row_case
from pytest_agentbench.terminal_text import visible_line

STRICT = pytest.StashKey[bool]()
OUTPUT = pytest.StashKey[Path]()
MARKS = pytest.StashKey[dict[str, Any]]()
ACTIVE_MARKS = frozenset(
    {
        "skip",
        "skipif",
        "xfail",
        "parametrize",
        "usefixtures",
        "filterwarnings",
        "xdist_group",
        "flaky",
        "timeout",
        "agentbench",
    }
)
"""Marks that would do something to an item: tags of these names are keywords only."""


# no docstrings: --collect-only -v would print them per item
def case_function(agentbench_runner, agentbench_mcp_servers):  # type: ignore[no-untyped-def]  # noqa: D103
    pass


def predicted_function():  # type: ignore[no-untyped-def]  # noqa: D103  # predictions need no runner, so none is made
    pass


class _TextId(pytest.Item):
    """Sits between Function and Item and hands the node id on as text, so that pytest parses `case[model]` the way it
    parses ids from its cache. Without it --lf, --ff, --nf and --sw silently never match such an item (pytest >= 9.1).
    """

    def __init__(self, name: str, parent: Any = None, *, nodeid: Any = None, **kw: Any) -> None:
        super().__init__(name, parent, nodeid=nodeid and str(nodeid), **kw)


class CaseItem(pytest.Function, _TextId):
    """Setup resolves fixtures and gets the result, so what breaks there is an error; the call asserts."""

    line = 1

    def reportinfo(self) -> tuple[Path, int, str]:
        """A title that ended in the node id would have its dots turned into slashes by -v."""
        return self.path, self.line - 1, f"{self.path.name}: {self.name}"

    @functools.cached_property
    def location(self) -> tuple[str, int | None, str]:
        """The place as terminals and JUnit may show it."""
        path, line, title = super().location
        return visible_line(path), line, visible_line(title)

    def setup(self) -> None:
        """Fixtures first, then the run, which has usually ended by now."""
        __tracebackhide__ = True
        super().setup()
        if not self.config.getoption("setuponly", False):  # --setup-plan and --setup-only pay for nothing
            fetch(self, self.funcargs.get(RUNNER_FIXTURE), self.funcargs.get(SERVERS_FIXTURE))

    def runtest(self) -> None:
        """Raises one readable report of everything that failed."""
        result = self.stash[RESULT]
        case, artifact, evaluation = result.case, result.artifact, result.evaluation
        if case is not None and artifact is not None and evaluation is not None and evaluation.outcome == "failed":
            shown = self.stash[JOB].plan.lane.redact_record
            text = failure_report(case, shown(artifact), shown(evaluation), trace_place(self, result))
            pytest.fail(text, pytrace=False)


def fetch(item: pytest.Item, runner: Any, servers: Any) -> Result:
    """The item's result, ready or awaited, made with these values of the fixtures.

    Raises in pytest's words what kept it from one. What cannot run here is a skip (an error with --agentbench-strict),
    what broke around the agent an error with our own text, and what the user's agent raised is raised again with the
    agent's frames.
    """
    __tracebackhide__ = True
    result = item.config.stash[AHEAD].result(item, item.stash[JOB].plan.predictions or runner, servers)
    error = result.error
    if result.not_run is not None:
        _skip(f"not run: {result.not_run}")
    if isinstance(error, UnavailableError) and not item.config.stash[STRICT]:
        _skip(str(error))
    if isinstance(error, AgentbenchError):
        artifact = result.artifact and item.stash[JOB].plan.lane.redact_record(result.artifact)
        _fail(error_report(error, artifact, trace_place(item, result)))
    if error is not None:
        raise error
    return result


def _skip(reason: str) -> None:
    pytest.skip(reason)  # from one place and a visible frame, so that pytest folds equal reasons into one line


def _fail(text: str) -> None:
    pytest.fail(text, pytrace=False)  # from a visible frame: pytest adds a line about --full-trace where all are hidden


def trace_place(item: pytest.Item, result: Result) -> str | None:
    """Where the stored run lies, as a path from where pytest was started."""
    if result.path is None:
        return None
    return os.path.relpath(item.config.stash[OUTPUT] / result.path, item.config.invocation_params.dir)


def _legal(text: str) -> str:
    """The text as node ids and xdist carry it: no brackets, `::`, lone surrogates, nothing that steers a terminal."""
    return re.sub(r"[\[\]\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|::", "_", text)


def item_name(case_id: str, model_id: str, repetition: int) -> str:
    """`<case_id>[<model_id>]`, `[<model_id>-r2]` from the second repetition on. Sources make legal case ids."""
    suffix = f"-r{repetition}" if repetition > 1 else ""
    return f"{case_id}[{_legal(model_id)}{suffix}]"


def tag_items(config: pytest.Config, items: Iterable[CaseItem], tags: Iterable[str]) -> None:
    """Tags are keywords (-k), and marks (-m) unless the mark would do something or cannot be written in -m."""
    marks = config.stash.setdefault(MARKS, {})
    for tag in tags:
        if tag not in marks:
            marks[tag] = _register(config, tag)
        for item in items:
            if marks[tag] is None:
                item.extra_keyword_matches.add(tag)
            else:
                item.add_marker(marks[tag])


def _register(config: pytest.Config, tag: str) -> pytest.MarkDecorator | None:
    if tag in ACTIVE_MARKS or not re.fullmatch(r"[^\W_][\w.+-]*", tag):
        return None
    config.addinivalue_line("markers", f"{tag}: tag of agentbench cases")  # first: --strict-markers checks its use
    mark: pytest.MarkDecorator = getattr(pytest.mark, tag)
    return mark


def make_item(parent: pytest.Collector, job: Job, line: int, fixtureinfo: Any = None) -> CaseItem:
    """The item of a job. `fixtureinfo` of a sibling spares pytest from working out the same fixtures again."""
    name = item_name(job.case_id, job.plan.model_id, job.repetition)
    function = case_function if job.plan.predictions is None else predicted_function
    item: CaseItem = CaseItem.from_parent(parent, name=name, callobj=function, fixtureinfo=fixtureinfo)
    item.line = line
    item.stash[JOB] = job
    return item


PLANNER = pytest.StashKey[Planner]()
Judges = Sequence[tuple[Model, ...]]
"""For each plan the models that the metrics of a case ask."""


class CollectionError(pytest.Collector.CollectError):
    """One text per problem: xdist reports a text once, and a traceback once per worker."""


class Cases(pytest.Module):
    """A Module with an empty module object, so that module-scoped fixtures and `request.module` work for cases too."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self.obj = types.ModuleType(self.path.stem)
        self._fixtureinfo: Any = None

    def _items(
        self,
        case_id: str,
        tags: tuple[str, ...],
        line: int,
        case: Callable[[], Case],
        plans: list[Plan],
        judges: Judges,
    ) -> list[CaseItem]:
        planner = self.config.stash[PLANNER]
        items = []
        for plan, asked in zip(plans, judges, strict=True):
            for repetition in range(1, planner.repetitions(plan) + 1):
                job = Job(case_id, tags, case, plan, repetition, judges=asked)
                item = make_item(self, job, line, self._fixtureinfo)
                self._fixtureinfo = getattr(item, "_fixtureinfo", None)  # the same for every item of the file
                items.append(item)
        tag_items(self.config, items, tags)
        return items

    def _plans(self) -> list[Plan]:
        planner = self.config.stash[PLANNER]
        return planner.plans(planner.root(self.path), own_agent=planner.has_own_agent(self.path))


class CaseFile(Cases):
    """A `test.yaml`."""

    def collect(self) -> Iterator[pytest.Item]:
        """The case's items, or one error with everything that is wrong with the file."""
        planner = self.config.stash[PLANNER]
        root = planner.root(self.path)
        try:
            plans = self._plans()
            case = planner.load(self.path, plans)
            first = planner.files(root).setdefault(case.case_id, self.path)
            if first != self.path:
                raise make_located_error(
                    self.path, [(("case_id",), f"Duplicate case_id {case.case_id!r}; {first} has it too")]
                )
            planner.answer(case)
            judges = planner.metric_judges(plans, case.metrics, f"{self.path}:{case.line}:1")
        except ConfigError as error:
            raise CollectionError(str(error)) from None
        yield from self._items(case.case_id, case.tags, case.line, lambda: case, plans, judges)


class DatasetFile(Cases):
    """A file of questions or a dataset's descriptor, read in one pass; the rows are parsed again when they run."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """The rows' items, and a failing node for each row that is none."""
        planner = self.config.stash[PLANNER]
        try:
            plans = self._plans()
            dataset = planner.open_dataset(self.path, plans, _metrics(planner))
            self._claim_name(dataset)
            judges = planner.metric_judges(plans, dataset.metrics, str(dataset.path))
            for row in planner.rows(dataset, plans):
                if isinstance(row, BadRow):
                    yield self._bad(row, row.message)
                    continue
                case = functools.partial(row_case, dataset, row)
                try:
                    self._claim_id(dataset, row)
                    asked = planner.own_judges(row, case, plans) or judges
                except ConfigError as error:
                    yield self._bad(row, str(error))
                else:
                    line = row.line if row.path is dataset.path else 1
                    yield from self._items(row.case_id, row.tags, line, case, plans, asked)
        except ConfigError as error:
            raise CollectionError(str(error)) from None

    def _claim_name(self, dataset: Dataset) -> None:
        """Case ids begin with it, so no other dataset may have it. Raises ConfigError."""
        planner = self.config.stash[PLANNER]
        own = self.path if dataset.recipe is None else dataset.recipe.path
        planner.claim_name(dataset.name, own, planner.root(self.path))

    def _claim_id(self, dataset: Dataset, row: Row) -> None:
        """The ids of rows begin with their dataset's name; those of tasks do not. Raises ConfigError."""
        if dataset.tasks is None:
            return
        planner = self.config.stash[PLANNER]
        first = planner.files(planner.root(self.path)).setdefault(row.case_id, self.path)
        if first != self.path:
            problem = f"task_id: Duplicate case_id {row.case_id!r}; {first} has it too"
            raise ConfigError(f"{self.path}:{row.line}:1: {problem}")

    def _bad(self, row: Row | BadRow, message: str) -> BadRowNode:
        place = f"line {row.line}" if row.path == self.path else f"{row.path.name} line {row.line}"
        return BadRowNode.from_parent(self, name=place, message=message)


class BadRowNode(pytest.Collector):
    """A row that cannot be a case: an error of its own, so that the others still run."""

    def __init__(self, message: str, **kw: Any) -> None:
        super().__init__(**kw)
        self.message = message

    def collect(self) -> list[pytest.Item]:
        """Raises what is wrong with the row."""
        raise CollectionError(self.message)


def _metrics(planner: Planner) -> tuple[MetricSpec, ...] | None:
    if planner.settings.metric is None:
        return None
    name, threshold = planner.settings.metric
    return (MetricSpec(name=name, threshold=threshold),)
