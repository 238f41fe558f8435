"""`agentbench history`: the trend of each case over sessions, and which cases are blocking or quarantined."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.argument_types import parse_fraction, parse_positive
from pytest_agentbench.cli.output import Standard, printable
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.reports.history import Trend
    from pytest_agentbench.reports.recorded_sessions import RecordedSession

_BARS = "▁▂▃▄▅▆▇█"
"""Signs of a day's pass rate, from 0 to 1."""
_NO_VERDICT = "·"
_MARKS = {"blocking": {"green": True}, "quarantined": {"yellow": True}}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "history",
        help="show the trend of each case over sessions, and which cases are blocking or quarantined",
        description="Print a line for each case, model and suite: pass rate by day, passes, flips with nothing "
        "changed, the last change, and the policy. A case is blocking if its last runs all passed, and quarantined if "
        "it flips by more than chance.",
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        type=Path,
        default=[Path("outputs")],
        help="output folders with a history.ndjson, history files, and reports of sessions (default: outputs)",
    )
    parser.add_argument("--model", metavar="M", help="show this model only (with its variant: MODEL:VARIANT)")
    parser.add_argument(
        "--days",
        type=parse_positive,
        default=7,
        metavar="N",
        help="count the last N days (UTC) up to the last session",
    )
    parser.add_argument(
        "--passes", type=parse_positive, default=21, metavar="N", help="N passes in a row make a case blocking (21)"
    )
    parser.add_argument(
        "--tolerance",
        type=parse_fraction,
        default=0.05,
        metavar="FRACTION",
        help="the share of its runs that a case may fail by chance without being quarantined (0.05)",
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the policy here, for --agentbench-policy FILE"
    )
    parser.add_argument("--json", action="store_true", help="print the trends as JSON instead")


def run(args: argparse.Namespace) -> int:
    """Print the trends, and write the policy if asked to."""
    from pytest_agentbench.reports.history import Rules, find_trends

    rules = Rules(args.days, args.passes, args.tolerance)
    trends = find_trends(_read_sessions(args.paths), rules)
    trends = [trend for trend in trends if args.model in (None, trend.series.model)]
    if args.write is not None:
        _write_policy(args.write, trends)
    if args.json:
        document = {"rules": vars(rules), "trends": [trend.as_dict() for trend in trends]}
        print(json.dumps(document, indent=2, allow_nan=False))
        return 0
    _write_table(Standard(), trends, args.days)
    return 0


def _read_sessions(paths: Sequence[Path]) -> Iterator[RecordedSession]:
    """Yield the sessions of all paths. Raises ConfigError for a path that has none."""
    for path in paths:
        yield from _read_path(path)


def _read_path(path: Path) -> Iterator[RecordedSession]:
    from pytest_agentbench.reports.history_file import HISTORY
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.recorded_sessions import read_history, recorded_session

    if path.is_dir() and not (path / HISTORY).exists():
        raise ConfigError(f"{path}: found no {HISTORY}; run pytest first, or name the output folder or reports")
    file = path / HISTORY if path.is_dir() else path
    if file.suffix != ".ndjson":
        session = recorded_session(read_report(file))
        if session is not None:
            yield session
        return
    try:
        sessions = [*read_history(file)]
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    if unreadable := sessions.count(None):
        print(f"{file}: {count_text(unreadable, 'line')} cannot be read and count for nothing", file=sys.stderr)
    yield from (session for session in sessions if session is not None)


def _write_policy(path: Path, trends: Sequence[Trend]) -> None:
    import yaml

    from pytest_agentbench.bounded.writing import write_text

    policy: dict[str, list[dict[str, str]]] = {"blocking": [], "quarantined": []}
    for trend in trends:
        if trend.policy is not None:
            suite = {"suite": trend.series.suite} if trend.series.suite else {}
            entry = {"case": trend.series.case, "model": trend.series.model, **suite, "reason": trend.reason}
            policy[trend.policy].append(entry)
    document = {"schema_version": 1, **policy}
    write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000))


def _write_table(terminal: Standard, trends: Sequence[Trend], days: int) -> None:
    if not trends:
        terminal.write_line("no runs: the history has the runs that sessions make, not those that they reuse")
        return
    head = ("case", "model", "suite", f"{days} days", "passed", "flips", "changed", "policy")
    rows = [_format_trend(trend) for trend in trends]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def write(row: Sequence[str], **markup: bool) -> None:
        terminal.write_line("  ".join(map(str.ljust, row, widths)).rstrip(), **markup)

    write(head, bold=True)
    for trend, row in zip(trends, rows, strict=True):
        write(row, **_MARKS.get(trend.policy or "", {}))
    counts = Counter(trend.policy for trend in trends)
    terminal.write_line(
        f"{count_text(len(trends), 'case')}: {counts['blocking']} blocking, {counts['quarantined']} quarantined"
    )


def _format_trend(trend: Trend) -> tuple[str, ...]:
    bars = (day.judged and _BARS[round(day.passed / day.judged * (len(_BARS) - 1))] for day in trend.days)
    policy = ""
    if trend.policy is not None:
        policy = f"{trend.policy}: {trend.reason}"
    return (
        printable(trend.series.case),
        printable(trend.series.model),
        printable(trend.series.suite or "-"),
        "".join(bar or _NO_VERDICT for bar in bars),
        f"{trend.passed}/{trend.judged}",
        str(trend.flips),
        "-" if trend.changed is None else trend.changed.isoformat(),
        policy,
    )
