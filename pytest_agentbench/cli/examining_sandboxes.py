"""The sandboxes of this machine: each is tried with a command, in the way that sessions use it, where one may."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.cli.needs import Needs
from pytest_agentbench.config import RunProfile
from pytest_agentbench.engine.openclaw import engine_of
from pytest_agentbench.errors import AgentbenchError, UnavailableError
from pytest_agentbench.records import SandboxSettings
from pytest_agentbench.workspaces import (
    Sandboxes,
    SandboxSpec,
    bubblewrap_problem,
    closes_abstract_sockets,
    compose_problem,
    docker_problem,
    engine_problem,
    has_image,
    is_local,
    missing_engine,
    not_built,
)

_AREA = "sandboxes"
_SECONDS = 30.0
_TRIAL = ("/bin/sh", "-c", "echo works")


def sandbox_actions(profiles: Sequence[RunProfile], needs: Sequence[Needs]) -> Iterator[str]:
    """What `live` starts that files name."""
    for cli in _engines(profiles):
        yield f"run `{cli} version`, the container engine of a run profile"
    if docker_problem() is None:
        for image in _images(profiles, needs):
            yield f"run a command in a container of {image}, where that is on this machine"


async def examine_sandboxes(
    profiles: Sequence[RunProfile], needs: Sequence[Needs], sandboxes: Sandboxes, *, hooks: bool, live: bool
) -> list[Finding]:
    """What works of docker and bubblewrap, and what each profile takes. `hooks` says that Python hooks need the latter.

    Images are looked for and never pulled here; those that cases build are not built. Programs and images that files
    name are started only where this is `live`.
    """
    every = {spec for need in needs for spec in need.sandboxes}
    wanted = {spec for spec in every if spec.cli is None}
    kinds = {spec.kind for spec in wanted}
    needed = {spec.image for spec in wanted if spec.image is not None}
    found = [_docker(needed="docker" in kinds)]
    if found[0].works:
        images = _images(profiles, needs)
        found += [await _image(sandboxes, image, needed=image in needed, live=live) for image in images]
        if any(spec.compose is not None for spec in wanted):
            found.append(_compose())
    for cli in _engines(profiles):
        found.append(_engine(cli, needed=any(spec.cli == cli for spec in every), live=live))
    found.append(await _bubblewrap(sandboxes, needed="bubblewrap" in kinds or hooks))
    return [*found, *(_choice(profile, sandboxes) for profile in profiles)]


def _engines(profiles: Sequence[RunProfile]) -> list[str]:
    """The programs that the profiles name."""
    return sorted({cli for each in profiles if each.openclaw is not None and (cli := engine_of(each.openclaw))})


def _images(profiles: Sequence[RunProfile], needs: Sequence[Needs]) -> list[str]:
    """The images that docker's daemon is to run, of profiles and of cases."""
    named = {image for each in profiles if (image := each.sandbox_settings.image) is not None}
    specs = (spec for need in needs for spec in need.sandboxes if spec.cli is None)
    return sorted(named | {spec.image for spec in specs if spec.image is not None})


def _docker(*, needed: bool) -> Finding:
    problem = docker_problem()
    return Finding(_AREA, "docker", problem is None, problem or "a daemon answers", needed=needed)


def _engine(cli: str, *, needed: bool, live: bool) -> Finding:
    name = f"container engine {cli}"
    problem = engine_problem(cli) if live else missing_engine(cli)
    if problem is None and not live:
        return Finding(_AREA, name, None, "is installed; --live starts it to see", needed=needed, untried=True)
    return Finding(_AREA, name, problem is None, problem or "answers", needed=needed)


async def _image(sandboxes: Sandboxes, image: str, *, needed: bool, live: bool) -> Finding:
    name = f"image {image}"
    try:
        if not has_image(image):
            if is_local(image):
                return Finding(_AREA, name, False, str(not_built(image)), needed=needed)
            said = f"is not on this machine; the first run that needs it pulls it, or `docker pull {image}` does"
            return Finding(_AREA, name, None, said, needed=needed)
        if not live:
            said = "is on this machine; --live runs a command in a container of it"
            return Finding(_AREA, name, True, said, needed=needed, untried=True)
        said = f"a container ran a command in {await _try(sandboxes, SandboxSettings(type='docker', image=image))}"
    except AgentbenchError as error:
        return Finding(_AREA, name, False, str(error), needed=needed)
    return Finding(_AREA, name, True, said, needed=needed)


def _compose() -> Finding:
    problem = compose_problem()
    return Finding(_AREA, "compose", problem is None, problem or "services of cases can be started", needed=True)


async def _bubblewrap(sandboxes: Sandboxes, *, needed: bool) -> Finding:
    problem = bubblewrap_problem()
    if problem is None:
        try:
            said = f"ran a command in {await _try(sandboxes, SandboxSettings(type='bubblewrap'))}"
            return Finding(_AREA, "bubblewrap", True, said, needed=needed)
        except AgentbenchError as error:
            problem = str(error)
    return Finding(_AREA, "bubblewrap", False, problem, needed=needed)


async def _try(sandboxes: Sandboxes, settings: SandboxSettings) -> str:
    """How long a sandbox took to start and to run a command. Raises AgentbenchError where it did not."""
    started = time.perf_counter()
    spec: SandboxSpec = sandboxes.spec(settings)
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "doctor"))
    try:
        result = await sandbox.exec(_TRIAL, seconds=_SECONDS)
        seconds = time.perf_counter() - started
    finally:
        await sandbox.stop()
    if result.exit_code != 0:
        end = result.killed or f"exit code {result.exit_code}"
        raise UnavailableError(f"a trial command failed ({end}): {result.output.strip() or 'no output'}")
    return f"{seconds:.2f} s"


def _choice(profile: RunProfile, sandboxes: Sandboxes) -> Finding:
    """What the profile gives a case that names nothing of its own. Whether one needs it is told with the cases."""
    settings = profile.sandbox_settings
    name = f"profile {profile.run_profile_id}"
    try:
        kind = sandboxes.spec(settings).kind
    except UnavailableError as error:
        return Finding(_AREA, name, False, str(error))
    said = f"`sandbox: {settings.type}` takes {kind}" if settings.type == "auto" else f"`sandbox: {kind}`"
    if kind == "bubblewrap" and settings.network == "allow" and not closes_abstract_sockets():
        said += (
            ", whose commands reach the abstract unix sockets of this machine (D-Bus, X, agents) with "
            "`network: allow`: Linux 6.12 with Landlock closes them, and docker has none"
        )
    return Finding(_AREA, name, True, said + (", which isolates nothing" if kind == "local" else ""))
