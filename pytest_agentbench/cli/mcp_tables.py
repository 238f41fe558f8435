"""The tables of MCP-Bench (seed 004, tables 3 to 6) of several models: titles, columns and cells as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from pytest_agentbench.records import TOOL_USE_DIMENSIONS

Group = Mapping[str, Any]
"""A group of tasks as `models[].tool_use` of report.json has it."""
Models = Sequence[tuple[str, Mapping[str, Any]]]
"""The models' names and their `tool_use`."""

UNKNOWN = "-"
_INTERVAL = "95 % interval"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the first column names models and is aligned left, all others right. `note` says how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cell: Callable[[Group], str]


def tables(models: Models) -> list[Table]:
    """All tables in which there is something to say."""
    counts = sorted({int(count) for _, found in models for count in found["by_servers"]})
    found = [
        _leaderboard("Table 3: all tasks", models, "total"),
        _leaderboard("Table 4: tasks with a single server", models, "single_server"),
        _leaderboard("Table 5: tasks with several servers", models, "multi_server"),
        _by_servers("Table 6: rounds and tool calls per task, by the number of servers", models, counts, _effort),
        _by_servers("Overall score, by the number of servers", models, counts, _overall),
        _further("Further figures, all tasks", models),
    ]
    return [table for table in found if table.rows]


def _leaderboard(title: str, models: Models, group: str) -> Table:
    """The best overall score first."""
    there = [(name, found[group]) for name, found in models if found[group] is not None]
    ordered = sorted(there, key=lambda each: -(_mean(each[1], "overall") or 0.0))
    note = "Rates in percent; the judge's scores, of 10, as fractions of 1. Scores are of the tasks that were judged."
    return _table(title, _SCORES, ordered, note)


def _by_servers(
    title: str, models: Models, counts: Sequence[int], columns: Callable[[str, Callable[[Group], Group]], list[_Column]]
) -> Table:
    """Columns for each number of servers, then for all tasks."""
    shown = [column for count in counts for column in columns(_servers(count), _at(str(count)))]
    shown += columns("all", lambda found: found["total"])
    return _table(title, shown, models, f"Means with their {_INTERVAL}s over tasks.")


def _further(title: str, models: Models) -> Table:
    return _table(title, _FURTHER, [(name, found["total"]) for name, found in models], "Rates in percent.")


def _table(title: str, columns: Sequence[_Column], rows: Sequence[tuple[str, Group]], note: str) -> Table:
    cells = tuple((name, *(column.cell(found) for column in columns)) for name, found in rows)
    return Table(title, ("model", *(column.title for column in columns)), cells, note)


def _servers(count: int) -> str:
    return f"{count} server{'' if count == 1 else 's'}"


def _at(count: str) -> Callable[[Group], Group]:
    return lambda found: found["by_servers"].get(count) or {"figures": {}}


def _effort(label: str, group: Callable[[Group], Group]) -> list[_Column]:
    return [
        _Column(f"{what}, {label}", lambda found, key=what: _with_interval(group(found), key, 1))  # type: ignore[misc]
        for what in ("rounds", "calls")
    ]


def _overall(label: str, group: Callable[[Group], Group]) -> list[_Column]:
    return [_Column(label, lambda found: _with_interval(group(found), "overall", 3))]


def _figure(group: Group, name: str) -> Mapping[str, Any]:
    figure: Mapping[str, Any] = group["figures"].get(name) or {}
    return figure


def _mean(group: Group, name: str) -> float | None:
    found: float | None = _figure(group, name).get("mean")
    return found


def _number(value: float | None, digits: int, scale: float = 1) -> str:
    return UNKNOWN if value is None else f"{scale * value:,.{digits}f}"


def _with_interval(group: Group, name: str, digits: int) -> str:
    figure = _figure(group, name)
    interval = _ends(figure, digits, 1.0 if name == "overall" else inf)
    return _number(figure.get("mean"), digits) + (f" [{interval}]" if interval != UNKNOWN else "")


def _ends(figure: Mapping[str, Any], digits: int, most: float) -> str:
    """Cut to what there can be: an interval of few tasks reaches beyond."""
    ends = figure.get("ci95")
    return UNKNOWN if ends is None else ", ".join(_number(min(most, max(0.0, end)), digits) for end in ends)


def _plain(title: str, name: str, digits: int, scale: float = 1) -> _Column:
    return _Column(title, lambda group: _number(_mean(group, name), digits, scale))


def _percent(title: str, name: str) -> _Column:
    return _plain(title, name, 1, 100)


_SCORES = (
    _Column("tasks", lambda group: f"{group['tasks']:,}"),
    _Column("judged", lambda group: f"{_figure(group, 'overall').get('tasks', 0):,}"),
    _percent("valid tool names", "valid_tool_name_rate"),
    _percent("schema compliance", "input_schema_compliance"),
    _percent("execution success", "execution_success_rate"),
    *(_plain(name.replace("_", " "), name, 3, 0.1) for name in TOOL_USE_DIMENSIONS),
    _plain("overall", "overall", 3),
    _Column(_INTERVAL, lambda group: _ends(_figure(group, "overall"), 3, 1.0)),
)
_FURTHER = (
    _percent("completed", "completed"),
    _percent("soft errors", "soft_error_rate"),
    _percent("dependency compliance", "dependency_compliance"),
    _percent("plans valid at once", "planning_json_compliance"),
    _plain("servers used", "servers_used", 2),
    _percent("cross-server", "cross_server"),
    _plain("tokens", "tokens", 0),
    _plain("CV over shuffles, %", "cv_percent", 1),
    _plain("CV over judges, %", "judges_cv_percent", 1),
)
