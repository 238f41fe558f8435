"""`agentbench explain CASE A B`: why a case passed in one report and failed in the other."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import ABSENT, Standard, format_difference, printable
from pytest_agentbench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_agentbench.cli.explaining import Explanation, Side
    from pytest_agentbench.reports.gate import Counts

_MOST_LINES = 12
"""Lines of differences per piece of evidence."""
_MOST_NAMES = 10


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "explain",
        help="tell why a case's outcome differs between two reports",
        description="Tell why the outcome of a case differs between two reports: the agent, the case file, the judge, "
        "the provider, or chance, with the evidence for it.",
    )
    parser.add_argument("case", metavar="CASE", help="the case's id, or its node id with or without the model")
    for name in ("a", "b"):
        help_text = "REPORT.json, REPORT.json#MODEL for one of its models, or an output folder"
        parser.add_argument(name, metavar=name.upper(), help=help_text)
    parser.add_argument("--json", action="store_true", help="print the explanations as JSON instead")


def run(args: argparse.Namespace) -> int:
    """Print an explanation for each model that both reports have."""
    from pytest_agentbench.cli.explaining import explain

    a, b = _read_sides(args.case, args.a), _read_sides(args.case, args.b)
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


def _read_sides(case: str, name: str) -> dict[str, Side]:
    """Return the runs of the case in a report, by model. Raises ConfigError if the report does not have the case."""
    from pytest_agentbench.cli.explaining import Side
    from pytest_agentbench.reports.comparison.campaigns import split_report_name
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.stored_runs import find_output
    from pytest_agentbench.reports.table import column_of

    path, model = split_report_name(name)
    path = path / "report.json" if path.is_dir() else path
    rows = [row for row in read_report(path)["runs"] if model in (None, column_of(row))]
    by_column: dict[str, list[Any]] = defaultdict(list)
    for row in _select_case(rows, case, str(path)):
        by_column[column_of(row)].append(row)
    output = find_output(path)
    return {
        column: Side(name, column, output, tuple(sorted(group, key=lambda row: row["repetition"])))
        for column, group in by_column.items()
    }


def _select_case(rows: list[Any], case: str, source: str) -> list[Any]:
    """Return the rows of the only case of this name. Raises ConfigError if there is none, or more than one."""
    from pytest_agentbench.reports.gate import case_key

    def names(row: Any) -> tuple[str, ...]:
        place = case_key(row)[0]
        return row["nodeid"], place, *(name.partition("::")[2] for name in (row["nodeid"], place)), row["case_id"]

    matches = [row for row in rows if case in names(row)]
    cases = {case_key(row)[0] for row in matches}
    if len(cases) == 1:
        return matches
    if not cases:
        raise ConfigError(f"{source}: found no run of a case {case!r}; `agentbench show --report {source}` lists runs")
    listed = "".join(f"\n  {place}" for place in sorted(cases)[:_MOST_NAMES])
    raise ConfigError(f"{source}: found {len(cases)} cases {case!r}, expected one; give its node id:{listed}")


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
