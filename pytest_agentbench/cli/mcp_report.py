"""`agentbench mcp report REPORT...`: the tables of MCP-Bench from report.json, of one session or of several."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from pytest_agentbench.cli.mcp_tables import Table
    from pytest_agentbench.cli.merging import Part

_ANY_WIDTH = 10_000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "report",
        help="print the tables of MCP tasks from report.json",
        description="Print what report.json files say of MCP tasks, in the shape of MCP-Bench's tables 3 to 6: scores "
        "of all tasks, of those with one server and with several, rounds and calls by the number of servers. Runs of "
        "one model from several reports are taken together.",
    )
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="a report.json")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--markdown", action="store_true", help="print Markdown")
    how.add_argument("--json", action="store_true", help="print the figures with their intervals as JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the tables."""
    import json

    from pytest_agentbench.cli.mcp_tables import tables
    from pytest_agentbench.cli.merge import read_report
    from pytest_agentbench.cli.printing import printable

    parts = [read_report(path) for path in args.reports]
    found = tool_use_by_model(parts)
    if args.json:
        print(json.dumps({"models": found}, indent=2))
        return 0
    shown = tables([(printable(model["model_id"]), model["tool_use"]) for model in found])
    if args.markdown:
        print("\n\n".join(map(as_markdown, shown)))
    else:
        _print(shown)
    return 0


def tool_use_by_model(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """`{model_id, label, scripted, tool_use}` of each model that ran an MCP task, from the runs of all reports.

    Raises ConfigError for a run that two reports have, and where no report has an MCP task.
    """
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.reports import model_tool_use

    owners: dict[str, Part] = {}
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        for row in part.runs:
            if (owner := owners.setdefault(row["nodeid"], part)) is not part:
                raise ConfigError(
                    f"{part.name}: found a run of {row['nodeid']}, which {owner.name} has too; name one of them"
                )
            rows[row["model_id"]].append(row)
    found = [
        {
            "model_id": model_id,
            "label": of_model[0]["label"],
            "scripted": of_model[0]["scripted"],
            "tool_use": figures,
        }
        for model_id, of_model in rows.items()
        if (figures := model_tool_use(of_model)) is not None
    ]
    if not found:
        names = ", ".join(part.name for part in parts)
        raise ConfigError(f"{names}: found no run of an MCP task; see docs/mcp-bench.md for how to run some")
    return found


def as_markdown(table: Table) -> str:
    """A table as Markdown has it; names of models cannot break it."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    rule = f"|---|{'---:|' * (len(table.columns) - 1)}"
    return "\n".join([f"**{table.title}**", "", line(table.columns), rule, *map(line, table.rows), "", table.note])


def _print(shown: Sequence[Table]) -> None:
    """Prints tables; those that a terminal is too narrow for stand on their side, with a column for each model."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=_ANY_WIDTH)
    for table in shown:
        fits = _width(table.columns, table.rows) <= console.width
        console.print(Text(table.title, "bold"))
        for titles, *rows in [[table.columns, *table.rows]] if fits else _on_its_side(table, console.width):
            width = max(console.width, _width(titles, rows))
            console.print(_grid(titles, rows, width), width=width, crop=False)
        console.print(Text(table.note, "dim"), "")


def _on_its_side(table: Table, width: int) -> Iterator[list[tuple[str, ...]]]:
    """The lines of a table with a column for each model, and of more such tables where one is too wide for all."""
    part: list[tuple[str, ...]] = [table.columns]
    for row in table.rows:
        first, *others = zip(*part, row, strict=True)
        if len(part) > 1 and _width(first, others) > width:
            yield [*zip(*part, strict=True)]
            part = [table.columns]
        part.append(row)
    yield [*zip(*part, strict=True)]


def _width(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Cells that a table needs whose titles are wrapped at blanks."""
    return sum(_narrowest(title, column) + 2 for title, *column in zip(titles, *rows, strict=True))


def _narrowest(title: str, column: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, [*title.split(), *column]))


def _grid(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Grid:
    """The table; titles are wrapped where it is wider than `width` otherwise."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as Grid
    from rich.text import Text

    columns = [*zip(titles, *rows, strict=True)]
    wide = sum(max(map(cell_len, column)) + 2 for column in columns) > width
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for at, (title, *column) in enumerate(columns):
        justify: Literal["left", "right"] = "right" if at else "left"
        narrow = _narrowest(title, column) if wide else None
        grid.add_column(Text(title), justify=justify, vertical="bottom", width=narrow)
    for row in rows:
        grid.add_row(*(Text(cell, no_wrap=True) for cell in row))
    return grid
