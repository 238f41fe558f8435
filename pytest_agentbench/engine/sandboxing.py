"""The sandbox of a case's runs: what it is to be, and its part in a run's identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_agentbench.config import ConfigRoot, RunProfile, base_images, pinning_problem
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.openclaw import openclaw_spec
from pytest_agentbench.engine.services import Services
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.records import Case, SandboxNeeds
from pytest_agentbench.tools import needs_sandbox
from pytest_agentbench.workspaces import Sandboxes, SandboxSpec, build_digest, compose_digest

if TYPE_CHECKING:
    from pytest_agentbench.engine.subject import Subject


def run_spec(services: Services, job: Job, case: Case, subject: Subject) -> SandboxSpec:
    """Where a run's commands are executed. Raises as `sandbox_spec` does."""
    if subject.openclaw is not None:
        return openclaw_spec(services.sandboxes, job.plan.run_profile)
    return sandbox_spec(services, job, case)


def sandbox_spec(services: Services, job: Job, case: Case) -> SandboxSpec:
    """Where the commands of a run with tools, and the verifiers of any, are executed.

    Raises ConfigError for an image that is not pinned and for a guest's commands on this machine itself,
    UnavailableError where there is no such sandbox here.
    """
    return case_spec(services.sandboxes, job.plan.root, job.plan.run_profile, case)


def case_spec(sandboxes: Sandboxes, root: ConfigRoot, profile: RunProfile, case: Case) -> SandboxSpec:
    """Return the sandbox that the profile gives a case of the root. Raises as `sandbox_spec` does."""
    if (guest := root.guest) is not None and profile.sandbox_settings.type == "local":
        raise ConfigError(
            f"{case.path}:{case.line}: found commands of a folder that is not trusted, which the run profile "
            f"{profile.run_profile_id!r} runs on this machine (sandbox: local), expected a sandbox; {guest.plea}"
        )
    if case.sandbox is not None and not profile.allow_floating_image:
        _refuse_floating(case, case.sandbox)
    return sandboxes.spec(profile.sandbox_settings, case.sandbox)


def _refuse_floating(case: Case, needs: SandboxNeeds) -> None:
    if needs.image is not None and (problem := pinning_problem(needs.image)):
        raise ConfigError(f"{case.path}:{case.line}: sandbox.image: {problem}")
    for image in () if needs.dockerfile is None else base_images(needs.dockerfile):
        if problem := pinning_problem(image):
            raise ConfigError(f"{needs.dockerfile}: {problem}")


async def expected_sandbox(services: Services, job: Job, case: Case, subject: Subject) -> SandboxSpec | None:
    """The sandbox that the run will start, as far as the case's tools say: its image is here, a container on its way.

    None for OpenClaw's container, whose mounts are the run's own: only its image is here. Raises as `sandbox_spec`
    does, and for an image that cannot be had, before anything is paid. A user's own agent may do without the case's
    tools: it finds out by itself.
    """
    if subject.openclaw is not None:
        await services.sandboxes.prepare(run_spec(services, job, case, subject))
    if job.plan.predictions is not None or not (case.verify or _runs_commands(services, case)):
        return None
    try:
        spec = sandbox_spec(services, job, case)
        await services.sandboxes.prepare(spec)
    except UnavailableError:
        if case.verify or subject.runner_type != "callable":
            raise
        return None
    if not _runs_commands(services, case):
        return None
    services.sandboxes.expect(spec, 1 + services.coming())
    return spec


def sandbox_identity(services: Services, job: Job, case: Case) -> dict[str, Any]:
    """What of its sandbox can change a run: nothing where the case has no tool that runs commands.

    Not which kind `auto` comes to here: a stored run is found again where there is no docker. Raises ConfigError for
    what cannot be built or is no compose file.
    """
    return sandbox_part(job, case) if _runs_commands(services, case) else {}


def sandbox_part(job: Job, case: Case) -> dict[str, Any]:
    """What of a sandbox can change what is executed in it. Raises ConfigError as `sandbox_identity` does."""
    settings = job.plan.run_profile.sandbox_settings
    found: dict[str, Any] = settings.model_dump(exclude={"build_network"})
    needs = case.sandbox
    if needs is None:
        return found
    network = settings.build_network == "allow"
    if needs.image is not None:
        found["image"] = needs.image
    if needs.dockerfile is not None:
        found |= {"image": None, "build": build_digest(needs.dockerfile, network=network)}
    if needs.compose is not None:
        found["compose"] = compose_digest(needs.compose, network=network)
    return found


def _runs_commands(services: Services, case: Case) -> bool:
    tools = (services.registry.tools.get(name) for name in case.tools)
    return any(tool is not None and tool.available is needs_sandbox for tool in tools)
