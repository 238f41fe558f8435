"""A comparison in words, for terminal, Markdown, page and gate; and on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.reports.table import (
    Markup,
    Style,
    Terminal,
    and_more,
    count_cells,
    fit_columns,
    format_count,
    format_money,
    format_number,
    format_percent,
    format_seconds,
    make_column,
    pad_cells,
    style_of,
    write_row,
    write_titles,
)
from pytest_agentbench.terminal_text import count_text, visible_line

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
    """Return how many changed cases the test does not support, each way."""
    worse = sum(change["difference"] < 0 for change in changes)
    parts = [f"{number} {way}" for number, way in ((worse, "worse"), (len(changes) - worse, "better")) if number]
    return f"{CHANCE}: {', '.join(parts)}"


def summary(model: ModelComparison, models: int, plural: str = "models") -> str:
    """Return the result for the pass rate of one of `models`, or of another `plural`, in up to three sentences."""
    name, measure = model.model_id, model.pass_rate
    if model.baseline_model_id != model.model_id:
        name += f" against {model.baseline_model_id}"
    if measure.baseline is None or measure.current is None or measure.difference is None:
        return f"{name}: no case has a verdict on both sides."
    rates = f"{format_percent(measure.baseline)} -> {format_percent(measure.current)}"
    result = (
        f"{name}: pass rate {rates} over {count_text(measure.cases, 'case')} "
        f"({_evidence(measure, models, plural)}): {VERDICTS[measure.verdict or 'nothing_compared']}."
    )
    return " ".join([result, *_limits(measure)])


def compared_with(comparison: Mapping[str, Any]) -> str:
    """Return the title with both campaigns."""
    current, baseline = comparison["current"], comparison["baseline"]
    title = "This session" if current["report"] is None else side_name(current)
    return f"{title} compared with {side_name(baseline)}"


def columns_title(report: Mapping[str, Any]) -> str:
    """Return the title of a report's columns against their reference."""
    references = dict.fromkeys(each["baseline_model_id"] for each in report["column_comparisons"])
    variant = report.get("reference_variant")
    if variant is not None and all(name.endswith(f":{variant}") for name in references):
        return f"variants compared with {variant}"
    if len(references) > 1:
        return "columns compared with their references"
    return f"models compared with {next(iter(references))}"


def side_name(side: Mapping[str, Any]) -> str:
    """Return the report and its model, as the command line names them."""
    name = side["report"] or "this session"
    return name if side["model"] is None else f"{name}#{side['model']}"


def change_text(change: Mapping[str, Any]) -> str:
    """Return the case's outcomes on both sides, and their significance."""
    sides = " -> ".join(f"{change[side]['passed']}/{change[side]['judged']}" for side in ("baseline", "current"))
    if change["p_value"] is None:
        return sides
    return f"{sides} ({p_text(change['p_value'])})"


def measure_cells(name: str, measure: Mapping[str, Any]) -> list[str]:
    """Return baseline, current, difference, interval and p value of a figure; a dash for undefined values."""
    rate = name == "pass_rate"
    sides = [_level(name, measure[side], rate=rate) for side in ("baseline", "current")]
    signed = [_signed(name, value, rate=rate) for value in (measure["difference"], *(measure["ci95"] or ()))]
    # A verdict uses the adjusted p value, so that is shown if there is a verdict; other figures have no verdict
    p_value = measure["p_value"] if measure["p_adjusted"] is None else measure["p_adjusted"]
    return [
        *sides,
        signed[0],
        " to ".join(signed[1:]) or "-",
        "-" if p_value is None else bare_p(p_value),
    ]


def left_out(cases: Mapping[str, Any], named: int) -> Iterator[str]:
    """Return sentences about cases without a partner, or a verdict on a side; the first `named` ones by name."""
    titles = {
        "only_baseline": "only in the baseline",
        "only_current": "not in the baseline",
        "unjudged": "without a verdict on one side",
    }
    for key, title in titles.items():
        if names := cases[key]:
            more = and_more(len(names), named)
            yield f"{count_text(len(names), 'case')} {title}: {', '.join(names[:named])}{more}"


def p_text(p_value: float) -> str:
    """Return `p = 0.031`, in two digits, or `p < 0.0001`."""
    if p_value < 0.0001:
        return "p < 0.0001"
    return f"p = {p_value:.2g}"


def bare_p(p_value: float) -> str:
    """Return the text of `p_text` without `p` and `=`."""
    return p_text(p_value).removeprefix("p ").removeprefix("= ")


def points(difference: float) -> str:
    """Return a difference of rates in percentage points, signed."""
    # A difference that rounds to nothing has no direction
    text = f"{difference * 100:+.1f}"
    if text in ("+0.0", "-0.0"):
        return "0.0"
    return text


def _level(name: str, value: float | None, *, rate: bool) -> str:
    if value is None:
        return "-"
    if rate:
        return format_percent(value)
    return _in_unit(name, value)


def _signed(name: str, value: float | None, *, rate: bool) -> str:
    """Return a difference in its unit, of rates in percentage points."""
    if value is None:
        return "-"
    if rate:
        return points(value)
    text = _in_unit(name, abs(value))
    if value < 0:
        return f"-{text}"
    if value > 0:
        return f"+{text}"
    return text


def _in_unit(name: str, value: float) -> str:
    match name:
        case "duration_seconds":
            return format_seconds(value)
        case "tokens.total":
            return format_count(round(value))
    if name.startswith("cost_usd."):
        return format_money(value)
    return format_number(value)


def _evidence(measure: Measure, models: int, plural: str) -> str:
    assert measure.difference is not None
    assert measure.p_value is not None
    parts = [f"{points(measure.difference)} points"]
    if measure.ci95 is not None:
        parts.append(f"95 % interval {' to '.join(map(points, measure.ci95))}")
    parts.append(f"{measure.test}, {p_text(measure.p_value)}")
    if models > 1 and measure.p_adjusted is not None:
        parts.append(f"over {models} {plural} {p_text(measure.p_adjusted)}")
    return "; ".join(parts)


def _limits(measure: Measure) -> Sequence[str]:
    """Return the difference that the cases could have shown, if they showed none."""
    if measure.verdict in ("worse", "better"):
        return []
    cases = count_text(measure.cases, "case")
    if measure.detectable is None:
        sentences = [f"{cases} cannot show any difference."]
    else:
        sentences = [f"{cases} can show a difference of {measure.detectable * 100:.1f} points or more."]
    if measure.cases_needed is not None:
        sentences.append(f"About {_rounded_up(measure.cases_needed)} would show this one.")
    return sentences


def _rounded_up(cases: int) -> str:
    """Return an estimate rounded up to two digits, its precision."""
    step: int = 10 ** max(0, len(str(cases)) - 2)
    return f"{-(-cases // step) * step:,}"


CHANGE_TEXTS = {
    "question": "question",
    "expected": "expected",
    "baseline_answer": "answer before",
    "current_answer": "answer now",
}
"""Texts of a changed case, and the words before them."""
LISTED = 5
"""How many cases of a kind a session's summary names."""
LISTED_IN_FULL = 50
"""How many `agentbench compare` names; JSON has all."""
_COLOURS: dict[str, Markup] = {"worse": {"red": True, "bold": True}, "better": {"green": True, "bold": True}}
_TONES: dict[str, Markup] = {"regressions": {"red": True}, "gains": {"green": True}}
_TITLES = ("", "baseline", "current", "difference", "95 % interval", "p")
_LAST_DROPPED = (0, 1, 2, 3, 5, 4)


def write_comparison(reporter: Terminal, comparison: dict[str, Any], *, full: bool = False) -> None:
    """Write each model's verdict and regressions, then notes; `full`: all figures, changes, cases without partner."""
    reporter.write_line(visible_line(compared_with(comparison)), bold=True)
    write_compared(reporter, comparison["models"], full=full)
    for side, models in (("baseline", comparison["only_baseline"]), ("current", comparison["only_current"])):
        if models:
            reporter.write_line(f"  only in the {side} report: {visible_line(', '.join(models))}")
    for note in comparison["notes"]:
        reporter.write_line(f"  note: {visible_line(note)}", yellow=True)


def write_compared(reporter: Terminal, models: Sequence[dict[str, Any]], *, full: bool = False) -> None:
    """Write the verdict and the regressions of each model, or variant, against its baseline."""
    style, listed = style_of(reporter), LISTED_IN_FULL if full else LISTED
    for model in models:
        if full:
            reporter.line("")
        reporter.write_line(f"  {visible_line(model['summary'])}", **_COLOURS.get(model["verdict"], {}))
        if full:
            _write_figures(reporter, model, style)
        _write_changes(reporter, "regressions", model["regressions"], style, listed, full)
        if full:
            _write_changes(reporter, "gains", model["gains"], style, listed, full)
            _write_changes(reporter, CHANCE, model.get("by_chance", ()), style, listed, full)
        else:
            if model["gains"]:
                reporter.write_line(f"  gains: {len(model['gains'])}")
            if by_chance := model.get("by_chance"):
                reporter.write_line(f"  {chance_text(by_chance)}")
        for line in left_out(model["cases"], listed):
            reporter.write_line(f"  {visible_line(line)}")


def write_failures(reporter: Terminal, failures: Sequence[str]) -> None:
    """Write the reasons why the comparison fails a gate, if there are any."""
    if failures:
        reporter.write_line("comparison failed:", red=True, bold=True)
    for reason in failures:
        reporter.write_line(f"  {visible_line(reason)}", red=True)


def _write_figures(reporter: Terminal, model: dict[str, Any], style: Style) -> None:
    """Write a row for each figure that any case has on both sides."""
    figures = {"pass_rate": model["pass_rate"], "score": model["score"], **model["others"]}
    rows = [
        [style.clip(name, style.width // 3), *measure_cells(name, measure)]
        for name, measure in figures.items()
        if measure["cases"]
    ]
    if not rows:
        return
    cells = zip(*rows, strict=True)
    columns = [
        make_column(title, rank, entries, "<" if rank == 0 else ">")
        for title, rank, entries in zip(_TITLES, _LAST_DROPPED, cells, strict=True)
    ]
    columns = fit_columns(columns, style.width)
    write_titles(reporter, columns)
    for row in range(len(rows)):
        write_row(reporter, columns, row)


def _write_changes(
    reporter: Terminal, title: str, changes: Sequence[dict[str, Any]], style: Style, listed: int, full: bool
) -> None:
    """Write a line for each of the first `listed` changes; `full`: with question, expected and both answers."""
    if not changes:
        return
    shown = changes[:listed]
    number = str(len(changes))
    if len(shown) < len(changes):
        number = f"{len(shown)} of {number}"
    reporter.write_line(f"  {title} ({number}):", bold=True)
    outcomes = [change_text(change) for change in shown]
    names = [
        style.clip(("must pass: " if change["must_pass"] else "") + change["case_id"], style.width // 2)
        for change in shown
    ]
    first, second = max(map(len, outcomes)), max(map(count_cells, names))
    for change, outcome, name in zip(shown, outcomes, names, strict=True):
        message = style.clip(change["message"] or "", max(0, style.width - first - second - 8))
        marked = _TONES.get(title, {})
        reporter.write(f"    {outcome:<{first}}", **marked)
        reporter.line(f"  {pad_cells(name, second)}  {message}".rstrip())
        if full:
            _write_texts(reporter, change, style)


def _write_texts(reporter: Terminal, change: Mapping[str, Any], style: Style) -> None:
    for name, label in CHANGE_TEXTS.items():
        text = " ".join((change.get(name) or "").split())
        if text:
            reporter.line(style.clip(f"      {label + ':':<14} {text}", style.width))
