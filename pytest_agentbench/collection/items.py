"""Files that hold cases, their items (one case on one model once), and which items stay: suites, cases to be named."""

from __future__ import annotations

import functools
import os
import re
import types
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.collection.arms import NO_ARM, Arm, list_arms
from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.collection.variants import require_columns
from pytest_agentbench.collection.walk import DeepFolder
from pytest_agentbench.config.documents import make_located_error
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.driver import AHEAD, FILE_ID, JOB, RESULT, RUN_FIXTURES, RUNNER_FIXTURE
from pytest_agentbench.engine.job import SERVERS_FIXTURE, Job, Plan, Result
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.sources.case_source import BadRow, CaseSource, OpenedSource, SourceCase, StoredAnswers
from pytest_agentbench.sources.discovery import (
    describe_near_miss,
    find_source,
    named_source,
    select,
    suite_problems,
    unmatched_tags,
)
from pytest_agentbench.terminal_text import visible, visible_line

if TYPE_CHECKING:
    from pytest_agentbench.collection.phases import Phases

STRICT = pytest.StashKey[bool]()
MARKED = pytest.StashKey[bool]()
"""Set if a hand-written test names a case."""
SHOWN_PATH = pytest.StashKey[str]()
PLAN_PARAM = "_agentbench_plan"
"""The parameter that such tests get: case, plan, repetition and judges of one run."""
SHOWN = pytest.StashKey[tuple[RunArtifact | None, Evaluation | None]]()
"""Run and verdict without secrets, until the item is over."""
OUTPUT = pytest.StashKey[Path]()
_MANY = 30
"""Items from which on leaving out guards saves more than the import of `phases` takes."""
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
    """An item of one case, model and repetition. Errors of its setup are errors; its call asserts on the result."""

    line = 1
    file: CaseFile

    @property
    def ihook(self) -> Any:
        """Return the hooks that pytest calls for the item."""
        if self.file.phases is not None:
            return self.file.phases
        hooks, ahead = super().ihook, self.config.stash.get(AHEAD, None)
        if ahead is None or len(self.session.items) < _MANY:  # items are still collected, or it saves nothing
            return hooks
        from pytest_agentbench.collection.phases import Phases

        self.file.phases = Phases(self.config, hooks, ahead)
        return self.file.phases

    @property
    def place(self) -> tuple[Any, Any]:
        """Return the file and the parameters of fixtures: items of one place have the same values of fixtures."""
        return self.parent, self.stash[JOB].plan.parameters

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place, with a title that does not end in the node id: -v would turn its dots into slashes."""
        return self.path, self.line - 1, f"{self.path.name}: {self.name}"

    @functools.cached_property
    def location(self) -> tuple[str, int | None, str]:
        """Return the place as terminals and JUnit may show it."""
        _, line, title = self.reportinfo()
        assert self.parent is not None
        if (path := self.parent.stash.get(SHOWN_PATH, None)) is None:  # the same for all items of the file
            self.parent.stash[SHOWN_PATH] = path = visible_line(super().location[0])
        return path, line, visible_line(title)

    def setup(self) -> None:
        """Resolve fixtures, then take the run, which has usually ended by now."""
        __tracebackhide__ = True
        ahead = self.config.stash.get(AHEAD, None)
        given = ahead.fixtures.get(self.place) if ahead is not None else None
        if given is not None:
            self.funcargs.update(given)
        super().setup()
        if given is None and ahead is not None:
            ahead.fixtures[self.place] = {name: self.funcargs[name] for name in RUN_FIXTURES if name in self.funcargs}
        if not self.config.getoption("setuponly", False):  # --setup-plan and --setup-only pay for nothing
            fetch_result(self, self.funcargs.get(RUNNER_FIXTURE), self.funcargs.get(SERVERS_FIXTURE))

    def runtest(self) -> None:
        """Raise one readable report of everything that failed."""
        result = self.stash[RESULT]
        case, artifact, evaluation = result.case, result.artifact, result.evaluation
        if case is not None and artifact is not None and evaluation is not None and evaluation.outcome == "failed":
            from pytest_agentbench.reports.assertion import failure_report

            pytest.fail(failure_report(case, *redact_result(self, result), trace_place(self, result)), pytrace=False)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """Return the failure's text. pytest looks for each frame's file twice, even if it shows no frame: that
        took 1.5 ms a failure. So it gets the last two frames of our own failures.
        """
        if isinstance(excinfo.value, pytest.fail.Exception) and not excinfo.value.pytrace:
            excinfo.traceback = excinfo.traceback[-2:]
        return super().repr_failure(excinfo)


def redact_result(item: pytest.Item, result: Result) -> tuple[Any, Any]:
    """Return the item's stored run and verdict without secrets, each None if it is missing."""
    if SHOWN not in item.stash:  # the assertion and the row ask both, and long traces take milliseconds to look through
        shown = item.stash[JOB].plan.model_store.redact_record
        item.stash[SHOWN] = result.artifact and shown(result.artifact), result.evaluation and shown(result.evaluation)
    return item.stash[SHOWN]


def fetch_result(item: pytest.Item, runner: Any, servers: Any) -> Result:
    """Return the item's result, ready or awaited, made with these values of the fixtures.

    Raises the reason for a missing result as pytest reports it: a skip if the case cannot run here (an error with
    --agentbench-strict), our own text for infrastructure errors, and the agent's own exception with its frames.
    """
    __tracebackhide__ = True
    result = item.config.stash[AHEAD].result(item, item.stash[JOB].plan.predictions or runner, servers)
    error = result.error
    if result.not_run is not None:
        _skip(f"not run: {result.not_run}")
    if isinstance(error, UnavailableError) and not item.config.stash[STRICT]:
        _skip(str(error))
    if isinstance(error, AgentbenchError):
        from pytest_agentbench.reports.assertion import error_report

        _fail(error_report(error, redact_result(item, result)[0], trace_place(item, result)))
    if error is not None:
        raise error
    if item.config.stash[STRICT] and (skipped := _find_skipped(result)) is not None:
        _fail(skipped)
    return result


def _find_skipped(result: Result) -> str | None:
    """Return why a run that passed is not decided: some of its checks did not run."""
    if result.evaluation is None or result.evaluation.outcome != "passed":
        return None
    skipped = [
        f"check {check.check_id}: {check.message}" for check in result.evaluation.checks if check.outcome == "skipped"
    ]
    if not skipped:
        return None
    checks = f"{len(skipped)} of {len(result.evaluation.checks)} checks did not run (--agentbench-strict)"
    return "\n".join([checks, *skipped])


def _skip(reason: str) -> None:
    pytest.skip(reason)  # from one place and a visible frame, so that pytest folds equal reasons into one line


def _fail(text: str) -> None:
    pytest.fail(text, pytrace=False)  # from a visible frame: pytest adds a line about --full-trace where all are hidden


def trace_place(item: pytest.Item, result: Result) -> str | None:
    """Return the path of the stored run, relative to the folder in which pytest was started."""
    if result.path is None:
        return None
    return os.path.relpath(item.config.stash[OUTPUT] / result.path, item.config.invocation_params.dir)


def _replace_illegal(text: str) -> str:
    """Return the text as node ids and xdist carry it: no brackets, `::`, lone surrogates, nothing that steers a
    terminal.
    """
    return re.sub(r"[\[\]\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|::", "_", text)


def item_name(case_id: str, column: str, repetition: int) -> str:
    """Return `<case_id>[<column>]`, `[<column>-r2]` from the second repetition on. Sources make legal case ids."""
    suffix = f"-r{repetition}" if repetition > 1 else ""
    return f"{case_id}[{_replace_illegal(column)}{suffix}]"


def tag_items(config: pytest.Config, items: Iterable[CaseItem], tags: Iterable[str]) -> None:
    """Make tags keywords (-k), and marks (-m) unless the mark would do something or cannot be written in -m."""
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
    return _make_mark(tag)


def _make_mark(name: str) -> pytest.MarkDecorator:
    """Return the mark of that name. `pytest.mark` would read all registered marks for each new one."""
    decorator, mark = copy(pytest.mark.agentbench), copy(pytest.mark.agentbench.mark)
    object.__setattr__(mark, "name", name)  # marks are frozen
    object.__setattr__(decorator, "mark", mark)
    return decorator


def make_item(parent: CaseFile, job: Job, line: int, fixtureinfo: Any = None, arm: Arm = NO_ARM) -> CaseItem:
    """Return the item of a job. `fixtureinfo` of a sibling spares pytest from working out the same fixtures again."""
    name = item_name(job.case_id, job.plan.column, job.repetition)
    function = case_function if job.plan.predictions is None else predicted_function
    item: CaseItem = CaseItem.from_parent(parent, name=name, callobj=function, fixtureinfo=fixtureinfo)
    item.line, item.file = line, parent
    if (variant := job.plan.variant_name) is not None:
        item.extra_keyword_matches.update(variant.split("+"))
    item.stash[JOB] = job
    if arm.callspec is not None:  # after the item is made: pytest would write it into the node id
        item.callspec = arm.callspec
    return item


PLANNER = pytest.StashKey[Planner]()
Judges = Sequence[tuple[Model, ...]]
"""For each plan the models that the metrics of a case ask."""


class CollectionError(pytest.Collector.CollectError):
    """One text per problem: xdist reports a text once, and a traceback once per worker."""


class CaseFile(pytest.Module):
    """A file with cases, of any source: a `test.yaml`, a dataset, or a file that a pack reads.

    It is a Module with an empty module object, so that module-scoped fixtures and `request.module` work for cases too.
    """

    source: CaseSource
    phases: Phases | None = None

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self.obj = types.ModuleType(self.path.stem)  # pytest would import the file as Python otherwise
        self._fixtureinfo: Any = None
        self._arms: list[Arm] | None = None

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the cases' items, and a failing node for each invalid row. Raises CollectionError with all problems."""
        planner = self.config.stash[PLANNER]
        root = planner.root(self.path)
        try:
            # Errors of a profile are reported before those of the file, unless the file brings its own subjects.
            plans = [] if self.source.brings_subjects else self._session_plans()
            opened = planner.open(self.source, self.path, plans)
            plans = planner.plans_of(opened, plans, own_agent=planner.has_own_agent(self.path))
            planner.rules.claim_name(opened, root)
            subjects = self._pair_subjects(opened, plans)
            if subjects:
                yield from map(self._make_bad_node, opened.problems())
            for subject, its_plans in subjects:
                yield from self._collect_rows(opened, subject, its_plans)
        except ConfigError as error:
            raise CollectionError(str(error)) from None

    def _session_plans(self) -> list[Plan]:
        planner = self.config.stash[PLANNER]
        return planner.plans(planner.root(self.path), own_agent=planner.has_own_agent(self.path))

    def _pair_subjects(self, opened: OpenedSource, plans: list[Plan]) -> list[tuple[StoredAnswers | None, list[Plan]]]:
        """Return each of the file's own subjects with its plan, else the session's plans."""
        planner = self.config.stash[PLANNER]
        if not self.source.brings_subjects:
            return [(None, plans)]
        own = opened.own_subjects()
        if own is not None:
            return [(plan.predictions, [plan]) for plan in planner.own_plans(opened, own)]
        plans = self._session_plans()
        if plans:
            return [(None, plans)]
        return []

    def _collect_rows(
        self, opened: OpenedSource, subject: StoredAnswers | None, plans: list[Plan]
    ) -> Iterator[pytest.Item | BadRowNode]:
        planner = self.config.stash[PLANNER]
        judges, root = planner.judges(opened, plans), planner.root(self.path)
        for row in planner.rows(opened, plans, subject):
            if isinstance(row, BadRow):
                yield self._make_bad_node(row)
                continue
            try:
                planner.rules.claim_id(opened, row, root)
                asked = planner.own_judges(opened, row, plans) if row.own_metrics else judges
            except ConfigError as error:
                if self.source.is_one_case:
                    raise
                yield self._make_bad_node(BadRow(row.line, str(error), row.path))
            else:
                yield from self._make_items(row, row.line if row.path == opened.path else 1, plans, asked)

    def _make_items(self, row: SourceCase, line: int, plans: list[Plan], judges: Judges) -> list[CaseItem]:
        items = self._make_arms(row, line, plans, judges, self._arms or [NO_ARM])
        if self._arms is None and items:
            # pytest has worked out the fixtures for the first item
            self._arms = [NO_ARM]
            if all(plan.predictions is None for plan in plans):
                self._arms = list_arms(self, case_function, self._fixtureinfo)
            if self._arms != [NO_ARM]:
                require_columns(len(plans) * len(self._arms))
                items = self._make_arms(row, line, plans, judges, self._arms)
        tag_items(self.config, items, row.tags)
        return items

    def _make_arms(
        self, row: SourceCase, line: int, plans: list[Plan], judges: Judges, arms: list[Arm]
    ) -> list[CaseItem]:
        planner = self.config.stash[PLANNER]
        items = []
        for plan, asked in zip(plans, judges, strict=True):
            for arm in arms:
                arm_plan = plan if arm.parameters is None else planner.arm(plan, arm.parameters)
                repetitions = planner.repetitions(plan, row.repetitions)
                for repetition in range(1, repetitions + 1):
                    job = Job(row.case_id, row.tags, row.make, arm_plan, repetition, repetitions, judges=asked)
                    item = make_item(self, job, line, self._fixtureinfo, arm)
                    self._fixtureinfo = getattr(item, "_fixtureinfo", None)  # the same for every item of the file
                    items.append(item)
        return items

    def _make_bad_node(self, row: BadRow) -> BadRowNode:
        place = f"line {row.line}" if row.path == self.path else f"{row.path.name} line {row.line}"
        return BadRowNode.from_parent(self, name=row.name or place, message=row.message)


class BadRowNode(pytest.Collector):
    """An invalid row: its error does not stop the other rows."""

    def __init__(self, message: str, **kw: Any) -> None:
        super().__init__(**kw)
        self.message = message

    def collect(self) -> list[pytest.Item]:
        """Raise the row's problem."""
        raise CollectionError(self.message)


_CASE_COLLECTORS = (CaseFile, BadRowNode, DeepFolder)


def collect_file(path: Path, parent: pytest.Collector) -> CaseFile | None:
    """Return the collector of a file that contains cases, None for any other file.

    Problems of a file that the command line names are always errors.
    """
    top = parent.config.rootpath
    if parent.session.isinitpath(path):
        source = named_source(path, parent.config.stash[PLANNER].root(path))
    else:
        source = find_source(path, top)
        if source is not None and not source.is_one_case:
            from pytest_agentbench.sources.dataset import in_case_folder

            if in_case_folder(path.parent, top):
                return None
    if source is not None:
        return _collector(source, parent, path)
    if (warning := describe_near_miss(path, top)) is not None:
        parent.config.stash[PLANNER].left_out.append(warning)
    return None


def _collector(source: CaseSource, parent: pytest.Collector, path: Path) -> CaseFile:
    """Return the collector of a file. A path that steers terminals or is no text of XML has escapes in its node id."""
    node: CaseFile = CaseFile.from_parent(parent, path=path)
    true = str(node.nodeid)
    if (shown := visible_line(true.replace("\t", "\\t"))) != true:
        node = CaseFile.from_parent(parent, path=path, nodeid=shown)
        node.stash[FILE_ID] = true
    node.source = source
    return node


def tell_apart(collector: pytest.Collector, report: pytest.CollectReport) -> None:
    """Mark the report of our collector that failed, so that the session goes on, and escape its text.

    The text can steer neither a terminal nor a CI.
    """
    if not isinstance(collector, _CASE_COLLECTORS):
        return
    from pytest_agentbench.reports.assertion import collection_problems

    config, text = collector.config, report.longreprtext
    problems = collection_problems(report.nodeid, text, config.rootpath)
    told = {
        "agentbench_case_file": True,
        "agentbench_uncollected": config.stash[PLANNER].store.redactor.value(problems),
    }
    vars(report).update(told)
    if (shown := visible(text)) != text:
        report.longrepr = shown


MANUAL = "manual"


def deselect(config: pytest.Config, items: list[pytest.Item], planner: Planner, *, cases_only: bool = False) -> None:
    """Remove items that the suite does not select, and cases tagged `manual` without a name on the command line.

    Raises ConfigError. The mark of a hand-written test counts as its case's name.
    """
    suites = _Suites(planner)
    kept: list[pytest.Item] = []
    gone: list[pytest.Item] = []
    for item in items:
        job = item.stash.get(JOB, None)
        if job is None:
            stays = not cases_only
        else:
            stays = suites.select(job) if planner.settings.suite else not _is_left_out(item, job)
        (kept if stays else gone).append(item)
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


class _Suites:
    """The case ids that the suite selects, worked out once per config root over all of its cases."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.selected: dict[ConfigRoot, Collection[str]] = {}

    def select(self, job: Job) -> bool:
        root = job.plan.root
        if root not in self.selected:
            self.selected[root] = self._selected(root)
        return job.case_id in self.selected[root]

    def _selected(self, root: ConfigRoot) -> Collection[str]:
        name = self.planner.settings.suite or ""
        suite = root.suite(name)
        cases = [(case.case_id, case.tags) for case in self.planner.cases(root).values()]
        problems = suite_problems(suite, cases, root)
        if problems and not root.is_guest:  # whose cases are not those that the session's suite names
            raise make_located_error(root.find("suites", name), problems)
        if not root.is_guest and (doubts := unmatched_tags(suite.case_selection, cases)):
            self.planner.left_out += str(make_located_error(root.find("suites", name), doubts)).splitlines()
        return select(suite.case_selection, cases)


def _is_left_out(item: pytest.Item, job: Job) -> bool:
    """Return whether a case is manual and nobody named it: its id among the arguments, its id or a tag in -k or -m."""
    if MANUAL not in job.tags or not isinstance(item, CaseItem):
        return False
    config = item.config
    if any("::" in argument and job.case_id in argument for argument in config.args):
        return False
    words = set(re.findall(r"[\w.+-]+", f"{config.getoption('keyword')} {config.getoption('markexpr')}"))
    return not words & {MANUAL, job.case_id}
