"""One call of a research command: its judge, what is kept, how its rows end, what is told of them."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.cli.printing import printable
from pytest_agentbench.cli.research.judge import open_judge
from pytest_agentbench.cli.research.telling import StageEnd, print_summary, progress, say
from pytest_agentbench.config.poet_config import PoetConfig, read_poet_config
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.models import Ledger
from pytest_agentbench.research.asking import STAGES, Asking, Unscored
from pytest_agentbench.research.each_row import Rows

if TYPE_CHECKING:
    from pytest_agentbench.research.fact.rows import Contents

S = TypeVar("S")
T = TypeVar("T")

_INTERRUPTED = 130


class FailedBefore(Unscored):
    """A row that failed in an earlier `stage`, which said why: `reason`."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"failed in {stage}: {reason}")
        self.stage, self.reason = stage, reason


class Call:
    """What the stages of one call share. `args` has the options of cli/research/options.py that its stages need.

    Raises ConfigError where the file of --config is wrong.
    """

    def __init__(self, command: str, args: argparse.Namespace) -> None:
        self.command, self.args = command, args
        self.model: str | None = None
        """Whose reports they are; told where a call has those of several models."""
        config = getattr(args, "config", None)
        self.config = read_poet_config(config) if config is not None else PoetConfig()
        self.ledger = Ledger(STAGES, getattr(args, "max_cost", None))
        self.ends: list[StageEnd] = []
        self._opened = AsyncExitStack()
        self._asking: Asking | None = None
        self._pages: Contents | None = None
        self._beside: Path | None = None
        self._warned: set[str] = set()
        self._told: set[tuple[str | None, str, str]] = set()

    def run(self, stages: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Runs the stages; prints the end summary, whatever ended them: it tells what they cost.

        The exit status: 0, 1 with rows that failed, 130 interrupted.
        """
        begun, interrupted = time.monotonic(), False
        try:
            asyncio.run(self._run(stages))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            print_summary(self.ends, self.ledger, time.monotonic() - begun)
        if interrupted:
            say("interrupted; the same command goes on from here")
            return _INTERRUPTED
        return 1 if any(end.n_failed or end.broken for end in self.ends) else 0

    async def _run(self, stages: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._opened:
            await stages()

    async def asking(self, file: Path) -> Asking:
        """The judge, opened at the first call. `file` is an input: models and scripts are declared beside it.

        Raises ConfigError where no judge is named, or the one named has no key.
        """
        if self._asking is None:
            seconds = self.config.system_settings.timeout_seconds
            judge = open_judge(self.args, file, self.ledger, seconds)
            self._asking, self._beside = await self._opened.enter_async_context(judge), file
        return self._asking

    async def pages(self, file: Path) -> Contents:
        """The pages that reports cite, opened at the first call: each is fetched once for all stages and models.

        `file` is an input, beside which a script lies; where the judge was opened for another, it lies beside that.
        Raises UnavailableError where a library is missing that reads pages.
        """
        from pytest_agentbench.cli.research.fact_pages import open_pages

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
        """What came of each row, None for those that an interruption kept from ending.

        `write` writes the stage's files, also after an interruption, and gives their paths. Rows that failed are told
        as they end, by their `label`, unless an earlier stage of this call has told the same.
        """
        stage = self._named(stage)
        with progress(stage, len(rows), self.ledger) as shown:

            def ended(row: S, result: T | AgentbenchError) -> None:
                if isinstance(result, AgentbenchError):
                    shown.failed(f"{label(row)}: {result}", told=self._was_told(label(row), result))
                else:
                    shown.ended()

            table: Rows[S, T] = Rows(rows, ended)
            try:
                await table.score(score, self.args.max_workers or self.config.evaluation_settings.workers)
            finally:
                failed = sum(isinstance(result, AgentbenchError) for result in table.results)
                open_rows = sum(result is None for result in table.results)
                files: tuple[Path, ...] = ()
                try:
                    files = write(table.results)
                finally:
                    self.ends.append(StageEnd(stage, len(rows), len(rows) - failed - open_rows, failed, files))
        return table.results

    def lost(self, stage: str, error: AgentbenchError) -> None:
        """Tells why a stage could not be run at all; the exit status tells it too."""
        self.warn(f"{self._named(stage)}: {error}")
        self.ends.append(StageEnd(self._named(stage), 0, 0, 0, broken=True))

    def broke(self, why: str) -> None:
        """Tells that the stage that has just ended came to nothing; the exit status tells it too."""
        self.warn(f"{self.ends[-1].stage}: {why}")
        self.ends[-1] = replace(self.ends[-1], broken=True)

    def warn(self, message: str) -> None:
        """One line on stderr, once."""
        if message not in self._warned:
            self._warned.add(message)
            say(f"agentbench research {self.command}: {printable(message)}")

    def has_told(self, reason: str) -> bool:
        """Whether a row was said to have failed for this reason."""
        return any(told == reason for _, _, told in self._told)

    def _was_told(self, row: str, error: AgentbenchError) -> bool:
        """Whether an earlier stage has said this of the row's input, or has failed itself; it is told from now on."""
        told = self.model, row, error.reason if isinstance(error, FailedBefore) else str(error)
        known = told in self._told and isinstance(error, FailedBefore | ConfigError)
        self._told.add(told)
        return known

    def _named(self, stage: str) -> str:
        return stage if self.model is None else f"{stage} {self.model}"
