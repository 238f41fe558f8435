"""One call of a research command: its judge, what is kept, how its rows end, what is told of them."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from pytest_agentbench.cli.printing import printable
from pytest_agentbench.cli.research.judge import open_judge
from pytest_agentbench.cli.research.telling import StageEnd, print_summary, progress
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models import Ledger
from pytest_agentbench.research.asking import STAGES, Asking
from pytest_agentbench.research.each_row import Rows

S = TypeVar("S")
T = TypeVar("T")

_INTERRUPTED = 130


class Call:
    """What the stages of one call share. `args` has the options of cli/research/options.py that its stages need.

    `lost` tells of rows that are failed before anything is asked: they count in the exit status.
    """

    def __init__(self, command: str, args: argparse.Namespace) -> None:
        self.command, self.args = command, args
        self.ledger = Ledger(STAGES, getattr(args, "max_cost", None))
        self.ends: list[StageEnd] = []
        self._opened = AsyncExitStack()
        self._asking: Asking | None = None

    def run(self, stages: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Runs the stages; prints the end summary. The exit status: 0, 1 with rows that failed, 130 interrupted."""
        begun = time.monotonic()
        try:
            asyncio.run(self._run(stages))
        except KeyboardInterrupt:
            self._summary(begun)
            print("interrupted; the same command goes on from here", file=sys.stderr)
            return _INTERRUPTED
        self._summary(begun)
        return 1 if any(end.n_failed for end in self.ends) else 0

    async def _run(self, stages: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._opened:
            await stages()

    async def asking(self, file: Path) -> Asking:
        """The judge, opened at the first call. `file` is an input: models and scripts are declared beside it.

        Raises ConfigError where no judge is named, or the one named has no key.
        """
        if self._asking is None:
            self._asking = await self._opened.enter_async_context(open_judge(self.args, file, self.ledger))
        return self._asking

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
        as they end, by their `label`.
        """
        with progress(stage, len(rows), self.ledger) as shown:

            def ended(row: S, result: T | AgentbenchError) -> None:
                failed = isinstance(result, AgentbenchError)
                shown.ended(f"{label(row)}: {result}" if failed else None)

            table: Rows[S, T] = Rows(rows, ended)
            try:
                await table.score(score, self.args.max_workers)
            finally:
                failed = sum(isinstance(result, AgentbenchError) for result in table.results)
                open_rows = sum(result is None for result in table.results)
                files = write(table.results)
                self.ends.append(StageEnd(stage, len(rows), len(rows) - failed - open_rows, failed, files))
        return table.results

    def warn(self, message: str) -> None:
        """One line on stderr."""
        print(f"agentbench research {self.command}: {printable(message)}", file=sys.stderr)

    def _summary(self, begun: float) -> None:
        print_summary(self.ends, self.ledger, time.monotonic() - begun)
