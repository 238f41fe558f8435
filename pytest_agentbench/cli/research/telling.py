"""How far a stage is, and what came of a call."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.printing import printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from pytest_agentbench.models import Ledger

_MOST_FILES, _FEW = 24, 2
"""Of a call, and of one folder of a larger call, that are told one by one."""


@dataclass(frozen=True, slots=True)
class StageEnd:
    """What came of a stage's rows. Those that are neither scored nor failed were not reached. `files` it wrote.

    `broken`: the stage could not be run, or came to nothing.
    """

    stage: str
    n_total: int
    n_scored: int
    n_failed: int
    files: tuple[Path, ...] = ()
    broken: bool = False


class Shown:
    """A stage's bar on a terminal; elsewhere only what failed is told."""

    def __init__(self, stage: str, rows: int, ledger: Ledger, bar: Progress | None) -> None:
        self._stage, self._ledger, self._bar = stage, ledger, bar
        self._failed = 0
        self._task = bar.add_task(stage, total=rows, said="") if bar is not None else None

    def failed(self, why: str, *, told: bool) -> None:
        """A row has ended without a score; why may be `told` already."""
        self._failed += 1
        if not told:
            self._tell(f"{self._stage}: {printable(' '.join(why.split()))}")
        self.ended()

    def ended(self) -> None:
        """A row has ended."""
        if self._bar is not None and self._task is not None:
            spent = self._ledger.total.cost_usd
            said = f"{self._failed} failed " * bool(self._failed) + f"{spent:.4f} USD" * bool(spent)
            self._bar.update(self._task, advance=1, said=said)

    def _tell(self, line: str) -> None:
        if self._bar is None:
            say(line)
        else:
            self._bar.console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say(line: str) -> None:
    """One line on stderr. That nobody reads it there (any more) does not end what is being paid for."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)


@contextmanager
def progress(stage: str, rows: int, ledger: Ledger) -> Iterator[Shown]:
    """What shows how far the stage is, on stderr."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Shown(stage, rows, ledger, None)
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
        yield Shown(stage, rows, ledger, bar)


def print_summary(ends: Sequence[StageEnd], ledger: Ledger, seconds: float) -> None:
    """Rows by stage, what models cost by stage, and where the results are."""
    if not ends:
        return
    width = max(14, *(len(end.stage) + 2 for end in ends))
    print(f"{'stage':<{width}}{'rows':>7}{'scored':>9}{'failed':>9}")
    for end in ends:
        not_reached = end.n_total - end.n_scored - end.n_failed
        broken = "  came to nothing" if end.n_total else "  could not be run"
        more = broken if end.broken else f"  {not_reached} not reached" if not_reached else ""
        print(f"{printable(end.stage):<{width}}{end.n_total:>7,}{end.n_scored:>9,}{end.n_failed:>9,}{more}")
    asked = [(stage, spent) for stage, spent in ledger.rows() if spent.requests]
    if asked:
        print(f"{'judge':<{width}}{'requests':>9}{'input tokens':>15}{'output tokens':>15}{'USD':>10}")
    for stage, spent in asked:
        cost = "?" if spent.unknown else f"{spent.cost_usd:.4f}"
        print(f"{stage:<{width}}{spent.requests:>9,}{spent.input_tokens:>15,}{spent.output_tokens:>15,}{cost:>10}")
    if (uncounted := ledger.uncounted()) is not None:
        print(uncounted)
    for line in _places(dict.fromkeys(path for end in ends for path in end.files)):
        print(printable(line))
    print(f"{seconds:.1f} s")


def _places(files: Collection[Path]) -> Iterator[str]:
    """Where the files are: many of them by their folders, so that the counts above stay in sight."""
    folders = Counter(file.parent for file in files)
    told: set[Path] = set()
    for file in files:
        if len(files) <= _MOST_FILES or folders[file.parent] <= _FEW:
            yield str(file)
        elif file.parent not in told:
            told.add(file.parent)
            yield f"{file.parent}/: {folders[file.parent]} files"
