"""`agentbench mcp report REPORT...`: the tables of MCP-Bench (seed 004, tables 3 to 6) from report.json."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pytest_agentbench.cli.merging import Part, read_report
from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.published import PublishedFile, read_published
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS
from pytest_agentbench.packs.mcp_bench.report import summarize_tool_use
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.terminal_text import count_text, visible, visible_line

Group = Mapping[str, Any]
"""A group of tasks in the shape of `models[].tool_use` of report.json."""
Models = Sequence[tuple[str, Mapping[str, Any]]]
"""The models' names and their `tool_use`."""

UNKNOWN = "-"
_INTERVAL = "95 % interval"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the first column contains models and is left-aligned, all others right-aligned. `note` explains it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cell: Callable[[Group], str]


def tables(models: Models, published: PublishedFile | None = None) -> list[Table]:
    """Return all tables that have data; the first three with the published results."""
    counts = sorted({int(count) for _, tool_use in models for count in tool_use["by_servers"]})
    totals = [(name, tool_use["total"]) for name, tool_use in models]
    candidates = [
        _make_leaderboard("Table 3: all tasks", models, "total", published),
        _make_leaderboard("Table 4: tasks with a single server", models, "single_server", published),
        _make_leaderboard("Table 5: tasks with several servers", models, "multi_server", published),
        _make_servers_table(
            "Table 6: rounds and tool calls per task, by the number of servers", models, counts, _effort_columns
        ),
        _make_servers_table("Overall score, by the number of servers", models, counts, _overall_columns),
        _make_table("Further figures, all tasks", _FURTHER, totals, "Rates in percent."),
    ]
    return [table for table in candidates if table.rows]


def _make_leaderboard(title: str, models: Models, group: str, published: PublishedFile | None) -> Table:
    """Return the models with such tasks, the best overall score first. Published ones are added only to others."""
    rows = [(name, tool_use[group]) for name, tool_use in models if tool_use[group] is not None]
    note = "Rates in percent; the judge's scores, of 10, as fractions of 1. Scores are of the tasks that were judged."
    if rows and published is not None:
        others = [(visible_line(name), tool_use[group]) for name, tool_use in published.as_models() if tool_use[group]]
        rows += others
        if others:
            note = "\n".join([note, visible(f"Published: {published.source}."), *map(visible, published.caveats)])
    # The sort is stable: models without a verdict come last, in the order of the reports.
    rows.sort(key=lambda row: -(_mean(row[1], "overall") or 0.0))
    return _make_table(title, _SCORES, rows, note)


def _make_servers_table(
    title: str, models: Models, counts: Sequence[int], columns: Callable[[str, Callable[[Group], Group]], list[_Column]]
) -> Table:
    """Return a table with columns for each number of servers, then for all tasks."""
    all_columns = [column for count in counts for column in columns(count_text(count, "server"), _group_of(str(count)))]
    all_columns += columns("all", lambda tool_use: tool_use["total"])
    return _make_table(title, all_columns, models, f"Means with their {_INTERVAL}s over tasks.")


def _make_table(title: str, columns: Sequence[_Column], rows: Sequence[tuple[str, Group]], note: str) -> Table:
    cells = tuple((name, *(column.cell(group) for column in columns)) for name, group in rows)
    return Table(title, ("model", *(column.title for column in columns)), cells, note)


def _group_of(count: str) -> Callable[[Group], Group]:
    return lambda tool_use: tool_use["by_servers"].get(count) or {"figures": {}}


def _effort_columns(label: str, group: Callable[[Group], Group]) -> list[_Column]:
    return [
        # `key=name` binds now: a closure over the loop's variable would show the calls in both columns.
        _Column(f"{name}, {label}", lambda tool_use, key=name: _format_interval(group(tool_use), key, 1))  # type: ignore[misc]
        for name in ("rounds", "calls")
    ]


def _overall_columns(label: str, group: Callable[[Group], Group]) -> list[_Column]:
    return [_Column(label, lambda tool_use: _format_interval(group(tool_use), "overall", 3))]


def _figure(group: Group, name: str) -> Mapping[str, Any]:
    figure: Mapping[str, Any] = group["figures"].get(name) or {}
    return figure


def _mean(group: Group, name: str) -> float | None:
    mean: float | None = _figure(group, name).get("mean")
    return mean


def _format_number(value: float | None, digits: int, scale: float = 1) -> str:
    if value is None:
        return UNKNOWN
    return f"{scale * value:,.{digits}f}"


def _format_interval(group: Group, name: str, digits: int) -> str:
    figure = _figure(group, name)
    mean = _format_number(figure.get("mean"), digits)
    interval = _interval_ends(figure, digits, 1.0 if name == "overall" else inf)
    if interval == UNKNOWN:
        return mean
    return f"{mean} [{interval}]"


def _interval_ends(figure: Mapping[str, Any], digits: int, most: float) -> str:
    """Return both ends of the interval, cut to the scale: an interval of few tasks may exceed it."""
    ends = figure.get("ci95")
    if ends is None:
        return UNKNOWN
    return ", ".join(_format_number(min(most, max(0.0, end)), digits) for end in ends)


def _mean_column(title: str, name: str, digits: int, scale: float = 1) -> _Column:
    return _Column(title, lambda group: _format_number(_mean(group, name), digits, scale))


def _percent_column(title: str, name: str) -> _Column:
    return _mean_column(title, name, 1, 100)


_SCORES = (
    _Column("tasks", lambda group: f"{group['tasks']:,}"),
    _Column("judged", lambda group: f"{_figure(group, 'overall').get('tasks', 0):,}"),
    _percent_column("valid tool names", "valid_tool_name_rate"),
    _percent_column("schema compliance", "input_schema_compliance"),
    _percent_column("execution success", "execution_success_rate"),
    *(_mean_column(name.replace("_", " "), name, 3, 0.1) for name in TOOL_USE_DIMENSIONS),
    _mean_column("overall", "overall", 3),
    _Column(_INTERVAL, lambda group: _interval_ends(_figure(group, "overall"), 3, 1.0)),
)
_FURTHER = (
    _percent_column("completed", "completed"),
    _percent_column("soft errors", "soft_error_rate"),
    _percent_column("failures of valid calls", "valid_call_failure_rate"),
    _percent_column("dependency compliance", "dependency_compliance"),
    _percent_column("plans valid at once", "planning_json_compliance"),
    _mean_column("servers used", "servers_used", 2),
    _percent_column("cross-server", "cross_server"),
    _mean_column("tokens", "tokens", 0),
    _mean_column("CV over shuffles, %", "cv_percent", 1),
    _mean_column("CV over judges, %", "judges_cv_percent", 1),
)


_ANY_WIDTH = 10_000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "report",
        help="print the tables of MCP tasks from report.json",
        description="Print the results of MCP tasks in report.json files in the shape of MCP-Bench's tables 3 to 6: "
        "scores of all tasks, of tasks with one server and with several, rounds and calls by the number of servers. "
        "Runs of one model from several reports are counted together.",
    )
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="a report.json")
    parser.add_argument(
        "--beside",
        metavar="FILE",
        help="print published results next to these: from a file, or 'paper' for those of MCP-Bench's paper",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    form.add_argument("--json", action="store_true", help="print the figures with their intervals as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    parts = [read_report(path) for path in args.reports]
    published = None if args.beside is None else read_published(args.beside)
    entries = group_by_model(parts)
    if args.json:
        document: dict[str, Any] = {"models": entries}
        if published is not None:
            document["published"] = published.model_dump(mode="json")
        print(json.dumps(document, indent=2))
        return 0
    models = [(printable(entry["model_id"]), entry["tool_use"]) for entry in entries]
    if args.markdown:
        print("\n\n".join(map(format_markdown, tables(models, published))))
    else:
        _print(tables(models, published))
    return 0


def group_by_model(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return `{model_id, label, scripted, tool_use}` of each model that ran an MCP task, from the runs of all reports.

    Raises ConfigError for a run in two reports, and if no report has an MCP task.
    """
    owners: dict[str, Part] = {}
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for part in parts:
        for row in part.runs:
            # The same run in two reports, such as a session's and its merged one, would count twice.
            if (owner := owners.setdefault(row["nodeid"], part)) is not part:
                raise ConfigError(
                    f"{part.name}: found a run of {row['nodeid']}, which {owner.name} has too; name only one of them"
                )
            rows[column_of(row)].append(row)
    entries = [
        {
            "model_id": model_id,
            "label": of_model[0]["label"],
            "scripted": of_model[0]["scripted"],
            "tool_use": figures,
        }
        for model_id, of_model in rows.items()
        if (figures := summarize_tool_use(of_model)) is not None
    ]
    if not entries:
        names = ", ".join(part.name for part in parts)
        raise ConfigError(f"{names}: found no run of an MCP task; docs/mcp-bench.md explains how to run some")
    return entries


def format_markdown(table: Table) -> str:
    """Return a table in Markdown; names of models are escaped."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    rule = f"|---|{'---:|' * (len(table.columns) - 1)}"
    return "\n".join([f"**{table.title}**", "", line(table.columns), rule, *map(line, table.rows), "", table.note])


def _print(tables: Sequence[Table]) -> None:
    """Print tables; a table too wide for the terminal is transposed, with a column for each model."""
    console = Console()
    if not console.is_terminal:
        # Without a terminal rich assumes 80 columns; a file or another program gets whole rows.
        console = Console(width=_ANY_WIDTH)
    for table in tables:
        fits = _measure_width(table.columns, table.rows) <= console.width
        console.print(Text(table.title, "bold"))
        for titles, *rows in [[table.columns, *table.rows]] if fits else _transpose(table, console.width):
            # Too wide in both forms: let it run over the edge, because a truncated figure is another figure.
            width = max(console.width, _measure_width(titles, rows))
            console.print(_make_grid(titles, rows, width), width=width, crop=False)
        console.print(Text(table.note, "dim"), "")


def _transpose(table: Table, width: int) -> Iterator[list[tuple[str, ...]]]:
    """Yield the lines of a table with a column for each model, split into several tables if too wide."""
    part: list[tuple[str, ...]] = [table.columns]
    for row in table.rows:
        first, *others = zip(*part, row, strict=True)
        if len(part) > 1 and _measure_width(first, others) > width:
            yield [*zip(*part, strict=True)]
            part = [table.columns]
        part.append(row)
    yield [*zip(*part, strict=True)]


def _measure_width(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the cells that a table needs whose titles are wrapped at blanks."""
    return sum(_measure_column(title, column) + 2 for title, *column in zip(titles, *rows, strict=True))


def _measure_column(title: str, column: Sequence[str]) -> int:
    return max(map(cell_len, [*title.split(), *column]))


def _make_grid(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Grid:
    """Return the table; titles are wrapped if it would be wider than `width`."""
    columns = [*zip(titles, *rows, strict=True)]
    wide = sum(max(map(cell_len, column)) + 2 for column in columns) > width
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for at, (title, *column) in enumerate(columns):
        justify: Literal["left", "right"] = "right" if at else "left"
        narrow = _measure_column(title, column) if wide else None
        grid.add_column(Text(title), justify=justify, vertical="bottom", width=narrow)
    for row in rows:
        grid.add_row(*(Text(cell, no_wrap=True) for cell in row))
    return grid
