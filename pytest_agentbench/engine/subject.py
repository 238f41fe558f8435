"""What a job runs, known before it runs: the runner, its settings, and the run's fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pytest_agentbench.config import merge_runner_settings
from pytest_agentbench.engine.identity import run_extra
from pytest_agentbench.engine.job import Given, Job, Plan
from pytest_agentbench.engine.openclaw import OPENCLAW
from pytest_agentbench.engine.servers import servers_identity, servers_of
from pytest_agentbench.engine.services import CaseRunner, Services, agent_name
from pytest_agentbench.engine.taping import run_cassette
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records import Case, McpServer, Model
from pytest_agentbench.runners import Runner
from pytest_agentbench.runners.openclaw.agent import OpenClawAgent
from pytest_agentbench.store import canonical_json, fingerprint, run_fingerprint_input


@dataclass(frozen=True, slots=True)
class Subject:
    """A run to make or to find. `fingerprint_input` is the canonical JSON that `fingerprint` is the hash of.

    `model` stands for the user's own agent where the plan has none. `servers` are the run's MCP servers by name.
    `openclaw` is the agent of a run of OpenClaw, which has no such servers.
    """

    runner: Runner
    runner_type: str
    model: Model
    settings: Mapping[str, Any]
    fingerprint_input: bytes
    fingerprint: str
    servers: Mapping[str, McpServer]
    openclaw: OpenClawAgent | None = None


def subject_of(services: Services, job: Job, case: Case, given: Given) -> Subject:
    """The job's subject, made of these values of the fixtures.

    Raises UnavailableError where there is no such runner or no model, ConfigError for an MCP server that nobody
    declares, and for an OpenClaw agent that is not there, or wrong.
    """
    plan, agent = job.plan, given.agent
    runner, runner_type = _runner(services, case, plan, agent)
    model = plan.model or _own(agent_name(agent))
    settings = merge_runner_settings(plan.run_profile, plan.model_id, case.runner.overrides, model.parameters)
    extra = {**run_extra(services, job, case, agent, model), **run_cassette(services, job, case, model)}
    servers, openclaw = {}, None
    if runner_type == OPENCLAW:
        openclaw = services.openclaw.agent(plan, case.case_id)
        extra[OPENCLAW] = services.openclaw.identity(plan, case, openclaw)
    else:
        from_fixture = services.fixture_servers(given.servers) if plan.predictions is None else {}
        if servers := servers_of(job, case, from_fixture):
            extra["mcp_servers"] = servers_identity(job, servers, from_fixture)
    covered = canonical_json(run_fingerprint_input(case, model, runner_type, settings, job.repetition, extra))
    return Subject(runner, runner_type, model, settings, covered, fingerprint(covered), servers, openclaw)


@lru_cache(maxsize=256)
def _own(name: str) -> Model:
    """What stands for a user's own agent."""
    return Model(model_id=name, requested_model=name, api_key_env=None)


def _runner(services: Services, case: Case, plan: Plan, agent: Any) -> tuple[Runner, str]:
    if plan.predictions is not None:
        return plan.predictions, "predictions"
    if not isinstance(agent, CaseRunner):
        return services.adapted(agent), "callable"
    if plan.model is None:
        raise UnavailableError("no model: name one with --model, or override the fixture agentbench_runner")
    runner = services.registry.runners.get(case.runner.type)
    if runner is None:
        raise UnavailableError(f"the runner {case.runner.type!r} is not available in this version")
    return runner, case.runner.type
