"""Build report.json (its schema is `report.schema.json` next to this file) and write a session's other outputs."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.reports.gate import CaseKey, Counts, apply_gate, case_key, count_gated, has_verdict
from pytest_agentbench.reports.kept_rows import KeptRow, encode_json
from pytest_agentbench.reports.rows import HUMAN_FILE, KEPT, STREAM_TIMES, Report, Row
from pytest_agentbench.reports.sections import model_sections, sections_in
from pytest_agentbench.reports.table import column_of, variant_of
from pytest_agentbench.statistics.estimates import (
    FEWEST_JUDGED,
    JUDGED_SCALE,
    Interval,
    by_k,
    flakiness,
    mean,
    nearest_rank,
    over_cases,
    pair,
    pass_hat_k,
    pass_rate_interval,
    samples_of,
    score_interval,
    sd,
    standard_error,
)
from pytest_agentbench.terminal_text import on_github

if TYPE_CHECKING:
    from pytest_agentbench.options import Settings


_UNKNOWN_COST = {"run": None, "judge": None}
_SESSION: dict[str, Any] = {
    "started_at": None,
    "project": None,
    "duration_seconds": None,
    "exit_status": None,
    "command": [],
    "versions": {},
    "profiles": {},
    "shard": None,
    "selection": None,
    "merged": None,
    "warnings": [],
    "faults": [],
    "uncollected": [],
}


def build_report(rows: Sequence[Row], session: Mapping[str, Any], spent_usd: Mapping[str, Any] | None = None) -> Report:
    """Build the whole report from rows of `run_row`, one per run, in the given order.

    `session` contains JSON values: `started_at` (ISO 8601, UTC), `project` (the root directory's name),
    `duration_seconds`, `exit_status`, `command` (arguments), `versions`, `profiles` (names by kind), `gate`
    (`Gate.as_dict()`), `warnings` and `faults` (sentences), `uncollected` (`collection_problems`), `shard`,
    `selection`, `merged`. A missing member becomes null or empty.
    `spent_usd` is the amount that this session paid, `run`, `judge` and roles of runs (USD, None: unknown), with the
    known parts as `at_least` if requests returned no usage.
    """
    spent = dict(spent_usd or _UNKNOWN_COST)
    usage = _sum_usage(rows)
    if (certain := spent.pop("at_least", None)) is not None:
        usage["at_least"]["spent_usd"] = dict(certain)
    by_case: dict[tuple[CaseKey, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_case[case_key(row), column_of(row)].append(row)
    cases = [_case_entry(repetitions) for repetitions in by_case.values()]
    by_column: dict[str, list[tuple[list[Row], dict[str, Any]]]] = defaultdict(list)
    for (_, column), repetitions, case in zip(by_case, by_case.values(), cases, strict=True):
        by_column[column].append((repetitions, case))
    ungated = apply_gate(count_gated(rows), fail_under=None).as_dict()
    return {
        "schema_version": 1,
        "session": {**_SESSION, "gate": ungated, **session},
        "totals": {**_count_outcomes(rows), **usage, "spent_usd": spent},
        "models": [_model_entry(*zip(*grouped, strict=True)) for grouped in by_column.values()],
        "judges": _judges(rows),
        "datasets": _datasets(rows),
        "cases": cases,
        "human": None,
        "runs": list(rows),
    }


def complete_report(report: Report, path: Path) -> Report:
    """Return a report that was read from `path`, with the figures that follow from its runs.

    Raises ConfigError for numbers that are too large to add up.
    """
    parts: dict[str, Any] = {name: report[name] for name in KEPT if name in report}
    try:
        # Those in the file may lack newer figures, and are not checked
        return {**build_report(report["runs"], report["session"], spent_of(report["totals"])), **parts}
    except OverflowError as error:
        raise ConfigError(f"{path}: a number is too large to add up: {error}") from error


def write_report(report: Report, path: Path) -> None:
    """Write report.json atomically: a reader finds the old one or the new one, even after a kill."""
    from pytest_agentbench.bounded.writing import replace_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Synced, unlike artifacts: it is one file, and the last that a job writes before its machine may go
        with replace_file(path, sync=True) as file:
            file.writelines(map(str.encode, _write_json(report)))
    except OSError as error:
        raise InfrastructureError(
            f"{path}: the report could not be written ({error.strerror or error}); "
            "runs and evaluations are kept in the output folder; name another place with --agentbench-json"
        ) from error


def _write_json(report: Report) -> Iterator[str]:
    """Yield a report as JSON, entry by entry: the text of 100,000 runs is 100 MB."""
    before = "{"
    for name, value in report.items():
        yield f"{before}{encode_json(name)}:"
        before = ","
        if isinstance(value, list):
            yield "["
            for at, entry in enumerate(value):
                text = entry.text() if isinstance(entry, KeptRow) else encode_json(entry)
                yield f",{text}" if at else text
            yield "]"
        else:
            yield encode_json(value)
    yield "}\n"


def suite_properties(report: Report) -> list[tuple[str, object]]:
    """Return JUnit's test-suite properties: totals, gate and per-model means. An unknown value has no property."""
    verdict, totals = report["session"]["gate"], report["totals"]
    properties: list[tuple[str, object]] = [
        ("agentbench.pass_rate", totals["pass_rate"]),
        ("agentbench.completion", totals["completion"]),
        ("agentbench.gate", {None: None, True: "passed", False: "failed"}[verdict["passed"]]),
        ("agentbench.fail_under", verdict["fail_under"]),
        *((f"agentbench.cost_usd.{part}", usd) for part, usd in totals["cost_usd"].items()),
        *((f"agentbench.spent_usd.{part}", usd) for part, usd in totals["spent_usd"].items()),
        ("agentbench.reused", totals["reused"]),
        ("agentbench.rejudged", totals["rejudged"]),
    ]
    for model in report["models"]:
        prefix = f"agentbench.model.{column_of(model)}"
        properties += [(f"{prefix}.{name}", model[name]) for name in ("runs", "pass_rate", "completion", "mean_score")]
        properties += [(f"{prefix}.metric.{name}", score) for name, score in model["metrics"].items()]
        properties += [(f"{prefix}.judge.{name}", score) for name, score in model["judge"].items()]
        # Only of sections that have something of this model: JUnit knows no null
        for section, definition in sections_in([model]).items():
            section_properties = definition.model_properties(model[section])
            properties += [(f"{prefix}.{section}.{name}", value) for name, value in section_properties.items()]
        properties += [(f"{prefix}.{mark}", True) for mark in ("scripted", "own_agent") if model[mark]]
        properties += [(f"{prefix}.predictions", model["predictions"])]
    return [(name, value) for name, value in properties if value is not None]


def _judges(rows: Sequence[Row]) -> list[dict[str, Any]]:
    # Here and below: a session without judges, datasets or scores does not import their modules, half of all modules.
    if not any(row.get("judge_votes") for row in rows):
        return []
    from pytest_agentbench.reports.judges import judge_results

    return judge_results(rows)


def _datasets(rows: Sequence[Row]) -> list[dict[str, Any]]:
    if all(row["dataset"] is None for row in rows):
        return []
    from pytest_agentbench.reports.datasets import dataset_results

    return dataset_results(rows)


def _bootstrap(scores: Sequence[Sequence[float]]) -> Interval | None:
    if len(samples_of(scores)) < FEWEST_JUDGED:
        return None
    from pytest_agentbench.statistics.resampling import bootstrap_interval

    return bootstrap_interval(scores)


def _count_outcomes(rows: Sequence[Row]) -> dict[str, Any]:
    counts = Counts.of(row["outcome"] for row in rows)
    return {
        "runs": counts.runs,
        "passed": counts.passed,
        "failed": counts.failed,
        "errors": counts.errors,
        "skipped": counts.skipped,
        "reused": sum(row["reused"] for row in rows),
        "rejudged": sum(row["reused"] and not row["evaluation_reused"] for row in rows),
        "recorded": sum(row["cassette"] == "recorded" for row in rows),
        "replayed": sum(row["cassette"] == "replayed" for row in rows),
        "pass_rate": counts.pass_rate,
        "completion": counts.completion,
    }


def spent_of(totals: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `spent_usd` of `build_report` from the totals of a report, None if it has none."""
    if (spent := totals.get("spent_usd")) is None:
        return None
    certain = totals.get("at_least", {}).get("spent_usd")
    if certain is None:
        return {**spent}
    return {**spent, "at_least": certain}


def _sum_usage(rows: Sequence[Row]) -> dict[str, Any]:
    """Return money and tokens of all started runs, null if any part is unknown; `at_least` sums the known parts."""
    ran = [row for row in rows if row["outcome"] != "skipped"]
    roles = sorted({role for row in ran for role in row.get("roles", ())})
    at_least = [row.get("at_least", {}) for row in ran]
    costs = {part: [row["cost_usd"][part] for row in ran] for part in ("run", "judge")}
    # A run that did not ask a role's model has paid nothing for it
    costs |= {role: [row["cost_usd"].get(role, 0.0) for row in ran] for role in roles}
    certain_costs, exact_costs = _sum_columns(costs, [known.get("cost_usd", {}) for known in at_least], fsum)
    tokens = _token_columns([row["usage"] or {} for row in ran])
    certain_tokens, exact_tokens = _sum_columns(tokens, [known.get("tokens", {}) for known in at_least], sum)
    usage: dict[str, Any] = {
        "at_least": {"cost_usd": certain_costs, "tokens": certain_tokens},
        "cost_usd": exact_costs,
        "tokens": exact_tokens,
    }
    for role in roles:
        columns = _token_columns([row.get("roles", {}).get(role, _NO_TOKENS) for row in ran])
        certain = [known.get("roles", {}).get(role, {}) for known in at_least]
        known_tokens, all_tokens = _sum_columns(columns, certain, sum)
        usage.setdefault("roles", {})[role] = all_tokens
        usage["at_least"].setdefault("roles", {})[role] = known_tokens
    return usage


_Columns = dict[str, list[Any]]
_NO_TOKENS = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


def _token_columns(usages: Sequence[Mapping[str, Any]]) -> _Columns:
    return {part: [usage.get(f"{part}_tokens") for usage in usages] for part in ("input", "output", "total")}


def _sum_columns(
    columns: _Columns, certain: Sequence[Mapping[str, Any]], add: Callable[[Iterable[Any]], Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sums of the known values of columns, and the sums without unknown values, else None.

    `certain` has the known parts of the rows. Tokens are added by `sum`; the sum of dollars would depend on the order
    in which runs ended.
    """
    sums, exact = {}, {}
    for part, values in columns.items():
        numbers = [
            number
            for value, known in zip(values, certain, strict=True)
            if (number := known.get(part) if value is None else value) is not None
        ]
        sums[part] = add(numbers) if numbers else None
        exact[part] = None if None in values else sums[part]
    return sums, exact


def _cache_use(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the share of input that a model's provider read from its cache, or {} if it used none.

    Runs with unknown tokens are left out. `uncached_cost_usd` is the cost without a cache, None if unknown for any run.
    """
    usages = [row["usage"] for row in rows if row["usage"] and row["usage"]["input_tokens"]]
    if not any(usage["cached_tokens"] or usage.get("cache_write_tokens") for usage in usages):
        return {}
    costs = [
        (row["usage"] or {}).get("uncached_cost_usd", row["cost_usd"]["run"])
        for row in rows
        if row["outcome"] != "skipped"
    ]
    read = sum(usage["cached_tokens"] or 0 for usage in usages)
    numbers = [cost for cost in costs if cost is not None]
    return {
        "cache": {
            "read_share": read / sum(usage["input_tokens"] for usage in usages),
            "uncached_cost_usd": fsum(numbers) if len(numbers) == len(costs) else None,
        }
    }


def _model_entry(groups: Sequence[Sequence[Row]], cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a model's entry; `groups` are its rows, case by case, and `cases` their entries in `cases[]`.

    Rates and means are over the runs with a verdict; runs, money and tokens are of all.
    """
    rows = [row for group in groups for row in group]
    by_case = [list(filter(has_verdict, group)) for group in groups]
    judged = [row for group in by_case for row in group]
    verdicts = [[float(row["outcome"] == "passed") for row in group] for group in by_case]
    scores = [_final_scores(group) for group in by_case]
    first = rows[0]
    return {
        "model_id": first["model_id"],
        **variant_of(first),
        "label": first["label"],
        "scripted": first["scripted"],
        "own_agent": first["own_agent"],
        "predictions": first["predictions"],
        **_count_outcomes(rows),
        "ends": _count_ends(rows),
        **_adaptations(rows),
        **_find_usage_source(rows),
        **_skills(by_case),
        "pass_rate_ci95": pair(pass_rate_interval([(int(sum(group)), len(group)) for group in verdicts])),
        "pass_rate_se": standard_error(verdicts),
        **over_cases(cases),
        "mean_score": mean([score for group in scores for score in group]),
        "scored_cases": sum(map(bool, scores)),
        "cases": len(scores),
        "score_ci95": pair(score_interval(scores, JUDGED_SCALE)),
        "score_se": standard_error(scores),
        "score_bootstrap_ci95": pair(_bootstrap(scores)),
        "metrics": _mean_by_name(rows, "metrics"),
        **_vote_agreement(rows),
        "judge": _mean_by_name(rows, "judge"),
        **model_sections(judged),
        **_sum_usage(rows),
        **_cache_use(rows),
        "duration_seconds": _spread_durations(row["duration_seconds"] for row in judged),
        "streaming": _spread_stream_times(judged),
    }


def _count_ends(rows: Sequence[Row]) -> dict[str, int]:
    """Count runs by end reason. Runs without a reason are left out."""
    reasons = Counter(reason for row in rows if (reason := row.get("end_reason")) is not None)
    return dict(sorted(reasons.items()))


def _adaptations(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the adaptations of requests to their endpoint, or {} if there were none."""
    adaptations = sorted({adaptation for row in rows for adaptation in row.get("adapted") or ()})
    if adaptations:
        return {"adapted": adaptations}
    return {}


def _find_usage_source(rows: Sequence[Row]) -> dict[str, Any]:
    """Return who counted the usage of agents behind a gateway; `gateway_partial` if any agent could bypass it."""
    sources = {source for row in rows if (source := row.get("usage_source")) is not None}
    if sources:
        return {"usage_source": max(sources)}
    return {}


def _skills(groups: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Return the use of skills, {} if no run had any."""
    if not any("skills" in row for group in groups for row in group):
        return {}
    from pytest_agentbench.reports.skills import skill_entries

    return skill_entries(groups)


def _final_scores(rows: Iterable[Row]) -> list[float]:
    return [row["final_score"] for row in rows if row["final_score"] is not None]


def _vote_agreement(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the mean agreement of votes by metric, where any metric has several votes."""
    means = _mean_by_name(rows, "agreement")
    if means:
        return {"agreement": means}
    return {}


def _mean_by_name(rows: Iterable[Row], part: str) -> dict[str, float | None]:
    """Return mean scores by name over the runs with a verdict; null if no run has the score."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, score in (row.get(part) or {}).items():
            column = columns.setdefault(name, [])
            if score is not None and has_verdict(row):
                column.append(score)
    return {name: mean(column) for name, column in columns.items()}


def _spread_durations(durations: Iterable[float | None]) -> dict[str, float | None]:
    """Return mean, median and 95th percentile (nearest rank) and the longest, in seconds."""
    numbers = sorted(value for value in durations if value is not None)
    if not numbers:
        return dict.fromkeys(("mean", "p50", "p95", "max"))
    return {
        "mean": mean(numbers),
        "p50": nearest_rank(numbers, 50),
        "p95": nearest_rank(numbers, 95),
        "max": numbers[-1],
    }


def _spread_stream_times(rows: Iterable[Row]) -> dict[str, Any] | None:
    """Return median and 95th percentile of each measurement over all streamed replies; None if there is none."""
    streamed = [times for row in rows if (times := row.get("streaming")) is not None]
    if not streamed:
        return None
    spread = {name: _spread_durations(value for times in streamed for value in times[name]) for name in STREAM_TIMES}
    return {name: {"p50": quantiles["p50"], "p95": quantiles["p95"]} for name, quantiles in spread.items()}


_by_k = lru_cache(maxsize=1024)(by_k)  # most cases have as many runs, and one object is enough for equal ones


def _case_entry(rows: Sequence[Row]) -> dict[str, Any]:
    first, counts = rows[0], Counts.of(row["outcome"] for row in rows)
    scores = _final_scores(filter(has_verdict, rows))
    n, passed = counts.judged, counts.passed
    return {
        "case": case_key(first)[0],
        "case_id": first["case_id"],
        "model_id": first["model_id"],
        **variant_of(first),
        "tags": first["tags"],
        "repetitions": len(rows),
        "passed": passed,
        "failed": counts.failed,
        "errors": counts.errors,
        "skipped": counts.skipped,
        "pass_rate": counts.pass_rate,
        **_by_k(n, passed),
        "flakiness": flakiness(n, passed),
        "mean_score": mean(scores),
        "sd": sd(scores),
        "must_pass": first["must_pass"],
        **({"policy": policy} if (policy := first.get("policy")) else {}),
        "thresholds": _thresholds(first["thresholds"], counts),
    }


def _thresholds(required: Mapping[str, float | None] | None, counts: Counts) -> dict[str, Any] | None:
    """Return the thresholds and values over all repetitions of a case; pass^k with k = judged repetitions."""
    actual = {"pass_rate": counts.pass_rate, "pass_hat_k": pass_hat_k(counts.judged, counts.passed, counts.judged)}
    facts = {
        name: {
            "required": minimum,
            "actual": actual[name],
            "met": None if (got := actual[name]) is None else got >= minimum,
        }
        for name, minimum in (required or {}).items()
        if minimum is not None
    }
    return facts or None


def add_session_labels(report: Report, folder: Path) -> None:
    """Fill in the `human` of a session's report from the human.jsonl in `folder`; a broken one is a warning."""
    path = folder / HUMAN_FILE
    if not path.is_file() or not any("judged" in row for row in report["runs"]):
        return
    from pytest_agentbench.reports.human_agreement import measure_agreement, read_labels

    try:
        report["human"] = measure_agreement(report, read_labels(path), HUMAN_FILE)
    except ConfigError as error:
        report["session"]["warnings"].append(f"people's labels are not counted: {error}")


def write_outputs(report: dict[str, Any], settings: Settings, root: Path) -> tuple[dict[str, Path], bool]:
    """Write the requested page, chart and job summary. Return the written files by kind, and whether all could be
    written.

    A failed output adds a warning to the report. `root` is pytest's root directory.
    """
    written, complete = {}, True
    for what, path, write in _list_writers(report, settings, root):
        try:
            write()
        except InfrastructureError as error:
            report["session"]["warnings"].append(str(error))
            complete = False
        else:
            written[what] = path
    return written, complete


def _list_writers(
    report: dict[str, Any], settings: Settings, root: Path
) -> Iterator[tuple[str, Path, Callable[[], None]]]:

    if (html := settings.html) is not None:
        from pytest_agentbench.reports.html.page import write_page

        yield "page", html, lambda: write_page(report, html, output=settings.output)
    if (chart := settings.chart) is not None:
        from pytest_agentbench.reports.charts import write_chart

        yield "chart", chart, lambda: write_chart(report, chart)
    if on_github() and (summary := os.environ.get("GITHUB_STEP_SUMMARY")):
        from pytest_agentbench.reports.ci.document import write_job_summary
        from pytest_agentbench.reports.ci.sections import Places

        yield "job summary", Path(summary), lambda: write_job_summary(report, Places(root), Path(summary))
