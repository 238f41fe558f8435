"""The business report on the reports of a model, and the comparison of several, wherever their scores come from."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_agentbench.cli.research.options import add
from pytest_agentbench.cli.research.valued import Incomplete
from pytest_agentbench.errors import AgentbenchError

if TYPE_CHECKING:
    from pytest_agentbench.cli.research.call import Call
    from pytest_agentbench.models import Spent
    from pytest_agentbench.research.poet_report.rows import PoetRow

S = TypeVar("S")


def add_report_language(parser: argparse._ActionsContainer) -> None:
    """What the text and the page are written in."""
    add(parser, "--report_language", choices=("en", "zh"), default="en", help="of text and page (default: %(default)s)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a model's reports: rows, why others gave none, and what judges cost for them."""

    rows: tuple[PoetRow, ...]
    lost: tuple[str, ...]
    spent: Mapping[str, Spent]


def compare(call: Call, outcomes: Mapping[str, Outcome], output: Path) -> None:
    """Writes the comparison of several models; nothing for a single one."""
    from pytest_agentbench.cli.research.telling import StageEnd
    from pytest_agentbench.research.poet_report.writing import write_comparison
    from pytest_agentbench.research.poet_valuation import weights_of

    if len(outcomes) > 1:
        files = write_comparison(
            {model: each.rows for model, each in outcomes.items()},
            output,
            call.config,
            {model: each.spent for model, each in outcomes.items()},
            lost={model: each.lost for model, each in outcomes.items()},
            language=call.args.report_language,
            race_max=weights_of(call.config, compat=call.args.compat).race_max,
        )
        call.ends.append(StageEnd("comparison", len(outcomes), len(outcomes), 0, files))


async def report_on(
    call: Call,
    model: str,
    rows: Sequence[S],
    row_of: Callable[[S], PoetRow],
    label: Callable[[S], str],
    output: Path,
    spent: Mapping[str, Spent],
) -> Outcome:
    """Writes the business report on what `row_of` makes of each row; it raises AgentbenchError for a lost one."""
    from pytest_agentbench.research.poet_report.writing import write_poet_files
    from pytest_agentbench.research.poet_valuation import weights_of

    async def score(row: S) -> PoetRow:
        found = row_of(row)
        if found.overall_poet_score is None:
            reasons = "; ".join(f"{part}: {reason}" for part, reason in found.reasons.items())
            raise Incomplete(f"no composite: {reasons}", found)
        return found

    def write(results: Sequence[PoetRow | AgentbenchError | None]) -> tuple[Path, ...]:
        outcome = _outcome(results, spent)
        return write_poet_files(
            outcome.rows,
            output,
            model,
            call.config,
            spent,
            lost=outcome.lost,
            not_reached=sum(result is None for result in results),
            language=call.args.report_language,
            race_max=weights_of(call.config, compat=call.args.compat).race_max,
        )

    return _outcome(await call.score("poet", rows, score, label=label, write=write), spent)


def _outcome(results: Sequence[PoetRow | AgentbenchError | None], spent: Mapping[str, Spent]) -> Outcome:
    found = [result.value if isinstance(result, Incomplete) else result for result in results]
    rows = (each for each in found if each is not None and not isinstance(each, AgentbenchError))
    return Outcome(tuple(rows), tuple(str(each) for each in found if isinstance(each, AgentbenchError)), spent)
