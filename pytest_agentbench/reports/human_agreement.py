"""`human.jsonl`: labels by people, and the agreement of judges with them (report.json's `human`)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from pytest_agentbench.bounded.json_files import read_items
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record, Text
from pytest_agentbench.reports.gate import CaseKey, case_key
from pytest_agentbench.sources.predictions import field_problem, refuse_file, valid_items
from pytest_agentbench.statistics.agreement import (
    Table,
    Verdicts,
    kappa_interval,
    krippendorff_alpha,
    rank_correlation,
    weighted_kappa,
)
from pytest_agentbench.statistics.estimates import mean, mean_of, pair, pass_rate_interval

# `human.jsonl` has one line for each annotator and run, bound to the judge and the rubric. `agentbench
# review` writes it; report.json's `human` is computed from it.


class Label(Record):
    """Label that one annotator gave one run.

    `judges` maps each judge of the run (`judge`, or a metric's name) to its hash; `rubric` is the hash of the run's
    measure, both as in report.json: {} and None if no model judged the run. `score` is 0-10, as judges score. `blind`
    is False if the annotator saw the verdict and the model, as on the page.
    """

    schema_version: Literal[1] = 1
    annotator: Text
    nodeid: Text
    run_id: Text
    rubric: Text | None
    judges: dict[str, Text]
    verdict: Literal["passed", "failed"]
    score: Annotated[float, Field(strict=True, ge=0, le=10)] | None = None
    comment: str | None = None
    blind: bool = True
    at: AwareDatetime

    @property
    def line(self) -> str:
        """Return the label as a line of the file."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False) + "\n"

    def is_of(self, judged: Mapping[str, Any]) -> bool:
        """Return whether it was given for this judge and rubric; `judged` is an entry of a row's `judged`."""
        return (self.rubric, self.judges.get(judged["by"])) == (judged["rubric"], judged["judge"])


def read_labels(path: Path) -> list[Label]:
    """Return all labels in order.

    Raises ConfigError with up to 20 problems of the file, `file:line:column: ...` each.
    """
    labels: list[Label] = []
    problems: list[str] = []
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is not a file")
    for item in valid_items(path, read_items(path), problems):
        try:
            labels.append(Label.model_validate_json(json.dumps(item.value)))
        except ValidationError as error:
            problems += [f"{path}:{item.line}:1: {sentence}" for sentence in _describe_problems(item.value, error)]
    if problems:
        refuse_file(path, problems)
    return labels


def _describe_problems(value: object, error: ValidationError) -> list[str]:
    if isinstance(value, dict) and {"pipeline", "agreement"} <= value.keys():
        return [
            "found a rating for `agentbench mcp ablation`, expected a label of `agentbench review`; "
            "keep them in separate files"
        ]
    problems = error.errors(include_url=False, include_context=False)
    return [field_problem({**problem, "loc": problem["loc"] or ("line",)}) for problem in problems]


Report = dict[str, Any]
Said = dict[str, list[Label]]
"""All labels by run, in order of time, blind ones last."""


@dataclass(slots=True)
class _PeopleVerdict:
    """Opinions of people on a run that a judge judged."""

    row: Mapping[str, Any]
    judged: Mapping[str, Any]
    labels: list[Label]

    @property
    def passed(self) -> bool | None:
        """Return the majority's verdict, or None for a tie."""
        passed = sum(label.verdict == "passed" for label in self.labels)
        failed = len(self.labels) - passed
        if passed == failed:
            return None
        return passed > failed

    @property
    def score(self) -> float | None:
        """Return the mean of the annotators' scores, or None if there is no score."""
        scores = [label.score for label in self.labels if label.score is not None]
        return mean(scores)


@dataclass(slots=True)
class _LabelledJudge:
    """Runs that one judge judged and people have labelled for it."""

    by: str
    judge: str
    models: set[str] = field(default_factory=set)
    runs: int = 0
    stale: int = 0
    opinions: list[_PeopleVerdict] = field(default_factory=list)


def measure_agreement(report: Mapping[str, Any], labels: Sequence[Label], file: str) -> dict[str, Any] | None:
    """Return how the labels of `file` agree with the judges of a report, or None if there are no labels.

    A label counts if its run is in the report and has the label's judge and rubric. If an annotator labelled a run
    several times for one judge, the latest label counts, of the blind ones if there are any. `labels` is the number of
    counted and omitted labels, `not_blind` of the counted ones that were given with the verdict in sight.
    """
    if not labels:
        return None
    rows = {row["run_id"]: row for row in report["runs"] if row.get("judged") and row.get("run_id")}
    labels_by_run: Said = defaultdict(list)
    # By time, so that the latest of an annotator overwrites those before; a blind label outranks one that is not.
    for label in sorted(labels, key=lambda each: (each.blind, each.at)):
        labels_by_run[label.run_id].append(label)
    counted = [_counted_labels(row, labels_by_run[run_id]) for run_id, row in rows.items() if run_id in labels_by_run]
    all_counted = [label for of_run in counted for label in of_run]
    return {
        "file": file,
        "labels": len(labels),
        "counted": len(all_counted),
        "not_blind": sum(not label.blind for label in all_counted),
        "left_out": _count_left_out(rows, labels_by_run, len(all_counted)),
        "annotators": dict(sorted(Counter(label.annotator for label in all_counted).items())),
        "between_annotators": _between_annotators(counted),
        "judges": [_agreement(judge) for judge in _labelled_judges(rows, labels_by_run)],
    }


def _counted_labels(row: Mapping[str, Any], labels: Sequence[Label]) -> list[Label]:
    """Return the labels of a run that count for any of its judges."""
    # By identity: two labels may be equal, and one that counts for two judges is one label
    latest = {id(label) for judged in row["judged"] for label in _latest_labels(judged, labels).values()}
    return [label for label in labels if id(label) in latest]


def _latest_labels(judged: Mapping[str, Any], labels: Sequence[Label]) -> dict[str, Label]:
    """Return the latest label of each annotator for a run and judge; `labels` are in order of time."""
    return {label.annotator: label for label in labels if label.is_of(judged)}


def _count_left_out(rows: Mapping[str, Mapping[str, Any]], labels_by_run: Said, counted: int) -> dict[str, int]:
    """Count the labels that do not count, by reason."""
    counts = dict.fromkeys(("other_run", "other_judge", "other_rubric", "superseded"), 0)
    for run_id, labels in labels_by_run.items():
        for label in labels:
            counts[_why_left_out(label, rows.get(run_id))] += 1
    # All labels of the right run, judge and rubric were counted as superseded so far, those that count among them.
    counts["superseded"] -= counted
    return counts


def _why_left_out(label: Label, row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "other_run"
    if any(map(label.is_of, row["judged"])):
        return "superseded"
    if any(label.rubric == judged["rubric"] for judged in row["judged"]):
        return "other_judge"
    return "other_rubric"


def _labelled_judges(rows: Mapping[str, Mapping[str, Any]], labels_by_run: Said) -> list[_LabelledJudge]:
    """Return the judges of the report in its order, with people's opinions."""
    judges: dict[tuple[str, str], _LabelledJudge] = {}
    for run_id, row in rows.items():
        labels = labels_by_run.get(run_id, [])
        for judged in row["judged"]:
            key = judged["by"], judged["judge"]
            judge = judges.setdefault(key, _LabelledJudge(*key))
            judge.models.update(judged["models"])
            judge.runs += 1
            judge.stale += sum(not label.is_of(judged) for label in labels)
            if latest := _latest_labels(judged, labels):
                judge.opinions.append(_PeopleVerdict(row, judged, list(latest.values())))
    return list(judges.values())


def _agreement(judge: _LabelledJudge) -> dict[str, Any]:
    by_case: dict[CaseKey, list[Verdicts]] = defaultdict(list)
    disagreements = []
    for opinion in judge.opinions:
        # A tie between annotators has no verdict to compare with the judge's.
        if (people := opinion.passed) is not None:
            by_case[case_key(opinion.row)].append(Verdicts(people, opinion.judged["passed"]))
            disagreements += [opinion.row["nodeid"]] * (people != opinion.judged["passed"])
    groups = list(by_case.values())
    table = Table.of([verdicts for group in groups for verdicts in group])
    n = table.n
    return {
        "by": judge.by,
        "judge": judge.judge,
        "models": sorted(judge.models),
        "runs": judge.runs,
        "labelled": len(judge.opinions),
        "tied": len(judge.opinions) - n,
        "stale": judge.stale,
        "n": n,
        "both_passed": table.both_passed,
        "both_failed": table.both_failed,
        "only_people_passed": table.only_people_passed,
        "only_judge_passed": table.only_judge_passed,
        "agreement": _share(table.agreed, n),
        "agreement_ci95": pair(pass_rate_interval([(sum(a == b for a, b in group), len(group)) for group in groups])),
        "kappa": table.kappa,
        "kappa_ci95": pair(kappa_interval(groups)),
        "kappa_undefined": _why_undefined(table),
        "pass_rate": {
            "people": _share(table.people_passed, n),
            "judge": _share(table.judge_passed, n),
        },
        "prevalence_index": table.prevalence_index,
        "bias_index": table.bias_index,
        "pabak": table.pabak,
        "scores": _score_agreement(judge.opinions),
        "disagreements": disagreements,
    }


def _share(count: int, n: int) -> float | None:
    if n:
        return count / n
    return None


def _why_undefined(table: Table) -> str | None:
    if table.kappa is not None:
        return None
    if not table.n:
        return "no run has a label that counts"
    verdict = "passed" if table.people_passed else "failed"
    return f"people and the judge {verdict} every run, so chance alone would agree as often"


def _score_agreement(opinions: Sequence[_PeopleVerdict]) -> dict[str, Any] | None:
    """Return the agreement of scores (0-10), or None if the judge or the annotators gave none."""
    both = [(opinion.score, opinion.judged["score"]) for opinion in opinions]
    pairs = [(people, judge) for people, judge in both if people is not None and judge is not None]
    if not pairs:
        return None
    people, judge = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {
        "n": len(pairs),
        "weighted_kappa": weighted_kappa(people, judge),
        "spearman": rank_correlation(people, judge),
        "mean_people": mean_of(people),
        "mean_judge": mean_of(judge),
    }


def _between_annotators(labels_by_run: Sequence[Sequence[Label]]) -> dict[str, Any] | None:
    """Return the agreement between annotators over runs that several have labelled, or None without such runs."""
    of_runs = [{label.annotator: label for label in labels} for labels in labels_by_run]
    shared = [by_annotator for by_annotator in of_runs if len(by_annotator) > 1]
    if not shared:
        return None
    verdicts = [[float(label.verdict == "passed") for label in labels_of_run.values()] for labels_of_run in shared]
    scores = [[label.score for label in labels_of_run.values() if label.score is not None] for labels_of_run in shared]
    return {
        "runs": len(shared),
        "annotators": len({name for labels_of_run in shared for name in labels_of_run}),
        "alpha_verdicts": krippendorff_alpha(verdicts),
        "alpha_scores": krippendorff_alpha(scores),
    }
