"""Merge the reports of shards, or of several sessions, into one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from math import fsum
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.comparison.comparing import add_column_comparisons
from pytest_agentbench.reports.gate import MIN_COMPLETION, Gate, apply_gate, case_failures, count_gated
from pytest_agentbench.reports.judges import family_warnings
from pytest_agentbench.reports.report import build_report, spent_of
from pytest_agentbench.reports.rows import Row

_OK, _FAILED = 0, 1
_FIGURE = re.compile(r"[0-9]")
_NAMED = 5


@dataclass(frozen=True)
class Part:
    """A report that keeps `report.schema.json`, and the name of its file."""

    name: str
    report: dict[str, Any]

    @property
    def session(self) -> dict[str, Any]:
        """Return the facts of the session; reports of older versions may lack some."""
        found: dict[str, Any] = self.report["session"]
        return found

    @property
    def runs(self) -> list[Row]:
        """Return its rows."""
        found: list[Row] = self.report["runs"]
        return found

    @cached_property
    def shard(self) -> tuple[int, int] | None:
        """Return which part of how many it is; None for a whole session's."""
        text = self.session.get("shard")
        if text is None:
            return None
        part, _, parts = text.partition("/")
        if int(part) > int(parts):
            raise ConfigError(f"{self.name}: session.shard: found {text!r}, expected I/N with I from 1 to N")
        return int(part), int(parts)

    @property
    def label(self) -> str:
        """Return a name that distinguishes the part from the others."""
        if self.shard is None:
            return self.name
        return f"shard {self.session['shard']}"

    @cached_property
    def selection(self) -> str | None:
        """Return the hash of the selected cases, which is equal for the shards of one session."""
        selection = self.session.get("selection")
        return None if selection is None else str(selection["sha256"])

    @cached_property
    def places(self) -> Sequence[int]:
        """Return the places of its runs among the runs of all shards."""
        selection = self.session.get("selection")
        if selection is None:  # the runs of a whole session are in order already
            return range(len(self.runs))
        places: Sequence[int] = selection["places"]
        if len(places) != len(self.runs):
            raise ConfigError(
                f"{self.name}: session.selection.places: found {len(places)} places, expected one for each of "
                f"{len(self.runs)} runs"
            )
        return places


def merge_reports(
    parts: Sequence[Part],
    *,
    partial: bool = False,
    fail_under: float | None = None,
    min_completion: float | None = None,
) -> dict[str, Any]:
    """Return the report over the runs of all `parts`, in the order of a single session.

    `fail_under` and `min_completion` default to the gates of the parts. Raises ConfigError for a run that two parts
    have, for shards that are missing unless `partial`, and for parts with different gates if no argument names one.
    """
    groups = _group_shards(parts)
    missing = [sentence for group in groups for sentence in _list_missing_shards(group)]
    if missing and not partial:
        raise ConfigError("\n".join([*missing, *_explain_missing(groups), "--partial merges the existing ones"]))
    rows = _join_rows(groups)
    lost = [sentence for group in groups for sentence in _list_missing_runs(group)]
    unlike = [sentence for group in groups for sentence in _list_unequal_inputs(group)]
    of_runs = {sentence for part in parts for sentence in family_warnings(part.runs)}
    report = build_report(rows, {}, _sum_spent(parts))
    report |= _join_variants(parts)
    add_column_comparisons(report)
    faults = _join_sentences(parts, "faults")
    if not partial:
        faults += lost
    fail_under = _find_agreed(parts, "fail_under", fail_under)
    min_completion = _find_agreed(parts, "min_completion", min_completion)
    counts = count_gated(rows)
    failures = [*case_failures(report["cases"]), *faults]
    if min_completion is None:
        min_completion = MIN_COMPLETION
    verdict = apply_gate(counts, fail_under, min_completion, failures)
    report["session"].update(
        _collect_facts(parts),
        exit_status=_decide_exit_status(parts, verdict, bool(lost) and not partial),
        gate=verdict.as_dict(),
        faults=faults,
        uncollected=_join_uncollected(parts),
        warnings=[*_join_sentences(parts, "warnings", of_runs), *missing, *lost, *unlike, *family_warnings(rows)],
    )
    return report


def _group_shards(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the shards of each session together, whole sessions alone."""
    groups: dict[object, list[Part]] = defaultdict(list)
    for part in parts:
        # By the selection and not by folder, because CI jobs store their reports in any layout.
        groups[part.selection if part.shard is not None else id(part)].append(part)
    return list(groups.values())


def _list_missing_shards(group: Sequence[Part]) -> Iterator[str]:
    """Yield a sentence for each missing shard of a session. Raises ConfigError if two parts are the same shard."""
    if group[0].shard is None:
        return
    if group[0].selection is None:
        yield from (f"{part.name}: its workers crashed, so the cases of {part.label} are unknown" for part in group)
        return
    there: dict[int, Part] = {}
    for part in group:
        assert part.shard is not None
        (number, parts), (_, expected) = part.shard, group[0].shard
        # A job that was started again brings its shard twice; adding both would count runs twice.
        other = there.setdefault(number, part)
        if parts != expected:
            raise ConfigError(f"{part.name}: found {part.label}, but {group[0].name} is {group[0].label} of the same")
        if other is not part:
            raise ConfigError(f"{part.name}: found {part.label}, which {other.name} is already")
    if lacking := expected - len(there):
        first = islice((number for number in range(1, expected + 1) if number not in there), _NAMED)
        missing = ", ".join(f"{number}/{expected}" for number in first)
        if lacking > _NAMED:
            missing += ", ..."
        yield f"{lacking} of {expected} shards are missing: {missing}"


def _explain_missing(groups: Sequence[Sequence[Part]]) -> Iterator[str]:
    """Yield why shards may be missing that are there."""
    sharded = [group[0] for group in groups if group[0].selection is not None]
    if len(sharded) > 1:
        parts = ", ".join(f"{part.name} ({part.session['selection']['runs']} runs)" for part in sharded[:_NAMED])
        yield f"These parts have different selections of cases, models or repetitions: {parts}"


def _join_rows(groups: Sequence[Sequence[Part]]) -> list[Row]:
    """Return all runs in order. Raises ConfigError for one that two parts have."""
    rows: list[Row] = []
    owners: dict[str, Part] = {}
    for group in groups:
        placed = [(place, row, part) for part in group for place, row in zip(part.places, part.runs, strict=True)]
        # A shard has runs from all over the session: laid end to end, shards are not in its order.
        placed.sort(key=lambda each: each[0])
        for _, row, part in placed:
            if (owner := owners.setdefault(row["nodeid"], part)) is not part:
                raise ConfigError(f"{part.name}: found a run of {row['nodeid']}, which {owner.name} has too")
            rows.append(row)
    return rows


def _list_missing_runs(group: Sequence[Part]) -> Iterator[str]:
    """Yield a sentence where shards that are all there have not all the runs."""
    selection = group[0].session.get("selection")
    runs = sum(len(part.runs) for part in group)
    if selection is not None and runs < selection["runs"]:
        yield f"{selection['runs'] - runs} of {selection['runs']} selected runs are in no report."


def _list_unequal_inputs(group: Sequence[Part]) -> Iterator[str]:
    """Yield a sentence if a session's shards had different case files or profiles, as far as they have hashes."""
    inputs = {(part.session.get("selection") or {}).get("inputs"): part for part in reversed(group)}
    inputs.pop(None, None)  # a session without a selection has no inputs to compare
    if len(inputs) > 1:
        parts = " and ".join(f"{part.label} ({part.name})" for part in reversed(inputs.values()))
        yield f"case files or profiles of {parts} differ"


def _join_variants(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the variants of all parts. Raises ConfigError for a name with two effects."""
    variants: dict[str, Any] = {}
    for part in parts:
        for name, entry in part.report.get("variants", {}).items():
            if variants.setdefault(name, entry)["digest"] != entry["digest"]:
                raise ConfigError(
                    f"{part.name}: variants.{name}: found another effect than in the reports before, expected the same "
                    "in all parts; run the parts again with one declaration"
                )
    references = [part.report["reference_variant"] for part in parts if "reference_variant" in part.report]
    if references:
        return {"variants": variants, "reference_variant": references[0]}
    return {}


def _sum_spent(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the cost of all sessions; None: one is unknown. `at_least`, if a part has it, sums the known costs."""
    spent = _sum_known([part.report["totals"].get("spent_usd") or {} for part in parts])
    all_known = [(spent_of(part.report["totals"]) or {}) for part in parts]
    if not any("at_least" in each for each in all_known):
        return spent
    return {**spent, "at_least": _sum_known([each.get("at_least", each) for each in all_known])}


def _sum_known(parts: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    roles = sorted({name for each in parts for name in each} - {"run", "judge", "at_least"})
    columns = {name: [usd for each in parts if (usd := each.get(name)) is not None] for name in ("run", "judge")}
    # A session without the role has paid nothing for it
    columns |= {role: [usd for each in parts if (usd := each.get(role, 0.0)) is not None] for role in roles}
    # fsum, so that the sum does not depend on the order of the parts.
    return {name: fsum(column) if len(column) == len(parts) else None for name, column in columns.items()}


def _join_sentences(parts: Sequence[Part], key: str, without: Collection[str] = ()) -> list[str]:
    """Return the sentences of all parts except those in `without`. Sentences that not all parts have get the part's
    name.

    A warning with a number, such as `2 runs were not started`, always gets it: the number is that of one part.
    """
    sayers: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        for sentence in dict.fromkeys(part.session.get(key, ())):
            if sentence not in without:
                sayers[sentence].append(part)
    sentences: list[str] = []
    for sentence, by in sayers.items():
        # Without a name it would look like the number of the whole session.
        alone = len(by) < len(parts) or (len(parts) > 1 and key == "warnings" and _FIGURE.search(sentence))
        if alone:
            sentences += [f"{part.label}: {sentence}" for part in by]
        else:
            sentences.append(sentence)
    return sentences


def _join_uncollected(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the files that could not be read, once each: every shard collects all files."""
    problems: list[dict[str, Any]] = []
    for problem in (problem for part in parts for problem in part.session.get("uncollected", ())):
        if problem not in problems:
            problems.append(problem)
    return problems


def _find_agreed(parts: Sequence[Part], key: str, chosen: float | None) -> float | None:
    if chosen is not None:
        return chosen
    # Different gates cannot be merged: the caller has to choose one.
    gates = {gate: part.name for part in parts if (gate := part.session["gate"][key]) is not None}
    if len(gates) > 1:
        found = ", ".join(f"{gate:g} ({name})" for gate, name in gates.items())
        raise ConfigError(f"session.gate.{key}: found {found}, expected one; name it with --{key.replace('_', '-')}")
    return next(iter(gates), None)


def _decide_exit_status(parts: Sequence[Part], verdict: Gate, lost: bool) -> int:
    """Return the exit status of a single session: the gate's, or pytest's own without a gate."""
    statuses: list[int | None] = [part.session["exit_status"] for part in parts]
    # Interrupts and usage errors outrank a verdict: such a session did not finish.
    broken = [status for status in statuses if status is not None and status not in (_OK, _FAILED)]
    if broken:
        return max(broken)
    if verdict.passed is not None:
        if verdict.passed:
            return _OK
        return _FAILED
    if lost or any(status != _OK for status in statuses):
        return _FAILED
    return _OK


def _collect_facts(parts: Sequence[Part]) -> dict[str, Any]:
    # Shards run side by side, so the time is from the first start to the last end, and no sum.
    starts = [start for part in parts if (start := _read_start(part)) is not None]
    ends = [
        start + timedelta(seconds=part.session["duration_seconds"] or 0)
        for part in parts
        if (start := _read_start(part)) is not None
    ]
    began = seconds = None
    if starts:
        began, seconds = min(starts).isoformat(), round((max(ends) - min(starts)).total_seconds(), 3)
    projects = {part.session.get("project") for part in parts}
    fields = ("shard", "started_at", "duration_seconds", "exit_status", "command")
    return {
        "started_at": began,
        "duration_seconds": seconds,
        "project": projects.pop() if len(projects) == 1 else None,
        "command": ["merge", *(part.name for part in parts)],
        "versions": _join_names(parts, "versions"),
        "profiles": _join_names(parts, "profiles"),
        "merged": [{"report": part.name, **{key: part.session.get(key) for key in fields}} for part in parts],
    }


def _read_start(part: Part) -> datetime | None:
    text = part.session["started_at"]
    try:
        if text is None:
            return None
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigError(f"{part.name}: session.started_at: found {text!r}, expected a time in ISO 8601") from None


def _join_names(parts: Sequence[Part], key: str) -> dict[str, str | None]:
    """Return the names by kind; where parts differ all of them, separated by commas."""
    names_by_kind: dict[str, dict[str, None]] = defaultdict(dict)
    for part in parts:
        for kind, name in part.session[key].items():
            names = names_by_kind[kind]  # made also without a name
            if name is not None:
                names[name] = None
    return {kind: ", ".join(names) or None for kind, names in names_by_kind.items()}


def read_report(path: Path) -> Part:
    """Return a report.json with its name. Raises ConfigError for other files and for reports of other versions."""
    from pytest_agentbench.reports.reading import read_report

    return Part(str(path), read_report(path))
