"""`agentbench explain CASE A B`: why a case passed in one report and failed in the other."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import ABSENT, Standard, format_difference, printable
from pytest_agentbench.cli.report_options import find_report
from pytest_agentbench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_agentbench.cli.explaining import Explanation, Side
    from pytest_agentbench.reports.gate import Counts
    from pytest_agentbench.reports.recorded_sessions import Verdict

_MOST_LINES = 12
"""Lines of differences per piece of evidence."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "explain",
        help="explain why a case's outcome differs between two reports",
        description="Explain why the outcome of a case differs between two reports: the agent, the case file, the "
        "judge, the provider, or chance, with the evidence for it.",
    )
    parser.add_argument("case", metavar="CASE", help="the case's id, or any part of its node id that no other has")
    for name in ("a", "b"):
        help_text = "REPORT.json, REPORT.json#MODEL for one of its models, or an output folder"
        parser.add_argument(name, metavar=name.upper(), help=help_text)
    parser.add_argument("--json", action="store_true", help="print the explanations as JSON instead")


def run(args: argparse.Namespace) -> int:
    """Print an explanation for each model that both reports have."""
    from pytest_agentbench.cli.explaining import explain

    reports = [_read_report(name) for name in (args.a, args.b)]
    begun = {report.started_at for report in reports}
    a, b = ({side.column: side for side in _list_sides(args.case, report, begun)} for report in reports)
    columns = [(column, column) for column in a if column in b]
    if not columns and len(a) == len(b) == 1:
        columns = [(*a, *b)]  # type: ignore[list-item]
    if not columns:
        there, here = (", ".join(side) for side in (a, b))
        raise ConfigError(
            f"{args.case}: no model is in both: found {there} in A and {here} in B; name REPORT.json#MODEL"
        )
    explanations = [explain(a[old], b[new]) for old, new in columns]
    if args.json:
        print(json.dumps([_as_dict(explanation) for explanation in explanations], indent=2, allow_nan=False))
        return 0
    terminal = Standard()
    for explanation in explanations:
        _write(terminal, explanation)
    return 0


@dataclass(frozen=True)
class _Report:
    """A report as an argument names it, or one of its models. `output` is the folder of its store."""

    name: str
    path: Path
    output: Path
    started_at: str | None
    rows: list[Any]


def _read_report(name: str) -> _Report:
    from pytest_agentbench.reports.comparison.campaigns import split_report_name
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.stored_runs import find_output
    from pytest_agentbench.reports.table import column_of

    path, model = split_report_name(name)
    path = find_report(path)
    report = read_report(path)
    rows = [row for row in report["runs"] if model in (None, column_of(row))]
    return _Report(name, path, find_output(path), report["session"]["started_at"], rows)


def _list_sides(case: str, report: _Report, begun: Collection[str | None]) -> Iterator[Side]:
    """Yield the runs of the case in a report for each model, with the outcomes of sessions not `begun` at these times.

    Raises ConfigError if the report does not have the case.
    """
    from pytest_agentbench.cli.explaining import Side
    from pytest_agentbench.reports.gate import case_key
    from pytest_agentbench.reports.history_file import DIGITS
    from pytest_agentbench.reports.table import column_of

    by_column: dict[str, list[Any]] = defaultdict(list)
    for row in sorted(_select_case(report.rows, case, str(report.path)), key=lambda row: int(row["repetition"])):
        by_column[column_of(row)].append(row)
    for column, rows in by_column.items():
        alike = {(row["fingerprint"][:DIGITS], row["measure"]) for row in rows if row["fingerprint"] and row["measure"]}
        place = case_key(rows[0])[0]
        earlier = (
            verdict.outcome
            for verdict in _read_verdicts(report.output, begun)
            if (verdict.case, verdict.model) == (place, column) and (verdict.fingerprint, verdict.measure) in alike
        )
        yield Side(report.name, column, report.output, tuple(rows), tuple(earlier))


def _read_verdicts(output: Path, begun: Collection[str | None]) -> Iterator[Verdict]:
    """Yield the recorded runs of an output folder, without sessions that began at one of the times."""
    from pytest_agentbench.reports.history_file import HISTORY
    from pytest_agentbench.reports.recorded_sessions import read_history

    try:
        for session in read_history(output / HISTORY):
            if session is not None and session.started_at.isoformat() not in begun:
                yield from session.verdicts
    except OSError:
        return


def _select_case(rows: list[Any], case: str, source: str) -> list[Any]:
    """Return the rows of the only case of this name. Raises ConfigError if there is none, or more than one."""
    from pytest_agentbench.reports.gate import case_key
    from pytest_agentbench.reports.run_names import describe_mismatch, match_runs

    matches = set(match_runs(case, {row["nodeid"]: row["case_id"] for row in rows}))
    places = list(dict.fromkeys(case_key(row)[0] for row in rows if row["nodeid"] in matches))
    if len(places) == 1:
        return [row for row in rows if row["nodeid"] in matches]
    known = list(dict.fromkeys(case_key(row)[0] for row in rows))
    raise ConfigError(f"{source}: {describe_mismatch(case, places, known, 'case')}")


def _write(terminal: Standard, explanation: Explanation) -> None:
    from pytest_agentbench.cli.explaining import CAUSES, describe_chance
    from pytest_agentbench.reports.gate import case_key

    a, b = explanation.a, explanation.b
    place = printable(case_key(b.rows[0])[0])
    models = a.column if a.column == b.column else f"{a.column} and {b.column}"
    terminal.write_line(f"{place} on {printable(models)}", bold=True)
    for name, side in (("A", a), ("B", b)):
        terminal.write_line(f"  {name}  {printable(side.label)}: {_describe_counts(side.counts)}")
    if not explanation.causes:
        terminal.write_line("The outcome does not differ.")
        return
    causes = "; ".join(CAUSES[cause] for cause in explanation.causes)
    terminal.write_line(f"{'cause' if len(explanation.causes) == 1 else 'causes'}: {causes}", bold=True)
    for each in explanation.evidence:
        counts = each.cause is None or each.cause in explanation.causes
        terminal.write_line(f"  {'' if counts else 'also: '}{printable(each.text)}")
        lines = [line for difference in each.differences for line in format_difference(difference)]
        for line in lines[:_MOST_LINES]:
            terminal.write_line(f"    {line}")
        if len(lines) > _MOST_LINES:
            terminal.write_line(f"    ... and {len(lines) - _MOST_LINES} lines more")
    if explanation.causes != ("provider",):
        for sentence in describe_chance(explanation.chance):
            terminal.write_line(sentence)


def _describe_counts(counts: Counts) -> str:
    parts = [f"{counts.passed} of {counts.judged} passed"]
    if counts.errors:
        parts.append(f"{counts.errors} errors")
    if counts.skipped:
        parts.append(f"{counts.skipped} skipped")
    return ", ".join(parts)


def _as_dict(explanation: Explanation) -> dict[str, Any]:
    from pytest_agentbench.reports.gate import case_key

    a, b, chance = explanation.a, explanation.b, explanation.chance
    case, case_id = case_key(b.rows[0])
    return {
        "case": case,
        "case_id": case_id,
        **{
            name: {"report": side.label, "model_id": side.column, **side.counts._asdict()}
            for name, side in (("a", a), ("b", b))
        },
        "causes": list(explanation.causes),
        "evidence": [
            {
                "cause": each.cause,
                "text": each.text,
                "differences": [
                    {"path": path, **{name: value for name, value in (("a", old), ("b", new)) if value is not ABSENT}}
                    for path, old, new in each.differences
                ],
            }
            for each in explanation.evidence
        ],
        "chance": {
            "passed": chance.passed,
            "judged": chance.judged,
            "flip_rate": chance.flip_rate,
            "p_value": chance.p_value,
        },
    }
