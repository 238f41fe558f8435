"""Graders, which decide a run in addition to its checks, metrics and judges. Packs and plugins add them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import RunStatus
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import JudgeResult, LiveGrade, MetricResult
from pytest_agentbench.records.run import LIVE_GRADES, TURN_GRADES, RunArtifact, Usage

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile
    from pytest_agentbench.engine.budget import Part
    from pytest_agentbench.engine.job import Job
    from pytest_agentbench.judging.prompt import Assessment
    from pytest_agentbench.models.client import ChatClient, Endpoints
    from pytest_agentbench.models.scripts import Scripts
    from pytest_agentbench.models.tape import Tape
    from pytest_agentbench.records.base import Record
    from pytest_agentbench.runners.conversation import TurnResult
    from pytest_agentbench.workspaces.sandboxes.base import Sandbox
    from pytest_agentbench.workspaces.workspace import Workspace


class Shared(Protocol):
    """An object that a grader's cases share in a session: asked for by its class, made with the session's services."""

    def __init__(self, services: GradingServices) -> None: ...

    async def close(self) -> None:
        """Close everything that it has opened."""


_S = TypeVar("_S", bound=Shared)


@dataclass(eq=False, repr=False, kw_only=True)
class GradingServices:
    """Services that all gradings of a session share. `connect` is called on the engine's loop for the first model.

    `on_spent(part, usages)` books payments. `over_budget(usage)` returns the reason why a run that has used so much may
    send no further request. `asked_anew` are the keys of stored votes that were asked for again. `output` is the
    session's output folder, `subjects` are the files that sources could have graded together.
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
        """Return the object of this class that the session's cases share: `kind(services)`, made once and closed at
        the end.
        """
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
        """Book the usages, without the answers from the tape, which cost nothing."""
        role = None if part in ("run", "judge") else part
        self.on_spent(part, usages if tape is None else tape.take_paid(usages, role))

    def describe_pauses(self) -> str:
        """Return a text about endpoints that runs wait for, empty without any."""
        if self._endpoints is not None:
            return self._endpoints.describe_pauses()
        return ""

    def retune(self, concurrency: int) -> None:
        """Let so many requests be in flight at each model that declares no number. Call on the engine's loop."""
        if self._endpoints is not None:
            self._endpoints.retune(concurrency)

    async def close(self) -> None:
        """Close the shared objects and the connections."""
        # Before the connections that they may use to end
        for shared in self._shared.values():
            await shared.close()
        if self._endpoints is not None:
            await self._endpoints.close()


class GradeRequest(NamedTuple):
    """A finished run to grade, with the results of its metrics and judges; `judged` is None if no judge was asked.

    `tape` is the run's cassette, through which models are asked, if there is one. `workspace` is the run's folder as
    the agent left it, None if the run made none. A grader that `wants_sandbox` also gets the run's sandbox, and no
    results: metrics and judges come later.
    """

    services: GradingServices
    job: Job
    case: Case
    artifact: RunArtifact
    metrics: Sequence[MetricResult]
    judged: JudgeResult | None = None
    tape: Tape | None = None
    sandbox: Sandbox | None = None
    workspace: Workspace | None = None


class Grade(NamedTuple):
    """The result of a grader. `metrics` are added to the run's, `failures` and `errors` are lines for reports.

    `record` is stored as the evaluation's part `part_name` of the grader. With `is_final`, `final_score` (0-10, None:
    unknown) is the run's score, and `failures` decide in place of the judge's score and threshold. `ends` ends the
    conversation after a graded turn.
    """

    metrics: tuple[MetricResult, ...] = ()
    record: Record | None = None
    failures: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    final_score: float | None = None
    is_final: bool = False
    ends: bool = False


class Grader:
    """Decides runs of some cases, alone or together with checks, metrics and judges.

    A grader whose name is a part of cases grades the cases with this part, and is imported with the first of these.
    Another one, from a hook of a conftest or plugin, is asked about every case. A subclass overrides the methods that
    apply to it.
    """

    part_name: str | None = None
    """The name of the evaluation's part that it makes, one of `evaluation_parts`; None: it makes none."""

    others_asked: tuple[str, ...] = ()
    """Names in cassettes for other services that it asks, in addition to models."""

    wants_sandbox: bool = False
    """Whether it grades in the run's sandbox, which is stopped afterwards.

    Its grade is stored with the run, and its identity belongs to the run's: a changed identity needs a new run.
    """

    def accepts(self, case: Case, status: RunStatus) -> bool:
        """Return whether a run of this status can pass though it did not succeed, for example `timed_out`.

        It is not called for `success` and `provider_error`.
        """
        return False

    def applies(self, case: Case) -> bool:
        """Return whether it grades the runs of the case."""
        return True

    def require(self, services: GradingServices, case: Case) -> None:
        """Raise ConfigError or UnavailableError for a case that cannot be graded, before anything is paid for."""

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return everything but the run that can change its grade: a part of the verdict's fingerprint, under its own
        keys.

        Raises ConfigError for unreadable files.
        """
        return {}

    def asks(self, case: Case) -> bool:
        """Return whether it asks models itself."""
        return False

    def wants_judge(self, case: Case) -> bool | None:
        """Return whether the profile's judges are asked about the case; None: by the case's rubric and expectations."""
        return None

    def decides(self, case: Case) -> bool:
        """Return whether a run can fail by it, so that nothing else has to decide the case."""
        return False

    def undecided(self, case: Case) -> str | None:
        """Return the error for a case that nothing decides, with a remedy; None: the usual error."""
        return None

    def assessment(
        self, case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
    ) -> Assessment | None:
        """Return the prompt of the judges; None: a prompt by rubric and expectations.

        Everything sent goes through `redact`, which removes secrets.
        """
        return None

    def request_notes(self, tools: Mapping[str, str]) -> Mapping[str, Any]:
        """Return notes for judges in the run's stored request; `tools` maps ids of all tools to their descriptions."""
        return {}

    def run_failures(self, case: Case, artifact: RunArtifact) -> Sequence[str]:
        """Return why a run failed before it was graded, in place of its status; () for the usual text."""
        return ()

    @property
    def grades_turns(self) -> bool:
        """Return whether it has an `after_turn`."""
        return type(self).after_turn is not Grader.after_turn

    async def after_turn(self, case: Case, sandbox: Sandbox, turn: TurnResult) -> Grade | None:
        """Return the grade of a turn that succeeded, made in the run's sandbox before the next message; None: no grade.

        Its metrics and failures are stored with the run and reported with the turn's number. Its `record` and score do
        not count. The grader's identity belongs to the run's.
        """
        return None

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the grade of a run. Book its payments with `request.services`."""
        return Grade()

    def regrade(
        self,
        case: Case,
        artifact: RunArtifact,
        metrics: Sequence[MetricResult],
        judged: JudgeResult | None,
        record: Record | None,
    ) -> Grade:
        """Return the grade again without asking anybody, from the stored record and the metrics, including its own."""
        return Grade(record=record)


def regrade(
    graders: Sequence[Grader],
    case: Case,
    artifact: RunArtifact,
    metrics: Sequence[MetricResult],
    judged: JudgeResult | None,
    parts: Mapping[str, Record] = MappingProxyType({}),
) -> dict[Grader, Grade]:
    """Return all grades again without asking anybody; `parts` are the stored evaluation's."""
    return {
        grader: add_turn_grades(
            grader,
            artifact,
            find_live_grade(grader, artifact)
            or grader.regrade(case, artifact, metrics, judged, parts.get(grader.part_name or "")),
        )
        for grader in graders
    }


def name_live_grade(grader: Grader) -> str:
    """Return the name of the grader's grade in the run's metadata."""
    return grader.part_name or type(grader).__qualname__


def dump_live_grade(grader: Grader, grade: Grade) -> dict[str, Any]:
    """Return the grade as the run's metadata have it."""
    parts = {}
    if grade.record is not None and grader.part_name is not None:
        parts[grader.part_name] = grade.record
    stored = LiveGrade(
        metrics=grade.metrics,
        failures=grade.failures,
        final_score=grade.final_score,
        is_final=grade.is_final,
        parts=parts,
    )
    return stored.model_dump(mode="json", exclude_none=True)


def find_live_grade(grader: Grader, artifact: RunArtifact) -> Grade | None:
    """Return the grade that was made in the run's sandbox, None if the run has none.

    Raises ValidationError for one that another version of the grader's package wrote.
    """
    if not grader.wants_sandbox:
        return None
    return _find_stored(grader, artifact, LIVE_GRADES)


def add_turn_grades(grader: Grader, artifact: RunArtifact, grade: Grade) -> Grade:
    """Return the grader's grade of a run together with its grades of the run's turns."""
    if not grader.grades_turns or (turns := _find_stored(grader, artifact, TURN_GRADES)) is None:
        return grade
    return grade._replace(metrics=(*grade.metrics, *turns.metrics), failures=(*turns.failures, *grade.failures))


def _find_stored(grader: Grader, artifact: RunArtifact, key: str) -> Grade | None:
    stored = (artifact.metadata.get(key) or {}).get(name_live_grade(grader))
    if stored is None:
        return None
    grade = LiveGrade.model_validate(stored)
    return Grade(
        metrics=grade.metrics,
        record=grade.parts.get(grader.part_name or ""),
        failures=grade.failures,
        final_score=grade.final_score,
        is_final=grade.is_final,
    )


def accepts_status(case: Case, artifact: RunArtifact, graders: Iterable[Grader]) -> bool:
    """Return whether the run ended as the case or a grader accepts. No grader can accept a provider's failure."""
    status = artifact.status
    if status == "success" or status in case.expects_status:
        return True
    return status != "provider_error" and any(grader.accepts(case, status) for grader in graders)


def graders_of(case: Case, added: Mapping[str, Grader] | None = None) -> tuple[Grader, ...]:
    """Return the graders of the case's parts, and the graders in `added` that apply to the case.

    Raises ConfigError for a grader that cannot be imported.
    """
    if not case.parts and not added:
        return ()
    # Only the graders of the case's parts, so that a session imports no other pack
    named = [grader for name in case.parts if (grader := find_extension("grader", name)) is not None]
    graders = dict.fromkeys((*named, *(added or {}).values()))  # one may have two names
    return tuple(grader for grader in graders if grader.applies(case))


def list_deciding_graders(case: Case) -> list[str]:
    """Return the names of the case's parts whose graders can fail its runs.

    Raises ConfigError for a grader that cannot be imported.
    """
    graders = {name: find_extension("grader", name) for name in case.parts}
    return [name for name, grader in graders.items() if grader and grader.applies(case) and grader.decides(case)]
