"""Write a column of a report as a log of Inspect (`.eval`), which its viewer opens and `agentbench import` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.archives import write_zip
from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.packs.exporters.columns import Column, ExportedFile
from pytest_agentbench.packs.exporters.inspect_samples import (
    SCORER,
    build_sample,
    names_of_scorers,
    read_numbers,
    read_usage,
    summarise_sample,
)
from pytest_agentbench.reports.gate import has_verdict
from pytest_agentbench.statistics.estimates import mean

_VERSION = 2
"""Version of the log's format."""
_ID_LENGTH = 22
"""Characters of a log's id, as Inspect writes it."""
_INTERRUPTED = 2
"""pytest's exit status of an interrupted session."""


def write_log(column: Column, folder: Path, notes: list[str]) -> ExportedFile | None:
    """Write the log of a column to the folder; return None if all its runs were skipped.

    Add the reasons why runs could not be read to `notes`. Raises UnwritableError.
    """
    if not column.ran:
        notes.append(f"{column.title}: all runs were skipped, so there is nothing to export")
        return None
    path = folder / _name_log(column)
    # Half a surrogate pair, which UTF-8 cannot carry, becomes its JSON escape.
    write_zip(
        path,
        (
            (name, json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"))
            for name, value in _list_members(column, notes)
        ),
    )
    return ExportedFile(path, len(column.ran))


def _list_members(column: Column, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the names and JSON values of the log's members, the samples one at a time."""
    head = {"version": _VERSION, "eval": _describe_evaluation(column), "plan": {"name": "plan", "steps": []}}
    yield "_journal/start.json", head
    summaries = []
    for sample in column.load_samples():
        notes += sample.stored.problems
        built = build_sample(sample, column.started)
        yield f"samples/{sample.sample_id}_epoch_{sample.epoch}.json", built
        summaries.append(summarise_sample(built, sample.row))
    yield "summaries.json", summaries
    status = _find_status(column)
    header = {**head, "status": status, "results": _build_results(column), "stats": _build_stats(column)}
    if status == "error":
        header["error"] = {"message": "no run has a verdict", "traceback": "", "traceback_ansi": ""}
    yield "header.json", header


def _name_log(column: Column) -> str:
    """Return `TIME_TASK_ID.eval`: the viewer reads task and id from the name, so only two `_` may be in it."""
    time = column.started.isoformat(timespec="seconds").replace(":", "-").replace("+", "-")
    return f"{time}_{_name_task(column)}_{_make_id(column)}.eval"


def _name_task(column: Column) -> str:
    return slug(column.task).replace("_", "-")


def _make_id(column: Column) -> str:
    return column.digest.hex()[:_ID_LENGTH]


def _describe_evaluation(column: Column) -> dict[str, Any]:
    ids = list(column.sample_ids.values())
    arguments = {} if column.variant is None else {"variant": column.variant}
    return {
        "created": column.started.isoformat(timespec="seconds"),
        "task": column.task,
        "task_id": _make_id(column),
        "task_args": arguments,
        "dataset": {"name": column.suite, "samples": len(ids), "sample_ids": ids},
        "model": column.model,
        "config": {"epochs": max(row["repetition"] for row in column.rows)},
        "packages": dict(column.session["versions"]),
        "scorers": [{"name": name} for name in names_of_scorers(column.rows)],
        "metadata": {
            "command": list(column.session["command"]),
            "skipped_runs": len(column.rows) - len(column.ran),
        },
    }


def _find_status(column: Column) -> str:
    if column.session["exit_status"] == _INTERRUPTED:
        return "cancelled"
    if not any(map(has_verdict, column.rows)):
        return "error"
    return "success"


def _build_results(column: Column) -> dict[str, Any]:
    """Return the pass rate, and the mean of each metric over the runs with a verdict."""
    judged = [row for row in column.rows if has_verdict(row)]
    values: dict[str, Sequence[float]] = {SCORER: [float(row["outcome"] == "passed") for row in judged]}
    for name in names_of_scorers(judged)[1:]:
        values[name] = [numbers[name] for numbers in map(read_numbers, judged) if name in numbers]
    return {
        "total_samples": len(column.ran),
        "completed_samples": len(judged),
        "scores": [
            {
                "name": name,
                "scorer": name,
                "scored_samples": len(scores),
                "unscored_samples": len(column.ran) - len(scores),
                "params": {},
                "metrics": _build_metric("pass_rate" if name == SCORER else "mean", scores),
            }
            for name, scores in values.items()
        ],
    }


def _build_metric(name: str, scores: Sequence[float]) -> dict[str, Any]:
    value = mean(scores)
    if value is None:
        return {}
    return {name: {"name": name, "value": value, "params": {}}}


def _build_stats(column: Column) -> dict[str, Any]:
    return {
        "started_at": column.started.isoformat(timespec="seconds"),
        "completed_at": column.completed.isoformat(timespec="seconds"),
        "model_usage": _sum_usages([usage for row in column.ran if (usage := read_usage(row)) is not None], column),
    }


def _sum_usages(usages: Sequence[Mapping[str, Any]], column: Column) -> dict[str, Any]:
    """Return the tokens of all runs by model; empty if those of any run are unknown."""
    if not usages or len(usages) != len(column.ran):
        return {}
    names = ("input_tokens", "output_tokens", "total_tokens")
    return {column.model: {name: sum(usage[name] for usage in usages) for name in names}}
