"""Use of skills in report.json and on the terminal: in all runs, and in cases that should and should not use them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.reports.table import column_of, format_percent
from pytest_agentbench.statistics.estimates import mean, pair, pass_rate_interval
from pytest_agentbench.terminal_text import count_text, sendable, visible_line

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.records.run import RunArtifact
    from pytest_agentbench.records.skill_uses import SkillUse

Row = Mapping[str, Any]


def skill_row(case: Case, artifact: RunArtifact) -> dict[str, Any]:
    """Return `skills` of a run's row, its use of each skill, and `skill`, whether the case should use one."""
    from pytest_agentbench.records.skill_uses import is_trigger_case, read_skill_uses

    uses = {sendable(name): _describe_use(use) for name, use in read_skill_uses(artifact).items()}
    row: dict[str, Any] = {"skills": uses}
    if case.skill is not None:
        row["skill"] = {"name": sendable(case.skill.name), "should_trigger": case.skill.should_trigger}
        if is_trigger_case(case):
            row["skill"]["decides"] = True
    return row


def _describe_use(use: SkillUse) -> dict[str, Any]:
    described = {"listed": use.listed, "attempted": use.attempted, "loaded": use.loaded}
    if use.explicit:
        described["explicit"] = True
    return described


def skill_entries(groups: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Return `skills` of a model's entry, or {} if no run had a skill; `groups` are its rows, case by case."""
    names = dict.fromkeys(name for group in groups for row in group for name in row.get("skills") or ())
    if not names:
        return {}
    return {"skills": {name: _count_uses(name, groups) for name in names}}


def _count_uses(name: str, groups: Sequence[Sequence[Row]]) -> dict[str, Any]:
    runs = [row for group in groups for row in group if name in (row.get("skills") or ())]
    wanted, unwanted = (_find_rate(name, groups, should_trigger=should) for should in (True, False))
    uses = [row for row in runs if _is_used(row, name) and _should_trigger(row, name) is not None]
    entry: dict[str, Any] = {
        "runs": len(runs),
        "listed": sum(bool(row["skills"][name]["listed"]) for row in runs),
        "used": sum(_is_used(row, name) for row in runs),
        "should_trigger": wanted,
        "should_not_trigger": unwanted,
        "precision": mean([float(_should_trigger(row, name) is True) for row in uses]),
    }
    if explicit := sum("explicit" in row["skills"][name] for row in runs):
        entry["explicit"] = explicit
    return entry


def _find_rate(name: str, groups: Sequence[Sequence[Row]], *, should_trigger: bool) -> dict[str, Any] | None:
    """Return the trigger rate in the cases with this expectation, None without such a case."""
    counts = []
    for group in groups:
        rows = [row for row in group if name in (row.get("skills") or ())]
        if rows and _should_trigger(rows[0], name) is should_trigger:
            counts.append((sum(_is_used(row, name) for row in rows), len(rows)))
    if not counts:
        return None
    return {
        "cases": len(counts),
        "runs": sum(runs for _, runs in counts),
        "used": sum(used for used, _ in counts),
        "rate": mean([used / runs for used, runs in counts]),
        "ci95": pair(pass_rate_interval(counts)),
    }


def _is_used(row: Row, name: str) -> bool:
    return bool(row["skills"][name]["loaded"])


def _should_trigger(row: Row, name: str) -> bool | None:
    """Return whether the row's case should use the skill, None if it has no expectation for it."""
    expected = row.get("skill") or {}
    return expected["should_trigger"] if expected.get("name") == name else None


def skill_lines(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each model and skill."""
    for model in models:
        for name, entry in (model.get("skills") or {}).items():
            parts = [
                _describe_rate(entry[key], label)
                for key, label in (("should_trigger", "should"), ("should_not_trigger", "should not"))
                if entry[key] is not None
            ]
            text = ", ".join(parts) or f"used in {entry['used']:,} of {count_text(entry['runs'], 'run')}"
            if "explicit" in entry:
                text += f", called for by the user in {count_text(entry['explicit'], 'run')}"
            yield f"{visible_line(column_of(model))}: {visible_line(name)} {text}"


def _describe_rate(rate: Mapping[str, Any], label: str) -> str:
    text = f"used in {format_percent(rate['rate'])} of {count_text(rate['cases'], 'case')} that {label} use it"
    if rate["ci95"] is None:
        return text
    low, high = (format_percent(value) for value in rate["ci95"])
    return f"{text} (95 % interval {low} to {high})"
