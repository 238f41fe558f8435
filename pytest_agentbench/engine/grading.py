"""Graders, which decide a run in addition to its checks, metrics and judges. Packs and plugins add them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import RunStatus
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import Evaluation, JudgeResult, MetricResult, StoredGrade
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


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """A finished run with the results of its metrics and judges; `judged` is None if no judge was asked."""

    case: Case
    artifact: RunArtifact
    metrics: Sequence[MetricResult] = ()
    judged: JudgeResult | None = None


@dataclass(frozen=True, kw_only=True)
class GradeRequest(MeasuredRun):
    """A finished run to grade, and the means to do it.

    `tape` is the run's cassette, through which models are asked, if there is one. `workspace` is the run's folder as
    the agent left it, None if the run made none. A grader that `wants_sandbox` also gets the run's sandbox, and no
    results: metrics and judges come later.
    """

    services: GradingServices
    job: Job
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


_METHODS_OF_KINDS = {
    "compute": "FreeGrader",
    "after_turn": "TurnGrader",
    "asks": "AskingGrader",
    "require": "AskingGrader",
    "others_asked": "AskingGrader",
    "assessment": "JudgePromptGrader",
    "request_notes": "JudgePromptGrader",
    "undecided": "JudgePromptGrader",
}
_REPLACED = {
    "regrade": "derive from FreeGrader, and call it compute(run)",
    "wants_judge": "a grader that asks models in place of the judges derives from AskingGrader",
    "run_failures": "return the lines as failures of the grade",
}


class Grader(ABC):
    """Decides runs of some cases, alone or together with checks, metrics and judges.

    A grader whose name is a part of cases grades the cases with this part, and is imported with the first of these.
    Another one, from a hook of a conftest or plugin, is asked about every case.

    Subclasses for graders that do more: FreeGrader, TurnGrader, AskingGrader, JudgePromptGrader. A grader may derive
    from several.
    """

    part_name: str | None = None
    """The name of the evaluation's part that it makes, one of `evaluation_parts`; None: it makes none."""

    decides: bool = False
    """Whether a run can fail by it, so that nothing else has to decide its cases."""

    accepts: Collection[RunStatus] = ()
    """Statuses of runs that can pass though they did not succeed, for example `timed_out`; never `provider_error`."""

    wants_sandbox: bool = False
    """Whether it grades in the run's sandbox, which is stopped afterwards.

    Its grade is stored with the run, and its identity belongs to the run's: a changed identity needs a new run.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Raise TypeError for a method of another kind of grader, which nothing would call."""
        super().__init_subclass__(**keywords)
        bases = {base.__name__ for base in cls.__mro__}
        for name, kind in _METHODS_OF_KINDS.items():
            if hasattr(cls, name) and kind not in bases:
                raise TypeError(f"{cls.__qualname__}.{name} is never called: derive from {kind}")
        for name, remedy in _REPLACED.items():
            if hasattr(cls, name):
                raise TypeError(f"{cls.__qualname__}.{name} is never called: {remedy}")
        for name in ("decides", "accepts", "undecided"):
            if callable(getattr(cls, name, None)):
                raise TypeError(f"{cls.__qualname__}.{name}: found a method, expected a value")

    def applies(self, case: Case) -> bool:
        """Return whether it grades the runs of the case."""
        return True

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return everything but the run that can change its grade: a part of the verdict's fingerprint, under its own
        keys.

        Raises ConfigError for unreadable files.
        """
        return {}

    @abstractmethod
    async def grade(self, request: GradeRequest) -> Grade:
        """Return the grade of a run. Book its payments with `request.services`.

        The grade is stored with the verdict, which is used again as long as the run and the identity stay the same.
        """
        return Grade()


class FreeGrader(Grader):
    """Computes grades from runs and their results, so that stored verdicts are graded again at each use."""

    @abstractmethod
    def compute(self, run: MeasuredRun) -> Grade:
        """Return the grade of a run, new or stored. `run.metrics` of a stored run contain those of its grade."""

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the computed grade."""
        return self.compute(request)


class TurnGrader(Grader):
    """Grades the turns of conversations while they are held, and, by an own `grade`, maybe the run."""

    @abstractmethod
    async def after_turn(self, case: Case, sandbox: Sandbox, turn: TurnResult) -> Grade | None:
        """Return the grade of a turn that succeeded, made in the run's sandbox before the next message; None: no grade.

        Its metrics and failures are stored with the run and reported with the turn's number. Its `record` and score do
        not count. The grader's identity belongs to the run's.
        """

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the grade by the next class that it derives from, such as FreeGrader; empty if turns alone decide."""
        return await super().grade(request)


class AskingGrader(Grader):
    """Asks models itself, in place of the profile's judges, which are not asked about its cases."""

    others_asked: tuple[str, ...] = ()
    """Names in cassettes for other services that it asks, in addition to models."""

    def asks(self, case: Case) -> bool:
        """Return whether it asks models about the case."""
        return True

    def require(self, services: GradingServices, case: Case) -> None:
        """Raise ConfigError or UnavailableError for a case that cannot be graded, before anything is paid for."""


class JudgePromptGrader(Grader):
    """Writes the prompt of the profile's judges for its cases."""

    undecided: str | None = None
    """The error for a case that nothing decides, with a remedy; None: the usual error."""

    @abstractmethod
    def assessment(
        self, case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
    ) -> Assessment | None:
        """Return the prompt of the judges; None: a prompt by rubric and expectations.

        Everything sent goes through `redact`, which removes secrets.
        """

    def request_notes(self, tools: Mapping[str, str]) -> Mapping[str, Any]:
        """Return notes for judges in the run's stored request; `tools` maps ids of all tools to their descriptions."""
        return {}


def regrade(graders: Sequence[Grader], run: MeasuredRun, stored: Evaluation | None = None) -> dict[Grader, Grade]:
    """Return all grades again without asking anybody.

    Computed grades are made anew. Others are those that the run or the evaluation has stored, or empty without one.
    Raises KeyError if the evaluation lacks a grade of `name_stored_grades`.
    """
    grades: dict[Grader, Grade] = {}
    names = name_stored_grades(graders)
    for grader in graders:
        if stored is not None and grader in names:
            grade = _restore(grader, (stored.grades or {})[names[grader]])
            grades[grader] = grade._replace(record=stored.parts.get(grader.part_name or ""))
            continue  # it has the failures of turns
        live = find_live_grade(grader, run.artifact)
        if live is None and isinstance(grader, FreeGrader):
            live = grader.compute(run)
        grades[grader] = add_turn_grades(grader, run.artifact, live or Grade())
    return grades


def find_stored_grades(grades: Mapping[Grader, Grade]) -> dict[str, StoredGrade] | None:
    """Return the grades that an evaluation stores by the names of their graders, None without such a grader.

    Metrics and records are in other fields of the evaluation.
    """
    stored = {
        name: StoredGrade(
            failures=grades[grader].failures,
            final_score=grades[grader].final_score,
            is_final=grades[grader].is_final,
        )
        for grader, name in name_stored_grades(grades).items()
    }
    return stored or None


def name_stored_grades(graders: Iterable[Grader]) -> dict[Grader, str]:
    """Return a name for each grader whose grades evaluations store.

    Grades of other graders are computed again, or stored with the run. The names differ: two may be of one class.
    """
    names: dict[Grader, str] = {}
    counts = Counter[str]()
    for grader in graders:
        if grader.wants_sandbox or isinstance(grader, FreeGrader):
            continue
        name = name_grade(grader)
        counts[name] += 1
        names[grader] = name if counts[name] == 1 else f"{name}-{counts[name]}"
    return names


def name_grade(grader: Grader) -> str:
    """Return the name of the grader's grade in stored runs and evaluations."""
    return grader.part_name or type(grader).__qualname__


def dump_live_grade(grader: Grader, grade: Grade) -> dict[str, Any]:
    """Return the grade as the run's metadata have it."""
    parts = {}
    if grade.record is not None and grader.part_name is not None:
        parts[grader.part_name] = grade.record
    stored = StoredGrade(
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
    return _find_in_run(grader, artifact, LIVE_GRADES)


def add_turn_grades(grader: Grader, artifact: RunArtifact, grade: Grade) -> Grade:
    """Return the grader's grade of a run together with its grades of the run's turns."""
    if not isinstance(grader, TurnGrader):
        return grade
    turns = _find_in_run(grader, artifact, TURN_GRADES)
    if turns is None:
        return grade
    return grade._replace(metrics=(*grade.metrics, *turns.metrics), failures=(*turns.failures, *grade.failures))


def _find_in_run(grader: Grader, artifact: RunArtifact, key: str) -> Grade | None:
    stored = (artifact.metadata.get(key) or {}).get(name_grade(grader))
    if stored is None:
        return None
    return _restore(grader, StoredGrade.model_validate(stored))


def _restore(grader: Grader, grade: StoredGrade) -> Grade:
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
    return status != "provider_error" and any(status in grader.accepts for grader in graders)


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
    return [name for name, grader in graders.items() if grader and grader.decides and grader.applies(case)]
