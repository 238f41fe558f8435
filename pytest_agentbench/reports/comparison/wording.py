"""A comparison in words: what terminal, Markdown, page and gate share. Parts of a comparison come as its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.reports.table import percent
from pytest_agentbench.reports.text import count, money, number, seconds

if TYPE_CHECKING:
    from pytest_agentbench.reports.comparison.results import Measure, ModelComparison

VERDICTS = {
    "worse": "worse",
    "better": "better",
    "no_difference_seen": "no difference seen",
    "not_enough_runs": "not enough runs to tell",
    "nothing_compared": "nothing to compare",
}


CHANCE = "not more than chance"
"""The title of changed cases that the test does not support."""


def chance_text(changes: Sequence[Mapping[str, Any]]) -> str:
    """How many changed cases the test does not support, each way."""
    worse = sum(change["difference"] < 0 for change in changes)
    parts = [f"{number} {way}" for number, way in ((worse, "worse"), (len(changes) - worse, "better")) if number]
    return f"{CHANCE}: {', '.join(parts)}"


def summary(model: ModelComparison, models: int) -> str:
    """What the pass rate of one of `models` says, in up to three sentences."""
    same = model.baseline_model_id == model.model_id
    name = model.model_id if same else f"{model.model_id} against {model.baseline_model_id}"
    measure = model.pass_rate
    if measure.baseline is None or measure.current is None or measure.difference is None:
        return f"{name}: no case has a verdict on both sides."
    said = (
        f"{name}: pass rate {percent(measure.baseline)} -> {percent(measure.current)} over {_cases(measure.cases)} "
        f"({_evidence(measure, models)}): {VERDICTS[measure.verdict or 'nothing_compared']}."
    )
    return " ".join([said, *_limits(measure)])


def compared_with(comparison: Mapping[str, Any]) -> str:
    """The title: what is compared with what."""
    current, baseline = comparison["current"], comparison["baseline"]
    named = "This session" if current["report"] is None else side_name(current)
    return f"{named} compared with {side_name(baseline)}"


def side_name(side: Mapping[str, Any]) -> str:
    """The report and its model, as the command line names them."""
    shown = side["report"] or "this session"
    return shown if side["model"] is None else f"{shown}#{side['model']}"


def change_text(change: Mapping[str, Any]) -> str:
    """How a case's runs went on both sides, and what that alone says."""
    sides = [f"{side['passed']}/{side['judged']}" for side in (change["baseline"], change["current"])]
    p_value = change["p_value"]
    return " -> ".join(sides) + ("" if p_value is None else f" ({p_text(p_value)})")


def measure_cells(name: str, measure: Mapping[str, Any]) -> list[str]:
    """Baseline, current, difference, interval and p value of a figure; a dash for what is undefined."""
    rate = name == "pass_rate"
    sides = [_level(name, measure[side], rate=rate) for side in ("baseline", "current")]
    signed = [_signed(name, value, rate=rate) for value in (measure["difference"], *(measure["ci95"] or ()))]
    p_value = measure["p_value"] if measure["p_adjusted"] is None else measure["p_adjusted"]
    return [
        *sides,
        signed[0],
        " to ".join(signed[1:]) or "-",
        "-" if p_value is None else p_text(p_value).removeprefix("p = ").removeprefix("p "),
    ]


def left_out(cases: Mapping[str, Any], named: int) -> Iterator[str]:
    """Sentences about cases that have no partner, or no verdict on a side; the first `named` ones by name."""
    titles = {
        "only_baseline": "only in the baseline",
        "only_current": "not in the baseline",
        "unjudged": "without a verdict on one side",
    }
    for key, title in titles.items():
        if names := cases[key]:
            more = f" and {len(names) - named} more" if named < len(names) else ""
            yield f"{_cases(len(names))} {title}: {', '.join(names[:named])}{more}"


def p_text(p_value: float) -> str:
    """`p = 0.031`, two digits; `p < 0.0001`."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def points(difference: float) -> str:
    """A difference of rates in percentage points, signed."""
    shown = f"{difference * 100:+.1f}"
    return "0.0" if shown in ("+0.0", "-0.0") else shown


def _level(name: str, value: float | None, *, rate: bool) -> str:
    if value is None:
        return "-"
    return percent(value) if rate else _in_unit(name, value)


def _signed(name: str, value: float | None, *, rate: bool) -> str:
    """A difference in its unit, of rates in percentage points."""
    if value is None:
        return "-"
    if rate:
        return points(value)
    return ("-" if value < 0 else "+" if value > 0 else "") + _in_unit(name, abs(value))


def _in_unit(name: str, value: float) -> str:
    match name:
        case "duration_seconds":
            return seconds(value)
        case "tokens.total":
            return count(round(value))
        case "cost_usd.run" | "cost_usd.judge":
            return money(value)
    return number(value)


def _cases(cases: int) -> str:
    return "1 case" if cases == 1 else f"{cases} cases"


def _evidence(measure: Measure, models: int) -> str:
    assert measure.difference is not None
    assert measure.p_value is not None
    parts = [f"{points(measure.difference)} points"]
    if measure.ci95 is not None:
        parts.append(f"95 % interval {' to '.join(map(points, measure.ci95))}")
    parts.append(f"{measure.test}, {p_text(measure.p_value)}")
    if models > 1 and measure.p_adjusted is not None:
        parts.append(f"over {models} models {p_text(measure.p_adjusted)}")
    return "; ".join(parts)


def _limits(measure: Measure) -> Sequence[str]:
    """What the cases could have shown, where they showed nothing."""
    if measure.verdict in ("worse", "better"):
        return []
    cases = _cases(measure.cases)
    if measure.detectable is None:
        found = [f"{cases} cannot show any difference."]
    else:
        found = [f"{cases} can show a difference of {measure.detectable * 100:.1f} points or more."]
    if measure.cases_needed is not None:
        found.append(f"About {_rounded_up(measure.cases_needed)} would show this one.")
    return found


def _rounded_up(cases: int) -> str:
    """Two digits say what an estimate can."""
    step: int = 10 ** max(0, len(str(cases)) - 2)
    return f"{-(-cases // step) * step:,}"
