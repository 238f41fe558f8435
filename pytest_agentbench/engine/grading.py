"""Graders, which decide a run beside its checks, metrics and judges, and what grading needs of a session.

Packs and plugins add them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import JudgeResult, MetricResult
from pytest_agentbench.records.run import RunArtifact, Usage

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile
    from pytest_agentbench.engine.budget import Part
    from pytest_agentbench.engine.job import Job
    from pytest_agentbench.judging.prompt import Assessment
    from pytest_agentbench.models.client import ChatClient, Endpoints
    from pytest_agentbench.models.scripts import Scripts
    from pytest_agentbench.models.tape import Tape
    from pytest_agentbench.records.base import Record


class Shared(Protocol):
    """An object that a grader's cases share in a session: asked for by its class, made with the session's services."""

    def __init__(self, services: GradingServices) -> None: ...

    async def close(self) -> None:
        """End what it has opened."""


_S = TypeVar("_S", bound=Shared)


@dataclass(eq=False, repr=False, kw_only=True)
class GradingServices:
    """Hold what all gradings of a session share. `connect` is called on the engine's loop, at the first model that is
    asked.

    `on_spent(part, usages)` books what was paid, `over_budget(usage)` is why a run that has used so much already may
    ask for nothing more. `asked_anew` are the keys of kept votes that were asked for again. `output` is the session's
    output folder, `subjects` are the files of all that sources could have scored together.
    """

    connect: Callable[[], Endpoints]
    on_spent: Callable[[Part, list[Usage]], None]
    output: Path
    subjects: tuple[Path, ...] = ()
    over_budget: Callable[[Usage], str | None] = lambda usage: None
    reuse_evaluations: bool = True
    asked_anew: set[str] = field(default_factory=set)
    _endpoints: Endpoints | None = None
    _shared: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shared = {}

    @cached_property
    def scripts(self) -> Scripts:
        """Return the scripts that answer for scripted models."""
        from pytest_agentbench.models.scripts import Scripts

        return Scripts()

    def shared(self, kind: type[_S]) -> _S:
        """Return what a grader's cases share in this session: `kind(services)`, made at the first need, closed last."""
        if kind not in self._shared:
            self._shared[kind] = kind(self)
        found: _S = self._shared[kind]
        return found

    def client(self, model: Model, tape: Tape | None = None) -> ChatClient:
        """Return a client for the model, through the tape where that is in use for it."""
        if tape is not None and tape.mode(model.model_id) != "off":
            from pytest_agentbench.models.cassettes import TapedClient

            return TapedClient(model, tape, partial(self.client, model))
        return self._connected().client(model)

    def keep_environ(self) -> None:
        """Let models be asked with the keys that the variables hold now."""
        self._connected().keep_environ()

    def _connected(self) -> Endpoints:
        if self._endpoints is None:
            self._endpoints = self.connect()
        return self._endpoints

    def spend(self, part: Part, usages: list[Usage], tape: Tape | None = None) -> None:
        """Book what asking models has used, but what the tape answered for, which costs nothing."""
        self.on_spent(part, usages if tape is None else tape.take_paid(usages))

    def describe_pauses(self) -> str:
        """Return which endpoints runs wait for, empty where they wait for none."""
        return self._endpoints.describe_pauses() if self._endpoints is not None else ""

    async def close(self) -> None:
        """End what gradings share, and connections."""
        # Before the connections that they may use to end
        for shared in self._shared.values():
            await shared.close()
        if self._endpoints is not None:
            await self._endpoints.close()


class GradeRequest(NamedTuple):
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


class Grade(NamedTuple):
    """The result of a grader. `metrics` are added to the run's, `failures` and `errors` are lines as reports show them.

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
    if not case.parts and not added:
        return ()
    # Only those of the parts that the case carries: a session imports no other pack
    named = [grader for name in case.parts if (grader := find_extension("grader", name)) is not None]
    graders = dict.fromkeys((*named, *(added or {}).values()))  # a plugin's may have the name of a part, too
    return tuple(grader for grader in graders if grader.applies(case))
