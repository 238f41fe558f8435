"""Roles of a run: further models that a runner asks next to the run's own, such as a simulated user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.grading import GradingServices
from pytest_agentbench.engine.job import Plan
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.identity.fingerprints import model_input
from pytest_agentbench.models.routes import missing_key
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import RoleUse, Usage
from pytest_agentbench.runners.base import RoleClient, RunContext
from pytest_agentbench.runners.roles import RoleRequests

if TYPE_CHECKING:
    from pytest_agentbench.models.tape import Tape


def find_roles(plan: Plan, names: Iterable[str], runner_type: str) -> dict[str, Model]:
    """Return the models of the roles. Raises ConfigError for a role without a model."""
    for role in names:
        if role not in plan.roles:
            raise ConfigError(
                f"{plan.run_profile.place}: roles: found no model for the role {role!r}, which the runner "
                f"{runner_type} asks; write `roles: {{{role}: MODEL}}` in the run profile (--agentbench-run-profile), "
                "with an id of models.yaml"
            )
    return {role: plan.roles[role] for role in names}


def roles_identity(attempt: Attempt, roles: Mapping[str, Model]) -> dict[str, Any]:
    """Return the part of the roles in the run's fingerprint. Raises ConfigError for an invalid script."""
    return {role: _identify_model(attempt, model) for role, model in roles.items()}


def _identify_model(attempt: Attempt, model: Model) -> dict[str, Any]:
    services, identity = attempt.services, dict(model_input(model))
    if model.scripted:
        identity["script"] = services.scripts.answers_digest(attempt.case)
    for name, provider in services.registry.added("model provider", [model.provider]).items():
        identity["provider"] = services.identities.part("model provider", name, provider)
    return identity


def open_roles(attempt: Attempt, context: RunContext) -> None:
    """Give the run the clients of its roles, whose usage its budget counts.

    Raises ConfigError for a model without its key, unless it is replayed.
    """
    tape, clients = attempt.tape, dict[str, RoleClient]()
    for role, model in attempt.run_plan.roles.items():
        is_replayed = tape is not None and tape.mode(model.model_id) == "replay"
        if not is_replayed and (problem := missing_key(model)) is not None:
            raise ConfigError(f"{attempt.plan.run_profile.place}: roles.{role}: {problem}")
        clients[role] = RoleRequests(role, context, attempt.services.client(model, tape))
    context.roles = clients
    context.over_budget = partial(_find_limit, clients, context.over_budget)


def _find_limit(
    roles: Mapping[str, RoleClient], over_budget: Callable[[Usage], str | None], usage: Usage
) -> str | None:
    """Return why a run may send no further request, None if it may. `usage` is that of its own model."""
    used = [part for part in (usage, *usages_of(roles).values()) if part != Usage()]
    return over_budget(reduce(add, used) if used else usage)


def usages_of(roles: Mapping[str, RoleClient]) -> dict[str, Usage]:
    """Return the usage of the roles that were asked."""
    return {role: client.usage for role, client in roles.items() if client.usage is not None}


def describe_roles(roles: Mapping[str, RoleClient]) -> dict[str, RoleUse]:
    """Return the field of RunArtifact."""
    return {role: RoleUse(model_id=roles[role].model.model_id, usage=usage) for role, usage in usages_of(roles).items()}


def spend_roles(services: GradingServices, roles: Mapping[str, RoleClient], tape: Tape | None) -> None:
    """Book the usage of the run's roles, each by its name."""
    for role, usage in usages_of(roles).items():
        services.spend(role, [usage], tape)
