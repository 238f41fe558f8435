"""Graders: what decides a run beside its checks, metrics and judges. Packs and plugins add them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import JudgeResult, MetricResult
from pytest_agentbench.records.run import RunArtifact

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile
    from pytest_agentbench.engine.grading_services import GradingServices
    from pytest_agentbench.engine.job import Job
    from pytest_agentbench.judging.prompt import Assessment
    from pytest_agentbench.models.tape import Tape
    from pytest_agentbench.records.base import Record


@dataclass(frozen=True, eq=False, slots=True)
class GradeRequest:
    """A finished run to grade, with what its metrics and judges said; `judged` is None where no judge was asked.

    `tape` is the run's cassette, through which models are asked where there is one.
    """

    services: GradingServices
    job: Job
    case: Case
    artifact: RunArtifact
    metrics: Sequence[MetricResult]
    judged: JudgeResult | None = None
    tape: Tape | None = None


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader came to. `metrics` are added to the run's, `failures` and `errors` are lines as reports show them.

    `record` is kept as the evaluation's part of the grader's `part_name`. With `is_final`, `final_score` (0-10, None:
    unknown) is the run's, and `failures` say whether it suffices, instead of the judge's score and threshold.
    """

    metrics: tuple[MetricResult, ...] = ()
    record: Record | None = None
    failures: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    final_score: float | None = None
    is_final: bool = False


class Grader:
    """Decides runs of some cases, on its own or beside what else decides them.

    An entry point `grader NAME` grades the cases with the part NAME, and is loaded with the first of these; one from
    the hook `pytest_agentbench_graders` is asked of every case. A subclass overwrites what applies to it.
    """

    part_name: str | None = None
    """The name of the evaluation's part that it makes, an entry point `evaluation_part NAME`; None: it makes none."""

    others_asked: tuple[str, ...] = ()
    """Who else it asks beside models, by names of its own in cassettes."""

    def applies(self, case: Case) -> bool:
        """Return whether it grades the runs of the case."""
        return True

    def require(self, services: GradingServices, case: Case) -> None:
        """Raise ConfigError or UnavailableError where the case cannot be graded, before anything is paid for it."""

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return what can change its grade beside the run: a part of the verdict's fingerprint, by keys of its own.

        Raises ConfigError for what cannot be read.
        """
        return {}

    def asks(self, case: Case) -> bool:
        """Return whether it asks models itself."""
        return False

    def wants_judge(self, case: Case) -> bool | None:
        """Return whether the profile's judges are asked about the case; None: where the case gives them a measure."""
        return None

    def decides(self, case: Case) -> bool:
        """Return whether a run can fail by it, so that nothing else has to decide the case."""
        return False

    def undecided(self, case: Case) -> str | None:
        """Return what to say of a case that nothing decides, and what to do; None: what is said of every case."""
        return None

    def assessment(
        self, case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
    ) -> Assessment | None:
        """Return how judges are asked instead of by rubric and expectations; None: by these.

        What is sent goes through `redact`, which removes secrets.
        """
        return None

    def request_notes(self, tools: Mapping[str, str]) -> Mapping[str, Any]:
        """Return what a run's stored request keeps for its judges; `tools` are the descriptions of all, by id."""
        return {}

    def run_failures(self, case: Case, artifact: RunArtifact) -> Sequence[str]:
        """Return why a run failed before anything was graded, instead of what its status says; none: it says it."""
        return ()

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the grade of a run. Books with `request.services` what it pays for."""
        return Grade()

    def regrade(
        self,
        case: Case,
        artifact: RunArtifact,
        metrics: Sequence[MetricResult],
        judged: JudgeResult | None,
        record: Record | None,
    ) -> Grade:
        """Return a grade again from what is free: the record that was kept, and metrics, its own ones among them."""
        return Grade(record=record)


def regrade(
    graders: Sequence[Grader],
    case: Case,
    artifact: RunArtifact,
    metrics: Sequence[MetricResult],
    judged: JudgeResult | None,
    parts: Mapping[str, Record] = MappingProxyType({}),
) -> dict[Grader, Grade]:
    """Return every grade again without asking anybody; `parts` are those of the stored evaluation."""
    return {
        grader: grader.regrade(case, artifact, metrics, judged, parts.get(grader.part_name or "")) for grader in graders
    }


def graders_of(case: Case, added: Mapping[str, Grader] | None = None) -> tuple[Grader, ...]:
    """Return what grades the case: the graders of its parts, and those of `added` that apply to it.

    Raises ConfigError for one that cannot be imported.
    """
    named = [grader for name in case.parts if (grader := find_extension("grader", name)) is not None]
    return tuple(grader for grader in (*named, *(added or {}).values()) if grader.applies(case))
