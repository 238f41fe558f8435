"""The attempt to run and evaluate one job: the record that execution, evaluation and storage share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine.grading import Grader, TurnGrader, graders_of
from pytest_agentbench.engine.job import FixtureValues, Job, Plan, Result
from pytest_agentbench.engine.services import Services
from pytest_agentbench.records.case import Case, McpServer, Model
from pytest_agentbench.runners.base import Runner
from pytest_agentbench.runners.kinds import Prepared

if TYPE_CHECKING:
    from pytest_agentbench.engine.case_drivers import NamedDriver
    from pytest_agentbench.models.tape import Tape


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class RunPlan:
    """The runner, model, settings and identity of a run, before the run is looked up or made.

    `fingerprint` is the hash of `fingerprint_input`, which is canonical JSON. `model` is a placeholder with the name
    of the agent if the user's own agent runs without a model. `servers` maps names to MCP servers of
    the run; it is empty for a runner with its own tools. `prepared` is the runner's part: sandbox, template, data.
    `roles` maps the roles that the runner needs to their models. `driver` decides the user's messages, None without
    one.
    """

    runner: Runner
    runner_type: str
    model: Model
    settings: Mapping[str, Any]
    fingerprint_input: bytes
    fingerprint: str
    servers: Mapping[str, McpServer]
    prepared: Prepared
    roles: Mapping[str, Model]
    driver: NamedDriver | None = None


@dataclass(eq=False, repr=False, slots=True)
class Attempt:
    """A job under way.

    `values` are the values of the item's fixtures. `result` gets the run and verdict that are stored or made. `plan`
    has the settings that all jobs of the model share. `run_plan` is set before the run is looked up or made. One task
    of the engine's loop owns an attempt.
    """

    services: Services
    job: Job
    case: Case
    values: FixtureValues
    result: Result
    plan: Plan = field(init=False)
    run_plan: RunPlan = field(init=False)
    _graders: tuple[Grader, ...] | None = None

    def __post_init__(self) -> None:
        self.plan = self.job.plan

    @property
    def tape(self) -> Tape | None:
        """Return the cassette of the run, None if all models are asked directly."""
        return self.result.tape

    @property
    def graders(self) -> tuple[Grader, ...]:
        """Return the graders of the case. Raises ConfigError for a grader that cannot be imported."""
        if self._graders is None:
            self._graders = graders_of(self.case, self.services.registry.graders)
        return self._graders

    @property
    def live_graders(self) -> tuple[Grader, ...]:
        """Return the graders of the case that grade in the run's sandbox."""
        if not self.graders:  # of most cases: this is asked five times a run
            return ()
        return tuple(grader for grader in self.graders if grader.wants_sandbox)

    @property
    def sandbox_graders(self) -> tuple[Grader, ...]:
        """Return the graders of the case that need the run's sandbox."""
        return (*self.live_graders, *self.turn_graders)

    @property
    def turn_graders(self) -> tuple[TurnGrader, ...]:
        """Return the graders of the case that grade each turn of its conversation."""
        graders = tuple(grader for grader in self.graders if isinstance(grader, TurnGrader))
        if not graders or self.case.turns:
            return graders
        from pytest_agentbench.engine.case_drivers import find_driver

        return () if find_driver(self.case) is None else graders
