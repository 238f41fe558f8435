"""Business report as text for a terminal or a mail: `{model}_poet_report.txt` and `poet_comparison.txt`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING

from pytest_agentbench.packs.research.arithmetic import share_of
from pytest_agentbench.packs.research.business_report.aggregates import SCORES, Comparison, Group, PoetReport, Ranked
from pytest_agentbench.packs.research.business_report.figures import (
    COSTS,
    DASH,
    Mean,
    format_classed,
    format_count,
    format_difference,
    format_interval,
    format_line,
    format_share,
    format_usd,
    read_labels,
)
from pytest_agentbench.packs.research.records import Language

if TYPE_CHECKING:
    from rich.console import Console


WIDTH = 100
MOST_TASKS = 10
"""Tasks that are named of a recommendation, and of a part that is missing."""


def report_text(report: PoetReport, made: datetime, language: Language = "en") -> str:
    """Return lines of at most 100 terminal cells, in English or Chinese."""
    return _render(lambda console: _ReportText(console, report, language).print(made))


def comparison_text(
    reports: Sequence[PoetReport], comparison: Comparison | None, made: datetime, language: Language = "en"
) -> str:
    """Return the scores of several models in one table, and their differences from the best; lines as in a report."""
    return _render(lambda console: _ComparisonText(console, language).print(reports, comparison, made))


def _render(write: Callable[[Console], None]) -> str:
    from rich.console import Console

    target = StringIO()
    # Chinese characters take two cells: rich counts cells, str.ljust would count characters.
    write(Console(file=target, width=WIDTH, color_system=None, markup=False, highlight=False, emoji=False))
    return "\n".join(text.rstrip() for text in target.getvalue().splitlines()) + "\n"


class _Text:
    def __init__(self, console: Console, language: Language) -> None:
        self._console, self._labels = console, read_labels(language)

    def _title(self, text: str, made: datetime) -> None:
        self._heading(text, "=")
        self._line(self._labels["made"].format(f"{made:%Y-%m-%d %H:%M} UTC"))

    def _interval(self, mean: Mean) -> str:
        return format_interval(mean.ci95, self._labels["to"])

    def _heading(self, text: str, rule: str = "-") -> None:
        from rich.cells import cell_len

        if rule == "-":
            self._line("")
        self._line(text)
        self._line(rule * min(cell_len(text), WIDTH))

    def _line(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, overflow="fold"))

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for number, title in enumerate(columns):
            table.add_column(Text(title), justify="right" if number else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)


class _ComparisonText(_Text):
    def print(self, reports: Sequence[PoetReport], comparison: Comparison | None, made: datetime) -> None:
        labels = self._labels
        self._title(labels["comparison"], made)
        self._heading(labels["scores"])
        self._line(labels["scores_note"])
        columns = ("model", "n", "n_scored", "overall_poet_score", "interval", "class", "saving_usd")
        self._table([labels[name] for name in columns], [self._overall(report) for report in reports])
        # A second table: one with all columns would be wider than a terminal.
        self._line("")
        self._line(labels["n_note"])
        parts = [[format_line(report.model), *self._parts(report)] for report in reports]
        self._table([labels[name] for name in ("model", *SCORES[1:])], parts)
        if comparison is not None:
            self._heading(labels["differences"])
            best = format_line(comparison.best)
            self._line(labels["differences_note"].format(best=best, n=comparison.n))
            differences = [(format_line(row.model), row.difference) for row in comparison.differences]
            rows = [
                (model, format_count(mean.n), format_difference(mean.mean), self._interval(mean))
                for model, mean in differences
            ]
            self._table([labels[name] for name in ("model", "n", "difference", "interval")], rows)

    def _parts(self, report: PoetReport) -> Iterator[str]:
        for name in SCORES[1:]:
            mean = report.means[name]
            yield _with_n(format_share(mean.mean), mean.n, report.n_total)

    def _overall(self, report: PoetReport) -> Sequence[str]:
        labels, overall, saving = self._labels, report.means["overall_poet_score"], report.costs.saving_usd
        return (
            format_line(report.model),
            format_count(report.n_total),
            format_count(report.n_scored),
            DASH if overall.mean is None else format_classed(overall.mean, report.thresholds.values()),
            self._interval(overall),
            labels.get(report.performance_class or "", DASH),
            _with_n(format_usd(saving.total), saving.n, report.n_total),
        )


class _ReportText(_Text):
    def __init__(self, console: Console, report: PoetReport, language: Language) -> None:
        super().__init__(console, language)
        self._report = report

    def print(self, made: datetime) -> None:
        report, labels = self._report, self._labels
        self._title(f"{labels['title']}: {format_line(report.model)}", made)
        self._line(f"{labels['reports']}: {', '.join(f'{n} {labels[name]}' for name, n in self._counts())}")
        if report.defaults:
            self._line(labels["defaults_used"].format_map(report.defaults))
        self._line(self._verdict())
        self._scores()
        self._race()
        self._costs()
        for title, groups in (
            ("domains", report.by_domain),
            ("complexity_levels", report.by_complexity_level),
            ("languages", report.by_language),
        ):
            self._groups(title, groups)
        self._ranked("top", report.top)
        self._ranked("bottom", report.bottom)
        self._recommendations()
        self._missing()
        self._heading(labels["weights"])
        self._line(labels["formula"].format_map(report.weights))
        if report.weights["race_score_max"] != 1:
            self._line(labels["formula_compat"].format_map(report.weights))
        if report.weights["fact_accuracy_max"] != 1:
            self._line(labels["formula_fact_max"].format_map(report.weights))

    def _counts(self) -> Iterator[tuple[str, int]]:
        for name in ("n_total", "n_scored", "n_failed", "n_not_reached"):
            n = getattr(self._report, name)
            if n or name != "n_not_reached":
                yield name, n

    def _verdict(self) -> str:
        overall, labels = self._report.means["overall_poet_score"], self._labels
        if overall.mean is None or self._report.performance_class is None:
            return f"{labels['overall_poet_score']}: {DASH} (n = 0)"
        notes = [f"n = {overall.n}"]
        if overall.ci95 is not None:
            notes.insert(0, f"{labels['interval']} {self._interval(overall)}")
        label = labels[self._report.performance_class]
        score = format_classed(overall.mean, self._report.thresholds.values())
        return f"{labels['overall_poet_score']}: {score} ({', '.join(notes)}), {label}"

    def _scores(self) -> None:
        report, labels = self._report, self._labels
        self._heading(labels["scores"])
        self._means(report.means.items())
        self._line(labels["scores_note"])
        classes = (f"{labels[name]} {n}" for name, n in report.classes.items())
        self._line(f"{labels['classes']}: {', '.join(classes)}")

    def _race(self) -> None:
        report, labels = self._report, self._labels
        self._heading(f"RACE, {labels['citations']}")
        self._means(report.race_dimensions.items())
        self._line(labels["race_note"])
        citations = report.citations
        parts = [f"{getattr(citations, name)} {labels[name]}" for name in ("supported", "unsupported", "unknown")]
        accuracy = f"{labels['accuracy_pooled']} {format_share(citations.accuracy)}"
        if citations.ci95 is not None:
            accuracy += f" ({labels['interval']} {format_interval(citations.ci95, labels['to'])})"
        self._line(f"{labels['citations']}: {', '.join(parts)}; {accuracy}; n = {citations.n}")

    def _costs(self) -> None:
        costs, labels = self._report.costs, self._labels
        self._heading(labels["costs"])
        rows = []
        for name, show in COSTS.items():
            total = getattr(costs, name)
            # Over the reports with the figure, as the sum is: `n` is next to both.
            mean = share_of(total.total, total.n)
            rows.append((labels[name], format_count(total.n), show(total.total), show(mean)))
        self._table([labels[name] for name in ("figure", "n", "sum", "per_report")], rows)
        self._line(labels["costs_note"])
        if costs.judge:
            spent = costs.judge.values()
            requests, unknown = sum(cost.requests for cost in spent), sum(cost.unknown for cost in spent)
            # Unknown costs are counted in the same line, not taken for 0.
            costs_usd = [cost.cost_usd for cost in spent if cost.cost_usd is not None]
            parts = [format_usd(sum(costs_usd) if costs_usd else None), f"{labels['requests']}: {requests}"]
            parts += [f"{labels['no_cost']}: {unknown}"] * bool(unknown)
            self._line(f"{labels['judge']}: {', '.join(parts)}")

    def _groups(self, title: str, groups: Sequence[Group]) -> None:
        labels = self._labels
        self._heading(labels[title])
        if any(group.cost_saving_usd.n != group.n_total for group in groups):
            self._line(labels["n_note"])
        rows = [
            (
                group_name(group, title, labels),
                format_count(group.n_total),
                format_count(group.n_scored),
                format_share(group.scores["overall_poet_score"].mean),
                self._interval(group.scores["overall_poet_score"]),
                _with_n(format_usd(group.cost_saving_usd.total), group.cost_saving_usd.n, group.n_total),
            )
            for group in groups
        ]
        columns = ("n", "n_scored", "overall_poet_score", "interval", "saving_usd")
        self._table(["", *(labels[name] for name in columns)], rows)

    def _ranked(self, title: str, ranked: Sequence[Ranked]) -> None:
        if ranked:
            labels = self._labels
            self._heading(labels[title])
            rows = [
                (
                    format_line(report.task_id),
                    format_line(report.domain or labels["untold"]),
                    format_share(report.overall_poet_score),
                )
                for report in ranked
            ]
            self._table([labels[name] for name in ("task", "domain", "score")], rows)

    def _recommendations(self) -> None:
        report, labels = self._report, self._labels
        self._heading(labels["recommendations"])
        if not report.recommendations:
            self._line(
                labels["recommendations_none"].format(n=report.n_total - report.n_not_reached - len(report.lost))
            )
        for number, advice in enumerate(report.recommendations, start=1):
            self._line(f"{number}. {format_line(advice.text)}")
            self._line(f"   {labels['tasks']}: {self._named([format_line(task) for task in advice.task_ids])}")

    def _missing(self) -> None:
        report, labels = self._report, self._labels
        self._heading(labels["missing"])
        if not report.missing and not report.lost and report.n_scored:
            self._line(labels["missing_none"].format(n=report.n_scored))
        if not report.n_total:
            self._line(labels["missing_no_report"])
        for part, lacks in report.missing.items():
            self._line(f"{labels[f'missing_{part}']} (n = {len(lacks)})")
            for lack in lacks[:MOST_TASKS]:
                self._line(f"   {format_line(lack.task_id)}: {format_line(lack.reason)}")
            self._more(len(lacks))
        if report.lost:
            self._line(f"{labels['missing_lost']} (n = {len(report.lost)})")
            for text in report.lost[:MOST_TASKS]:
                self._line(f"   {format_line(text)}")
            self._more(len(report.lost))
        if report.n_not_reached:
            self._line(labels["missing_unreached"].format(n=report.n_not_reached))

    def _more(self, n: int) -> None:
        if n > MOST_TASKS:
            self._line(f"   {self._labels['more'].format(n=n - MOST_TASKS)}")

    def _named(self, tasks: Sequence[str]) -> str:
        names = ", ".join(tasks[:MOST_TASKS])
        if tasks[MOST_TASKS:]:
            return f"{names} {self._labels['more'].format(n=len(tasks) - MOST_TASKS)}"
        return names

    def _means(self, means: Iterable[tuple[str, Mean]]) -> None:
        labels = self._labels
        rows = [
            (
                labels[name],
                format_count(mean.n),
                format_share(mean.mean),
                self._interval(mean),
                format_share(mean.lowest),
                format_share(mean.highest),
            )
            for name, mean in means
        ]
        self._table(["", *(labels[name] for name in ("n", "mean", "interval", "lowest", "highest"))], rows)


def _with_n(text: str, n: int, of: int) -> str:
    """Return a figure with its n, if it differs from the n next to it."""
    if n == of:
        return text
    return f"{text} (n = {n})"


def group_name(group: Group, title: str, labels: Mapping[str, str]) -> str:
    """Return a group's name for people; `title` is the kind of groups."""
    if group.name is None:
        return labels["untold"]
    if title == "languages":
        return labels[group.name]
    return format_line(group.name)
