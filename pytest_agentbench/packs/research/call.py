"""One call of a research command: its judge, stored replies, the results of its rows, and its output."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pytest_agentbench.cli.output import printable
from pytest_agentbench.cli.places import enclosing_root
from pytest_agentbench.config.profiles import EvaluationProfile, JudgeConfig
from pytest_agentbench.config.prompt_files import read_prompts
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.job import CHAT_JUDGE
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.ledger import Ledger, Spent
from pytest_agentbench.models.routes import missing_key, resolve_model
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.packs.research.asking import Asking, Unscored
from pytest_agentbench.packs.research.config import read_poet_config
from pytest_agentbench.packs.research.prompts import PROMPTS
from pytest_agentbench.packs.research.records import RowId
from pytest_agentbench.packs.research.stages import QUESTIONS
from pytest_agentbench.records.case import Case, Model, RunnerSpec, legal_id
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.judgements import Judgements

if TYPE_CHECKING:
    from rich.progress import Progress

    from pytest_agentbench.packs.research.fact.rows import Contents


# A call over many models writes some fifteen files for each: by folders, the counts above them stay on the screen.
_MOST_FILES, _FEW = 24, 2
"""Maximum number of files of a call, and of one folder of a larger call, that are listed one by one."""


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """Outcome of a stage's rows. Those that are neither scored nor failed were not reached. `files` it wrote.

    `broken`: the stage could not be run, or has no result.
    """

    stage: str
    n_total: int
    n_scored: int
    n_failed: int
    files: tuple[Path, ...] = ()
    broken: bool = False


class StageProgress:
    """A stage's bar on a terminal; elsewhere only failures are printed."""

    def __init__(self, stage: str, rows: int, ledger: Ledger, bar: Progress | None) -> None:
        self._stage, self._ledger, self._bar = stage, ledger, bar
        self._failed = 0
        self._task = bar.add_task(stage, total=rows, said="") if bar is not None else None

    def note_failure(self, why: str, *, told: bool) -> None:
        """Record that a row has ended without a score; `told`: the reason is printed already."""
        self._failed += 1
        if not told:
            self._tell(f"{self._stage}: {printable(' '.join(why.split()))}")
        self.note_end()

    def note_end(self) -> None:
        """Note that a row has ended."""
        if self._bar is not None and self._task is not None:
            spent = self._ledger.total.cost_usd
            status = f"{self._failed} failed " * bool(self._failed) + f"{spent:.4f} USD" * bool(spent)
            self._bar.update(self._task, advance=1, said=status)

    def _tell(self, line: str) -> None:
        if self._bar is None:
            print_error(line)
        else:
            # Above the bar and without markup: messages have strangers' text, such as `[red]`, in them.
            self._bar.console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_error(line: str) -> None:
    """Print one line on stderr. A closed stderr does not end the paid work."""
    if sys.stderr is not None:
        # `agentbench ... 2>&1 | head` closes the pipe: the paid work continues.
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)


@contextmanager
def show_progress(stage: str, rows: int, ledger: Ledger) -> Iterator[StageProgress]:
    """Show on stderr how far the stage is."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield StageProgress(stage, rows, ledger, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield StageProgress(stage, rows, ledger, bar)


def print_summary(ends: Sequence[StageOutcome], ledger: Ledger, seconds: float) -> None:
    """Print rows by stage, the cost of models by stage, and the paths of the results."""
    if not ends:
        return
    width = max(14, *(len(end.stage) + 2 for end in ends))
    print(f"{'stage':<{width}}{'rows':>7}{'scored':>9}{'failed':>9}")
    for end in ends:
        not_reached = end.n_total - end.n_scored - end.n_failed
        if end.broken and end.n_total:
            more = "  without a result"
        elif end.broken:
            more = "  could not be run"
        elif not_reached:
            more = f"  {not_reached} not reached"
        else:
            more = ""
        print(f"{printable(end.stage):<{width}}{end.n_total:>7,}{end.n_scored:>9,}{end.n_failed:>9,}{more}")
    judged_stages = [(stage, spent) for stage, spent in ledger.rows() if spent.requests]
    if judged_stages:
        print(f"{'judge':<{width}}{'requests':>9}{'input tokens':>15}{'output tokens':>15}{'USD':>10}")
    for stage, spent in judged_stages:
        # A sum without the cost of some requests would be read as the whole.
        cost = "?" if spent.unknown else f"{spent.cost_usd:.4f}"
        print(f"{stage:<{width}}{spent.requests:>9,}{spent.input_tokens:>15,}{spent.output_tokens:>15,}{cost:>10}")
    if (uncounted := ledger.uncounted()) is not None:
        print(uncounted)
    for line in _list_files(dict.fromkeys(path for end in ends for path in end.files)):
        print(printable(line))
    print(f"{seconds:.1f} s")


def _list_files(files: Collection[Path]) -> Iterator[str]:
    """Yield the paths of the files: many of them by their folders, so that the counts above stay in sight."""
    folders = Counter(file.parent for file in files)
    listed_folders: set[Path] = set()
    for file in files:
        if len(files) <= _MOST_FILES or folders[file.parent] <= _FEW:
            yield str(file)
        elif file.parent not in listed_folders:
            listed_folders.add(file.parent)
            yield f"{file.parent}/: {folders[file.parent]} files"


_DATASET = "research"
"""Dataset name of commands' rows, for scripts."""
_SCRIPT = ".demo.yaml"


def case_id(row_id: RowId) -> str:
    """Return the name under which scripts know a row of a file."""
    return f"{_DATASET}.{legal_id(str(row_id))}"


@asynccontextmanager
async def open_judge(
    args: argparse.Namespace, file: Path, ledger: Ledger, request_seconds: float
) -> AsyncIterator[Asking]:
    """Open the judge in the options, else OPENAI_MODEL.

    Models and profiles are from the folder of `file`, or the current one; a request takes at most `request_seconds`.

    Raises ConfigError if none is named, or its key is missing.
    """
    model, options = _judge(args.judge, args.profile, file)
    redactor = Redactor()
    redactor.know(model.variables)
    scripts = Scripts()
    if model.scripted:
        scripts.load_beside(_script_case(args.script, file))
    endpoints = Endpoints(scripts=scripts)
    try:
        yield Asking(
            endpoints.client(model),
            Judgements(args.kept, redactor),
            ledger,
            redactor,
            options=options,
            request_seconds=request_seconds,
            prompts=read_prompts(args.prompts, PROMPTS) if args.prompts is not None else None,
        )
    finally:
        await endpoints.close()


def scripted_pages(args: argparse.Namespace, file: Path) -> Mapping[str, str]:
    """Return the script's pages by URL; {} with a judge that is not scripted. Raises ConfigError.

    A stage without a judge uses --script.
    """
    # Of a stage without a judge, such as `fact scrape`: it has no option that could name a scripted one.
    if "judge" not in args:
        if args.script is None:
            return {}
    elif not _judge(args.judge, args.profile, file)[0].scripted:
        return {}
    case, scripts = _script_case(args.script, file), Scripts()
    scripts.load_beside(case)
    return scripts.pages(case.case_id)


@asynccontextmanager
async def open_pages(args: argparse.Namespace, file: Path, warn: Callable[[str], None]) -> AsyncIterator[Contents]:
    """Open the pages of one call: a script's, else the web's. A script may be next to `file`.

    Raises UnavailableError if a library for reading them is missing.
    """
    from pytest_agentbench.config.profiles import NetworkSettings
    from pytest_agentbench.packs.research.fact.direct_pages import PageSettings
    from pytest_agentbench.packs.research.fact.pages import Pages, ScriptedPages

    if scripted := scripted_pages(args, file):
        yield ScriptedPages(scripted)
        return
    network = NetworkSettings(allow_private=tuple(args.allow_private))
    settings = replace(PageSettings.of(network), concurrency=args.page_concurrency)
    if settings.jina_key is not None:
        warn("the Jina reader fetches the pages, as JINA_API_KEY is set")
    async with Pages(args.kept, settings) as pages:
        yield pages


def _judge(
    judge: str | None, profile: str | None, file: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Model, Mapping[str, Any]]:
    """Return the judge's model, and the profile's fields for each request to it."""
    # The input's root first: a project's models.yaml is next to its data, independent of the current folder.
    roots = [enclosing_root(file), enclosing_root(Path.cwd())]
    # Precedence: the command line, then the profile, then the environment.
    name: str | None = judge or environ.get("OPENAI_MODEL")
    options: Mapping[str, Any] = {}
    if profile and not judge:
        first = _judge_of(profile, roots)
        name, options = first.model, first.options
    if not name:
        raise ConfigError(
            "found no judge; name one with --judge MODEL or --profile NAME, or set OPENAI_MODEL (and OPENAI_BASE_URL "
            "for an endpoint that is not OpenAI's); --judge demo answers from a script"
        )
    declared = [root.models() for root in roots]
    # The first root that declares the model; if none does, its name is a model of the default endpoint.
    model = resolve_model(name, models=next((models for models in declared if models.get(name)), declared[0]))
    if (reason := missing_key(model)) is not None:
        raise ConfigError(reason)
    return model, options


def _judge_of(profile: str, roots: Sequence[ConfigRoot]) -> JudgeConfig:
    """Return the first judge of an evaluation profile that is a chat model. Raises ConfigError if there is none."""
    judge = _profile(profile, roots).first_judge(CHAT_JUDGE)
    if judge is None:
        raise ConfigError(f"evaluation profile {profile!r}: found no judge of type {CHAT_JUDGE} with a model")
    return judge


def _profile(name: str, roots: Sequence[ConfigRoot]) -> EvaluationProfile:
    """Return the profile of the first root that has it. Raises ConfigError."""
    missing = []
    for root in roots:
        try:
            # Located before it is read: an invalid profile is an error, and no other root is tried.
            root.find("evaluation_profiles", name)
        except ConfigError as error:
            missing.append(error)
        else:
            return root.evaluation_profile(name)
    raise missing[0]


def _script_case(script: Path | None, file: Path) -> Case:
    """Return a case next to the script: `script`, else `<stem>.demo.yaml` next to the input."""
    if script is not None and not script.name.endswith(_SCRIPT):
        raise ConfigError(f"--script: found {script}, expected a file <name>{_SCRIPT}")
    if script is not None and not script.is_file():
        raise ConfigError(f"--script: {script}: there is no such file")
    # Scripts are found by the stem of a case's file, so a script of another name needs a file next to it,
    # which need not exist.
    path = file if script is None else script.with_name(script.name.removesuffix(_SCRIPT) + ".jsonl")
    return Case(
        case_id=f"{_DATASET}.any", dataset=_DATASET, title=_DATASET, path=path, runner=RunnerSpec(type="predictions")
    )


RowT = TypeVar("RowT")
ResultT = TypeVar("ResultT")


class Rows(Generic[RowT, ResultT]):
    """Rows of a stage with their results; `ended` is called with each as soon as it has ended.

    `results` are in the rows' order: the result of `score`, or the reason for a missing one, or None if it has not
    ended, for example after an interruption.
    """

    def __init__(
        self, rows: Sequence[RowT], ended: Callable[[RowT, ResultT | AgentbenchError], None] = lambda row, result: None
    ):
        self.rows = rows
        self.results: list[ResultT | AgentbenchError | None] = [None] * len(rows)
        self._ended = ended

    async def score(self, score: Callable[[RowT], Awaitable[ResultT]], workers: int) -> None:
        """Score every row, at most `workers` at once. A row fails by an AgentbenchError; anything else ends it all."""
        # One iterator that all workers take from: a slow row holds up one of them, and never the rows behind it.
        waiting = iter(enumerate(self.rows))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(workers, len(self.rows))):
                group.create_task(self._work(waiting, score))

    async def _work(self, waiting: Iterator[tuple[int, RowT]], score: Callable[[RowT], Awaitable[ResultT]]) -> None:
        for number, row in waiting:
            try:
                result: ResultT | AgentbenchError = await score(row)
            except AgentbenchError as error:
                result = error
            self.results[number] = result
            self._ended(row, result)


S = TypeVar("S")
T = TypeVar("T")

# Shells' status for SIGINT: a script can distinguish an interruption from failed reports.
_INTERRUPTED = 130


class FailedBefore(Unscored):
    """A row that failed in an earlier `stage` for this `reason`."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"failed in {stage}: {reason}")
        self.stage, self.reason = stage, reason


class Call:
    """One call of a command, with the state that its stages share. `args` has their options (commands.py).

    Raises ConfigError if the file of --config is wrong.
    """

    def __init__(self, command: str, args: argparse.Namespace) -> None:
        self.command, self.args = command, args
        self.config = read_poet_config(getattr(args, "config", None))
        self.ledger = Ledger(QUESTIONS, getattr(args, "max_cost", None))
        self.ends: list[StageOutcome] = []
        self.model: str | None = None
        self._before = self.ledger.snapshot()
        self._opened = AsyncExitStack()
        self._asking: Asking | None = None
        self._pages: Contents | None = None
        self._beside: Path | None = None
        self._warned: set[str] = set()
        self._told: set[tuple[str | None, str, str]] = set()

    def begin_model(self, model: str, *, models: int) -> None:
        """Assign further scores to the reports of one of several models; the only one needs no name."""
        self.model, self._before = model if models > 1 else None, self.ledger.snapshot()

    @property
    def spent(self) -> Mapping[str, Spent]:
        """Return the judges' cost for this model's reports, by stage."""
        return self.ledger.since(self._before)

    def run(self, stages: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Run the stages; print the final summary after any end, because it has their cost.

        Return the exit status: 0, 1 with failed rows, 130 interrupted.
        """
        begun, interrupted = time.monotonic(), False
        try:
            asyncio.run(self._run(stages))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            print_summary(self.ends, self.ledger, time.monotonic() - begun)
        if interrupted:
            print_error("interrupted; repeat the command to continue")
            return _INTERRUPTED
        if any(end.n_failed or end.broken for end in self.ends):
            return 1
        return 0

    async def _run(self, stages: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._opened:
            await stages()

    async def asking(self, file: Path) -> Asking:
        """Return the judge, opened at the first call. `file` is an input: models and scripts are declared next to it.

        Raises ConfigError if no judge is named, or it has no key.
        """
        # One judge for all stages: its limits of rate and cost hold over all of them together.
        if self._asking is None:
            seconds = self.config.system_settings.timeout_seconds
            judge = open_judge(self.args, file, self.ledger, seconds)
            self._asking, self._beside = await self._opened.enter_async_context(judge), file
        return self._asking

    async def pages(self, file: Path) -> Contents:
        """Return the cited pages, opened at the first call: each is fetched once for all stages and models.

        `file` is an input, next to which a script may be; if the judge was opened for another, next to that one.
        Raises UnavailableError if a library for reading pages is missing.
        """
        if self._pages is None:
            self._pages = await self._opened.enter_async_context(open_pages(self.args, self._beside or file, self.warn))
        return self._pages

    async def score(
        self,
        stage: str,
        rows: Sequence[S],
        score: Callable[[S], Awaitable[T]],
        *,
        label: Callable[[S], str],
        write: Callable[[Sequence[T | AgentbenchError | None]], tuple[Path, ...]],
    ) -> Sequence[T | AgentbenchError | None]:
        """Return the result of each row, None for rows that did not end before an interruption.

        `write` writes the stage's files, also after an interruption, and returns their paths. Failed rows are printed
        at once, by their `label`, unless an earlier stage of this call has printed the same.
        """
        # With the model's name if a call has several: one stage ends many times then.
        stage = self._named(stage)
        with show_progress(stage, len(rows), self.ledger) as progress:

            def ended(row: S, result: T | AgentbenchError) -> None:
                if isinstance(result, AgentbenchError):
                    progress.note_failure(f"{label(row)}: {result}", told=self._report_once(label(row), result))
                else:
                    progress.note_end()

            table: Rows[S, T] = Rows(rows, ended)
            try:
                await table.score(score, self.args.max_workers or self.config.evaluation_settings.workers)
            finally:
                # Also after Ctrl-C: ended rows are written, and the summary has their cost.
                failed = sum(isinstance(result, AgentbenchError) for result in table.results)
                open_rows = sum(result is None for result in table.results)
                files: tuple[Path, ...] = ()
                try:
                    files = write(table.results)
                finally:
                    self.ends.append(StageOutcome(stage, len(rows), len(rows) - failed - open_rows, failed, files))
        return table.results

    async def attempt(self, stage: str, work: Awaitable[T]) -> T | None:
        """Return a stage's result, or None, with a printed reason, if it could not be run. The exit status is then
        1.
        """
        try:
            return await work
        except AgentbenchError as error:
            self.warn(f"{self._named(stage)}: {error}")
            self.mark_skipped(stage)
            return None

    def mark_skipped(self, stage: str) -> None:
        """Count a stage as one that could not be run, in the end summary and the exit status."""
        self.ends.append(StageOutcome(self._named(stage), 0, 0, 0, broken=True))

    def mark_broken(self, why: str) -> None:
        """Record that the last stage has no result; the exit status is then 1."""
        self.warn(f"{self.ends[-1].stage}: {why}")
        self.ends[-1] = replace(self.ends[-1], broken=True)

    def warn(self, message: str) -> None:
        """Print one line on stderr, once."""
        if message not in self._warned:
            self._warned.add(message)
            print_error(f"agentbench research {self.command}: {printable(message)}")

    def was_reported(self, reason: str) -> bool:
        """Return whether a row's failure with this reason was printed."""
        return any(reported == reason for _, _, reported in self._told)

    def _report_once(self, row: str, error: AgentbenchError) -> bool:
        """Return whether this problem of the row's input was printed by an earlier stage, and record it."""
        # An unreadable input row fails in every stage: only the first of them prints it.
        problem = self.model, row, error.reason if isinstance(error, FailedBefore) else str(error)
        repeated = problem in self._told and isinstance(error, FailedBefore | ConfigError)
        self._told.add(problem)
        return repeated

    def _named(self, stage: str) -> str:
        if self.model is None:
            return stage
        return f"{stage} {self.model}"
