"""Find why a case's outcome differs between two reports: five causes, each with its evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pytest_agentbench.bounded.folders import lies_below
from pytest_agentbench.cli.output import Difference, find_differences
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records.run import EndReason, RunArtifact
from pytest_agentbench.reports.gate import Counts, has_verdict
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.texts import HEAD
from pytest_agentbench.statistics.estimates import flakiness
from pytest_agentbench.statistics.paired import fisher
from pytest_agentbench.store.artifacts import name_superseded
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.documents import load_run
from pytest_agentbench.store.output_folder import PROFILE_FILE

Cause = Literal["provider", "agent", "case", "judge", "chance"]
CAUSES: dict[Cause, str] = {
    "provider": "the provider or the infrastructure",
    "agent": "the agent, its model or its settings changed",
    "case": "the case file changed",
    "judge": "the judge or the evaluation profile",
    "chance": "chance: nothing that is recorded changed",
}
"""The causes, in the order in which they are named."""

_PROVIDER_ENDS: frozenset[EndReason] = frozenset(
    {"filtered", "provider_error", "aborted", "rejected", "authentication", "quota", "unsupported", "interrupted"}
)
"""Ends of runs that a provider decides and not the agent."""
_CASE_PARTS = frozenset({"case_id", "messages", "turns", "attachments", "context", "tools", "parts"})
_CASE_EXTRAS = frozenset({"workspace", "metadata"})
"""Parts of a run's fingerprint, and of its `extra`, that the case file decides. All others belong to the agent."""
FEWEST_RUNS = 4
"""Minimum verdicts for an estimate of how often a case flips."""


@dataclass(frozen=True)
class Evidence:
    """A fact about both sides in a sentence, and the changed fields if these are known.

    `cause` is None for a fact that decides nothing. `stage` is the part of the work that the fact can have changed: the
    run, or only the verdict on it.
    """

    cause: Cause | None
    text: str
    stage: Literal["run", "verdict"] = "run"
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Chance:
    """The rate at which the case flips with nothing changed, over `judged` verdicts, of which `passed` passed.

    The verdicts are those of A, of earlier sessions with A's fingerprints and checks, and, if nothing changed, of B.
    `flip_rate` is the chance that two runs differ, None with fewer than FEWEST_RUNS verdicts. `p_value` is Fisher's for
    both sides, None if one of them has a single verdict.
    """

    passed: int
    judged: int
    flip_rate: float | None
    p_value: float | None


@dataclass(frozen=True)
class Side:
    """The runs of one case on one model in one report.

    `output` is the folder of its store. `earlier` are the outcomes of other sessions' runs with the same fingerprints
    and checks.
    """

    label: str
    column: str
    output: Path
    rows: tuple[Row, ...]
    earlier: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> Counts:
        """Return the number of its runs by outcome."""
        return Counts.of(row["outcome"] for row in self.rows)


@dataclass(frozen=True)
class Explanation:
    """The causes of a difference between two sides' outcomes. `causes` is empty if it does not differ."""

    a: Side
    b: Side
    causes: tuple[Cause, ...]
    evidence: tuple[Evidence, ...]
    chance: Chance


def explain(a: Side, b: Side) -> Explanation:
    """Return why the case's outcome differs between two sides.

    A pair of runs with different outcomes is compared, of the same repetition if possible. A run without a verdict has
    the provider or the infrastructure as its cause. On the same answer, only changes of the verdict's inputs count.
    Without any change, the cause is the judge if it judged the same answer twice, else chance.
    """
    pair = _choose_pair(a, b)
    if pair is None:
        return Explanation(a, b, (), (), _measure_chance(a, b, is_changed=False))
    one, other = pair
    evidence = [*_provider_evidence(one, other), *_run_evidence(one, other), *_verdict_evidence(one, other)]
    if not (has_verdict(one.row) and has_verdict(other.row)):
        return Explanation(a, b, ("provider",), tuple(evidence), _measure_chance(a, b, is_changed=True))
    answer = _describe_same_answer(one, other)
    if answer is not None:
        evidence.insert(0, Evidence(None, answer))
    counted = [each for each in evidence if answer is None or each.stage == "verdict"]
    found = {each.cause for each in counted}
    causes = tuple(cause for cause in CAUSES if cause in found)
    if not causes and answer is not None and (one.row.get("judged") or other.row.get("judged")):
        evidence.append(Evidence("judge", "the judge decided otherwise on this answer", "verdict"))
        causes = ("judge",)
    chance = _measure_chance(a, b, is_changed=bool(causes))
    return Explanation(a, b, causes or ("chance",), tuple(evidence), chance)


@dataclass(frozen=True)
class _Run:
    """A run of a side, with its stored parts. `name` is A or B."""

    name: str
    row: Row
    output: Path

    @cached_property
    def stored(self) -> tuple[str, RunArtifact] | None:
        """Return path and record of the stored run with this row's fingerprint, or None.

        A later run of the same fingerprint may have replaced the run itself.
        """
        path, fingerprint = self.row.get("artifact"), self.row["fingerprint"]
        if path is None or fingerprint is None or not lies_below(str(self.output), path):
            return None
        folder = path.rpartition("/")[0]
        displaced = f"{folder}/run_{name_superseded(self.row['repetition'], fingerprint)}.json"
        for candidate in (path, displaced):
            try:
                artifact = load_run(self.output, candidate)
            except InfrastructureError:
                continue
            if artifact.fingerprint == fingerprint:
                return candidate, artifact
        return None

    @cached_property
    def inputs(self) -> Mapping[str, Any] | None:
        """Return the stored input of the run's fingerprint without its repetition, or None."""
        if self.stored is None:
            return None
        covered = self._read(f"{self.stored[0].removesuffix('.json')}.fingerprint_input.json")
        if covered is None:
            return None
        return {name: part for name, part in covered.items() if name != "repetition"}

    def profile(self, member: Literal["artifact", "evaluation"]) -> str | None:
        """Return the folder of the run profile of the run, or of the evaluation profile of its evaluation."""
        path = self.row.get(member)
        if path is None:
            return None
        return str(path).rsplit("/", 3)[0]

    def settings(self, profile: str) -> Any:
        """Return the stored settings of a profile's folder, or None."""
        if not lies_below(str(self.output), profile):
            return None
        return (self._read(f"{profile}/{PROFILE_FILE}") or {}).get("input")

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            document = json.loads(open_documents(self.output).read(path) or b"null")
        except (OSError, ValueError, RecursionError):
            return None
        if isinstance(document, dict):
            return document
        return None


def _choose_pair(a: Side, b: Side) -> tuple[_Run, _Run] | None:
    """Return two runs with different outcomes, or None if the sides' outcomes do not differ."""
    if a.counts.pass_rate == b.counts.pass_rate and not (a.counts.errors or b.counts.errors):
        return None
    pairs = [(one, other) for one in a.rows for other in b.rows if one["outcome"] != other["outcome"]]
    if not pairs:
        return None
    # Runs with a verdict first: an error of one repetition does not explain a failure of another one
    one, other = min(
        pairs, key=lambda pair: (not all(map(has_verdict, pair)), pair[0]["repetition"] != pair[1]["repetition"])
    )
    return _Run("A", one, a.output), _Run("B", other, b.output)


def _measure_chance(a: Side, b: Side, *, is_changed: bool) -> Chance:
    one, other = a.counts, b.counts
    groups = [one, Counts.of(a.earlier)] + ([] if is_changed else [other])
    passed, judged = sum(group.passed for group in groups), sum(group.judged for group in groups)
    repeated = min(one.judged, other.judged) > 1
    return Chance(
        passed,
        judged,
        flip_rate=flakiness(judged, passed) if judged >= FEWEST_RUNS else None,
        p_value=fisher((one.passed, one.failed), (other.passed, other.failed)) if repeated else None,
    )


def _provider_evidence(one: _Run, other: _Run) -> Iterator[Evidence]:
    for run in (one, other):
        row = run.row
        if not has_verdict(row):
            reason = (row["message"] or row["status"] or "no reason is known").partition("\n")[0]
            yield Evidence("provider", f"{run.name} has no verdict ({row['outcome']}): {reason}")
    ends = [run.row["end_reason"] for run in (one, other)]
    if ends[0] != ends[1]:
        by_provider = bool(_PROVIDER_ENDS.intersection(ends))
        text = f"the run ended as {ends[0] or 'unknown'} in A and as {ends[1] or 'unknown'} in B"
        yield Evidence("provider" if by_provider else None, text)
    served = [run.row.get("served") for run in (one, other)]
    if served[0] != served[1]:
        differences = tuple(find_differences({"served": served[0] or {}}, {"served": served[1] or {}}))
        yield Evidence("provider", "another version of the model answered", differences=differences)
    adapted = [run.row.get("adapted") or [] for run in (one, other)]
    if adapted[0] != adapted[1]:
        differences = tuple(find_differences({"adapted": adapted[0]}, {"adapted": adapted[1]}))
        yield Evidence("provider", "the endpoint refused other parts of the requests", differences=differences)
    for run in (one, other):
        if retries := run.row.get("retries"):
            yield Evidence(None, f"{run.name} repeated {retries} requests after errors")


def _run_evidence(one: _Run, other: _Run) -> Iterator[Evidence]:
    """Yield changes of the inputs of the run: case file, agent, model, settings."""
    yield from _profile_evidence(one, other, "artifact", Evidence("agent", "the run profile changed"))
    prints = one.row["fingerprint"], other.row["fingerprint"]
    if None in prints or prints[0] == prints[1]:
        return
    if one.inputs is None or other.inputs is None:
        for cause in ("agent", "case"):
            yield Evidence(cause, "the fingerprints differ, but the store no longer has what they cover")
        return
    owners: dict[Cause, list[Difference]] = {"agent": [], "case": []}
    for difference in find_differences(one.inputs, other.inputs):
        owners[_find_owner(difference.path)].append(difference)
    texts: dict[Cause, str] = {
        "agent": "the agent's part of the fingerprint changed",
        "case": "the input of the case changed",
    }
    for cause, differences in owners.items():
        if differences:
            yield Evidence(cause, texts[cause], differences=tuple(differences))
    if not any(owners.values()) and one.row["repetition"] == other.row["repetition"]:
        yield Evidence("agent", "the fingerprints differ in a secret, which is not stored")


def _find_owner(path: str) -> Cause:
    root, _, rest = path.partition(".")
    part = rest.partition(".")[0] if root == "extra" else None
    if root.partition("[")[0] in _CASE_PARTS or part in _CASE_EXTRAS:
        return "case"
    return "agent"


def _verdict_evidence(one: _Run, other: _Run) -> Iterator[Evidence]:
    """Yield changes of the inputs of the verdict: judges, evaluation profile, rubric, checks, reference."""
    runs = (one, other)
    judges, rubrics = ([_list_hashes(run.row, member) for run in runs] for member in ("judge", "rubric"))
    changed = judges[0] != judges[1] and all(judges)
    profile = [*_profile_evidence(*runs, "evaluation", Evidence("judge", "the evaluation profile changed", "verdict"))]
    yield from profile
    if changed and not profile:
        models = [sorted({name for verdict in run.row["judged"] for name in verdict["models"]}) for run in runs]
        differences = tuple(find_differences({"judge_models": models[0]}, {"judge_models": models[1]}))
        yield Evidence("judge", "the judge changed", "verdict", differences)
    if rubrics[0] != rubrics[1] and all(rubrics):
        yield Evidence("case", "the rubric, expectations, reference answer or title changed", "verdict")
        return
    measures = [run.row.get("measure") for run in runs]
    if None not in measures and measures[0] != measures[1]:
        differences = _find_changed_checks(one.row, other.row)
        # A changed judge or profile changes the measure too, and a profile may add metrics
        if not (profile or changed) or any(each.path.partition(".")[0] != "metrics" for each in differences):
            text = "the case's checks, metrics, expectations or reference answer changed"
            yield Evidence("case", text, "verdict", differences)


def _list_hashes(row: Row, member: str) -> set[tuple[str, str]]:
    return {(verdict["by"], verdict[member]) for verdict in row.get("judged", ())}


def _find_changed_checks(one: Row, other: Row) -> tuple[Difference, ...]:
    sides = [
        {
            "expected": row.get("expected"),
            "checks": {check["check_id"]: check["kind"] for check in row["checks"]},
            "metrics": dict.fromkeys(sorted(row["metrics"])),
        }
        for row in (one, other)
    ]
    return tuple(find_differences(*sides))


def _profile_evidence(
    one: _Run, other: _Run, member: Literal["artifact", "evaluation"], evidence: Evidence
) -> Iterator[Evidence]:
    """Yield the evidence with the changed settings if the profiles of both runs differ."""
    folders = one.profile(member), other.profile(member)
    if folders[0] is None or folders[1] is None or _is_same_profile(folders[0], folders[1]):
        return
    settings = one.settings(folders[0]), other.settings(folders[1])
    differences = () if None in settings else tuple(find_differences(*settings))
    yield Evidence(evidence.cause, evidence.text, evidence.stage, differences)


def _is_same_profile(one: str, other: str) -> bool:
    """Return whether two profiles' folders end with the same fingerprint, of which one may have more digits."""
    digits, more = sorted((folder.rpartition("_")[2] for folder in (one, other)), key=len)
    return more.startswith(digits)


def _describe_same_answer(one: _Run, other: _Run) -> str | None:
    """Return in which way both verdicts are on the same answer, or None if the answers differ or may differ."""
    a, b = one.row, other.row
    if a.get("run_id") is not None and a.get("run_id") == b.get("run_id"):
        return "both verdicts are on the same run"
    if (a["reused"] or b["reused"]) and a["fingerprint"] == b["fingerprint"] and a["fingerprint"] is not None:
        return "both verdicts are on the same stored run"
    answer = a.get("answer")
    if not answer or answer != b.get("answer") or len(answer) >= HEAD:
        return None
    # Checks may read tool calls; a judge that alone decides otherwise shows that the answer did not
    if not (a.get("judged") and b.get("judged")) or _list_outcomes(a) != _list_outcomes(b):
        return None
    # Files of a workspace are a part of the answer, and the text alone does not show that they are the same
    if any(run.stored is not None and run.stored[1].workspace is not None for run in (one, other)):
        return None
    return "both runs gave the same answer"


def _list_outcomes(row: Row) -> list[tuple[str, str]]:
    return [(check["check_id"], check["outcome"]) for check in row["checks"]]


def describe_chance(chance: Chance) -> Sequence[str]:
    """Return sentences on how likely the difference is by chance alone."""
    sentences = []
    if chance.flip_rate is None:
        sentences.append(
            "How often the case flips with nothing changed is unknown: run it several times "
            "(--agentbench-repetitions 5 --agentbench-no-reuse)."
        )
    else:
        sentences.append(
            f"With nothing changed, two runs of it differ with a probability of {chance.flip_rate:.2f}: "
            f"{chance.passed} of {chance.judged} passed."
        )
    if chance.p_value is not None:
        sentences.append(f"Chance alone makes such a difference with p = {chance.p_value:.2g} (Fisher's exact test).")
        if chance.p_value <= 0.05:
            sentences.append("That is unlikely: look for a change that is not recorded, such as data of a server.")
    return sentences
