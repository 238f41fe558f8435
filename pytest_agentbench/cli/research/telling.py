"""How far a stage is, and what came of a call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.printing import printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from pytest_agentbench.models import Ledger


@dataclass(frozen=True, slots=True)
class StageEnd:
    """What came of a stage's rows. Those that are neither scored nor failed were not reached. `files` it wrote."""

    stage: str
    n_total: int
    n_scored: int
    n_failed: int
    files: tuple[Path, ...] = ()


class Shown:
    """A stage's bar on a terminal; elsewhere only what failed is told."""

    def __init__(self, stage: str, rows: int, ledger: Ledger, bar: Progress | None) -> None:
        self._stage, self._ledger, self._bar = stage, ledger, bar
        self._failed = 0
        self._task = bar.add_task(stage, total=rows, said="") if bar is not None else None

    def ended(self, failure: str | None = None) -> None:
        """A row has ended; `failure` says why it has no score."""
        if failure is not None:
            self._failed += 1
            self._tell(f"{self._stage}: {printable(failure)}")
        if self._bar is not None and self._task is not None:
            spent = self._ledger.total.cost_usd
            said = f"{self._failed} failed " * bool(self._failed) + f"{spent:.4f} USD" * bool(spent)
            self._bar.update(self._task, advance=1, said=said)

    def _tell(self, line: str) -> None:
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False)


@contextmanager
def progress(stage: str, rows: int, ledger: Ledger) -> Iterator[Shown]:
    """What shows how far the stage is, on stderr."""
    if not sys.stderr.isatty():
        yield Shown(stage, rows, ledger, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
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
    print(f"{'stage':<14}{'rows':>7}{'scored':>9}{'failed':>9}")
    for end in ends:
        not_reached = end.n_total - end.n_scored - end.n_failed
        more = f"  {not_reached} not reached" if not_reached else ""
        print(f"{end.stage:<14}{end.n_total:>7,}{end.n_scored:>9,}{end.n_failed:>9,}{more}")
    asked = [(stage, spent) for stage, spent in ledger.rows() if spent.requests]
    if asked:
        print(f"{'judge':<14}{'requests':>9}{'input tokens':>15}{'output tokens':>15}{'USD':>10}")
    for stage, spent in asked:
        cost = "?" if spent.unknown else f"{spent.cost_usd:.4f}"
        print(f"{stage:<14}{spent.requests:>9,}{spent.input_tokens:>15,}{spent.output_tokens:>15,}{cost:>10}")
    for path in dict.fromkeys(path for end in ends for path in end.files):
        print(printable(str(path)))
    print(f"{seconds:.1f} s")
