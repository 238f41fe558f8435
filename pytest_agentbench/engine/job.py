"""Jobs and their results: a job is one case on one model once, a plan has the settings that a model's jobs share."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.engine.user_code import RunTexts
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.identity.fingerprints import fingerprint, judge_input
from pytest_agentbench.records.case import Case, Model, name_column
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import WORKSPACE_NOTE, FileChange, OutputArtifact, RunArtifact

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile, SuiteFile
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.engine.variants import Variant
    from pytest_agentbench.models.tape import Tape
    from pytest_agentbench.sources.case_source import StoredAnswers
    from pytest_agentbench.store.artifacts import ModelStore
    from pytest_agentbench.workspaces.workspace import Workspace

SERVERS_FIXTURE = "agentbench_mcp_servers"
"""The fixture that declares MCP servers in addition to those of files."""

OWN_AGENT = "agent"
"""The model id in item ids of the user's own agent without a named model."""
CHAT_JUDGE = "llm_probe"
"""The type of judges that are chat models."""


def name_subject(agent: str, model_id: str) -> str:
    """Return the name of an agent with a model in item ids and reports."""
    return f"{agent}+{model_id}"


class FixtureParameters(NamedTuple):
    """Parameters of the fixtures that make the user's own agent: their name, that of the first ones, a hash of them."""

    name: str
    first: str
    values: str


def name_place(model_id: str, variant: Variant | None, parameters: FixtureParameters | None = None) -> str:
    """Return the name of a column among stored runs and cassettes, where arms of one case have separate places.

    The name contains the variant's effect and not its name, so that a renamed variant finds its runs. The case as it
    stands has the name that it has without variants.
    """
    parts = [model_id]
    if parameters is not None:
        parts.append(parameters.values)
    if variant is not None and variant.effect:
        parts.append(variant.digest)
    return ":".join(parts)


def judge_of(subject: Model | None, name: str | None) -> str | None:
    """Return the id of the model that judges the subject's runs if a profile or a metric names `name`.

    A subject that names its own judge (`demo` does) is never judged by another, paid one.
    """
    # `demo` names itself: sample cases are judged offline even by a profile that names a paid model
    return (subject.judge if subject is not None else None) or name


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Settings that all jobs of one model and profile share. `model` is None if the user's own agent is the subject.

    With `own_agent` the user's agent runs, with or without a named model. With `predictions`, or stored answers of the
    model `author`, neither a model nor an agent runs. `judges` maps judge ids to models. `suite` is the session's
    suite, None without one. `agent` is the agent that the session names for cases with the runner `agent`; `model_id`
    then contains both names. `variant` changes each case, None without variants; it is one of `variants`, and is
    compared with the variant `reference`. `parameters` are those of the fixtures, None without parameters.
    `roles` maps the run profile's roles to models.
    """

    root: ConfigRoot
    model: Model | None
    model_id: str
    run_profile: RunProfile
    evaluation_profile: EvaluationProfile
    judges: dict[str, Model]
    model_store: ModelStore
    suite_id: str | None = None
    own_agent: bool = False
    predictions: StoredAnswers | None = None
    author: Model | None = None
    suite: SuiteFile | None = None
    agent: str | None = None
    variant: Variant | None = None
    variants: tuple[Variant, ...] = ()
    reference: str | None = None
    parameters: FixtureParameters | None = None
    roles: Mapping[str, Model] = field(default_factory=dict)

    @cached_property
    def variant_name(self) -> str | None:
        """Return the name of the variant in ids and reports: of the fixtures' parameters, the declared one, or both."""
        names = [each.name for each in (self.parameters, self.variant) if each is not None]
        return "+".join(names) or None

    @cached_property
    def reference_name(self) -> str | None:
        """Return the `variant_name` of the column that others of the same model are compared with."""
        first = None if self.parameters is None else self.parameters.first
        return "+".join(filter(None, (first, self.reference))) or None

    @cached_property
    def column(self) -> str:
        """Return the name of the model with its variant in item ids and reports."""
        return name_column(self.model_id, self.variant_name)

    def name_place(self, model_id: str) -> str:
        """Return the name of a model's column among stored runs and cassettes."""
        return name_place(model_id, self.variant, self.parameters)

    @property
    def declared_id(self) -> str:
        """Return the model's id as files have it, without the agent's name that `model_id` contains."""
        if self.agent is None:
            return self.model_id
        return self.model_id.removeprefix(name_subject(self.agent, ""))

    def with_skills(self, case: Case) -> Case:
        """Return the case with the run profile's skills in addition; of two with one name the case's own stays."""
        if self.run_profile.parts is None:
            return case
        skills = {skill.name: skill for skill in (*self.run_profile.parts.skills, *case.skills)}
        return case.model_copy(update={"skills": tuple(skills.values())})

    def adapt(self, case: Case) -> Case:
        """Return the case with its agent replaced by the plan's.

        Raises UnavailableError for a case with another runner than `agent`.
        """
        if self.agent is None:
            return case
        if case.runner.type != "agent":
            named = f"--agentbench-agent {self.agent}"
            if self.variant is not None and self.variant.fields.agent is not None:
                named = f"variant {self.variant.name}: agent {self.agent}"
            raise UnavailableError(
                f"{named} runs cases of the runner agent, and this one has the runner {case.runner.type}"
            )
        return case.model_copy(update={"runner": case.runner.model_copy(update={"agent": self.agent})})

    @property
    def stored(self) -> Path | None:
        """Return the file of stored answers that is the subject, None for any other subject."""
        if self.author is not None and self.predictions is not None:
            return self.predictions.path
        return None

    @cached_property
    def names_cassettes(self) -> bool:
        """Return whether one of its models sets a cassette mode."""
        models = (self.model, *self.judges.values(), *self.roles.values())
        return any(model is not None and model.cassettes for model in models)

    @cached_property
    def judge_hash(self) -> str:
        """Return the identity of the evaluation profile's judges, 64 hex digits."""
        return fingerprint(judge_input(self.evaluation_profile, tuple(self.judges.values())))

    def judged_by(self, name: str | None) -> str | None:
        """Return the id of the model that a metric with the model `name` asks; None means the profile's first judge."""
        first = self.evaluation_profile.first_judge(CHAT_JUDGE)
        return judge_of(self.model or self.author, name or (first.model if first is not None else None))

    def judge_model(self, name: str | None) -> Model:
        """Return the model that a metric with the model `name` asks. Raises ConfigError if there is none."""
        model_id = self.judged_by(name)
        if model_id is None:
            raise ConfigError("no model to ask; name one in the metric's args, or a judge in the evaluation profile")
        return self._resolve(model_id)

    def first_judge(self) -> Model:
        """Return the model that graders ask: the profile's first judge, else OPENAI_MODEL. Raises ConfigError."""
        model_id = self.judged_by(None) or os.environ.get("OPENAI_MODEL")
        if not model_id:
            raise ConfigError(
                "found no judge; name an evaluation profile that has one (--agentbench-evaluation-profile), or set "
                "OPENAI_MODEL (and OPENAI_BASE_URL for an endpoint that is not OpenAI's)"
            )
        return self._resolve(model_id)

    def _resolve(self, model_id: str) -> Model:
        from pytest_agentbench.models.routes import resolve_model

        return resolve_model(model_id, models=self.root.models())

    def share(self, artifact: RunArtifact, evaluation: Evaluation | None = None, *, made: bool = False) -> None:
        """Send a stored run, or the verdict on it, to the shared store, if there is one.

        A run or verdict that was not `made` now is sent only if the shared store lacks it.
        """
        if self.model_store.remote is None:
            return
        from pytest_agentbench.store.remote_results import share_evaluation, share_run

        if evaluation is None:
            share_run(self.model_store, artifact, made=made)
        else:
            share_evaluation(self.model_store, artifact, evaluation, made=made)

    @property
    def judge_options(self) -> Mapping[str, Any]:
        """Return the options of the profile's first judge for each of its requests."""
        first = self.evaluation_profile.first_judge(CHAT_JUDGE)
        if first is not None:
            return first.options
        return {}


class FixtureValues(NamedTuple):
    """Values of pytest's fixtures for the runs of an item: the agent under test, and the declared MCP servers."""

    agent: Any
    servers: Any


class StartGroup(NamedTuple):
    """The properties that jobs share if they may start ahead together.

    `runner_scope` and `server_scope` are the places that define the fixtures of the runner and of the MCP servers.
    `run_profile` is the id() of the run profile, whose limits apply to the group. A named tuple, because the engine
    looks jobs up by it several times a run.
    """

    runner_scope: Any
    run_profile: int
    server_scope: Any


@dataclass(eq=False, slots=True)
class Job:
    """One run to make. `case` builds the record when it is needed, so that 100,000 jobs keep no parsed cases.

    It is the run number `repetition` of `repetitions`, counted from 1.
    `rank` is the place in pytest's order, from 1. `start_group` is the StartGroup (in tests any hashable value), None
    until the session has grouped its jobs. With `by_hand` a hand-written test decides the run, so that the case needs
    no check, metric or judge. `judges` are the models that the case's metrics ask.
    """

    case_id: str
    tags: tuple[str, ...]
    case: Callable[[], Case]
    plan: Plan
    repetition: int = 1
    repetitions: int = 1
    rank: int = 0
    start_group: Hashable = None
    by_hand: bool = False
    judges: tuple[Model, ...] = ()

    def make_case(self) -> Case:
        """Return the case as the plan runs it: with the changes of its variant and the plan's agent.

        Raises ConfigError if the variant cannot be applied, and UnavailableError if the case cannot run so.
        """
        plan = self.plan
        if plan.variant is None:
            return plan.adapt(plan.with_skills(self.case()))
        case = plan.variant.make_case(self.case)
        if plan.variant.fields.mcp_servers is not None:
            plan.root.require_servers(case.path, case.mcp_servers)
        if plan.variant.fields.parts is None:
            case = plan.with_skills(case)
        if case.skill is not None and case.skill.scored:
            from pytest_agentbench.engine.skills import drop_unequal_check

            case = drop_unequal_check(case, plan.with_skills(self.case()), plan.variants)
        return plan.adapt(case)

    @property
    def is_free(self) -> bool:
        """Return whether the run costs nothing: the model is scripted, and no agent of the user can call another."""
        plan = self.plan
        return plan.model is not None and plan.model.scripted and not plan.own_agent

    @property
    def runner_scope(self) -> Any:
        """Return the scope that the runner's fixture comes from, None before the session has grouped its jobs."""
        if isinstance(self.start_group, StartGroup):
            return self.start_group.runner_scope
        return None


@dataclass(eq=False, repr=False, slots=True)
class Result:
    """The outcome of a job. `error` is raised in pytest's setup phase; its cause is infrastructure, case file or agent.

    `not_run` is the reason why the session stopped before the job was done. `seconds` is the run's own time, `waited`
    the time that pytest waited for it. `path` is the stored run's, relative to the output folder, `evaluation_path` the
    verdict's, `measure` a hash of the verdict's inputs. `runner` are the fixtures' values of the run. `reused` and
    `evaluation_reused` are True for a run and a verdict from the store. `tape` is the run's cassette while the job is
    in progress, `texts` are the logs and prints of the run.
    """

    runner: FixtureValues | None = None
    case: Case | None = None
    artifact: RunArtifact | None = None
    evaluation: Evaluation | None = None
    error: BaseException | None = None
    not_run: str | None = None
    seconds: float = 0.0
    waited: float = 0.0
    path: str | None = None
    evaluation_path: str | None = None
    measure: str | None = None
    reused: bool = False
    evaluation_reused: bool = False
    workspace: Workspace | None = None
    tape: Tape | None = None
    texts: RunTexts = field(default_factory=RunTexts)


class KeptFiles(NamedTuple):
    """Files of a run's workspace that are stored with the run.

    `archive`, `changes` and `outputs` become the fields `workspace`, `changes` and `output_artifacts` of RunArtifact.
    `note` becomes its metadata's entry WORKSPACE_NOTE.
    """

    archive: str | None = None
    changes: tuple[FileChange, ...] | None = None
    outputs: tuple[OutputArtifact, ...] = ()
    note: Mapping[str, Any] = {}

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the entry for the run's metadata, {} if there is no note."""
        if self.note:
            return {WORKSPACE_NOTE: self.note}
        return {}


Work = Callable[[Job, Any], Awaitable[Result]]
"""Makes a job's result with the fixtures' values."""
