"""Findings of `agentbench doctor` on sandboxes: each kind that is installed, its images, and the profiles' choices."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from pytest_agentbench.cli.doctor_needs import Needs, PackNeeds
from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.errors import AgentbenchError, UnavailableError
from pytest_agentbench.extensions import extension_names, load_extensions, ordered_names
from pytest_agentbench.records.base import AUTO
from pytest_agentbench.records.case import SandboxSettings, change_type
from pytest_agentbench.workspaces.sandboxes.base import SandboxProvider, SandboxSpec, provider_of
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes, find_engine_problem, kinds_of
from pytest_agentbench.workspaces.sandboxes.images import is_local, not_built
from pytest_agentbench.workspaces.sandboxes.isolated import isolation_problem

_SANDBOXES = "sandboxes"
_TRIAL_SECONDS = 30.0
_TRIAL = ("/bin/sh", "-c", "echo works")


@dataclass(frozen=True)
class _Kind:
    """A kind of sandbox with its uses. `images` are those that profiles and cases name for it."""

    name: str
    provider: SandboxProvider
    settings: tuple[SandboxSettings, ...]
    specs: tuple[SandboxSpec, ...]

    @property
    def images(self) -> list[str]:
        if "image" not in self.provider.takes:
            return []
        named = [*(each.image for each in self.settings), *(spec.image for spec in self.specs)]
        return sorted({image for image in named if image is not None})

    def trial(self, image: str | None = None) -> SandboxSettings:
        """Return the settings of a trial. Raises UnavailableError if only a profile that names the kind has them."""
        own = [each for each in self.settings if each.type == self.name]
        settings = own[0] if own else change_type(SandboxSettings(), self.name)
        return settings.model_copy(update={"image": image})


def _list_kinds(profiles: Sequence[RunProfile], needs: Sequence[Needs]) -> list[_Kind]:
    settings = [profile.sandbox_settings for profile in profiles]
    specs = {spec for need in needs for spec in need.sandboxes if spec.cli is None}
    return [
        _Kind(
            name,
            provider_of(name),
            tuple(each for each in settings if name in kinds_of(each.type)),
            tuple(spec for spec in specs if spec.kind == name),
        )
        for name in ordered_names("sandbox")
    ]


def list_sandbox_actions(profiles: Sequence[RunProfile], needs: Sequence[Needs]) -> Iterator[str]:
    """Yield a description of each start that `examine_sandboxes` makes only if it is `live`."""
    for cli in _list_engines(profiles):
        yield f"run `{cli} version`, the container engine of a run profile"
    for kind in _list_kinds(profiles, needs):
        if kind.provider.starts_freely or kind.provider.problem() is not None:
            continue
        if "image" not in kind.provider.takes:
            yield f"run a command in the sandbox {kind.name}"
        where = ", where that is on this machine" if kind.provider.images() is not None else ""
        for image in kind.images:
            yield f"run a command in the sandbox {kind.name} with the image {image}{where}"


async def examine_sandboxes(
    profiles: Sequence[RunProfile], needs: Sequence[Needs], sandboxes: Sandboxes, *, hooks: bool, live: bool
) -> list[Finding]:
    """Return findings for each installed kind, other container engines, and each profile's choice.

    `hooks`: cases have Python hooks, which are isolated too. Images are neither pulled nor built. Sandboxes that do not
    start freely, and programs and images that files name, are started only if `live`.
    """
    findings = [
        finding for kind in _list_kinds(profiles, needs) async for finding in _examine_kind(kind, sandboxes, live=live)
    ]
    engines = {spec.cli for need in needs for spec in need.sandboxes}
    findings += [_examine_engine(cli, needed=cli in engines, live=live) for cli in _list_engines(profiles)]
    if hooks:
        findings.append(_report("Python hooks", isolation_problem(), "are isolated", needed=True))
    return [*findings, *(_examine_choice(profile, sandboxes) for profile in profiles)]


def _report(name: str, problem: str | None, text: str, *, needed: bool) -> Finding:
    """Return a finding on a part that was tried. `text` describes a part without a problem."""
    return Finding(_SANDBOXES, name, problem is None, problem or text, needed=needed)


async def _examine_kind(kind: _Kind, sandboxes: Sandboxes, *, live: bool) -> AsyncIterator[Finding]:
    """Yield the finding on a kind, and one on each of its images."""
    needed, isolation = bool(kind.specs), f"isolation: {kind.provider.isolation}"
    if (problem := kind.provider.problem()) is not None:
        yield _report(kind.name, problem, "", needed=needed)
        return
    if "image" in kind.provider.takes:
        yield _report(kind.name, None, isolation, needed=needed)
        for image in kind.images:
            yield await _examine_image(kind, image, sandboxes, live=live)
    elif live or kind.provider.starts_freely:
        yield await _try_sandbox(kind, kind.name, None, sandboxes, isolation, needed=needed)
    else:
        text = f"{isolation}; --live runs a command in it"
        yield Finding(_SANDBOXES, kind.name, True, text, needed=needed, untried=True)


async def _examine_image(kind: _Kind, image: str, sandboxes: Sandboxes, *, live: bool) -> Finding:
    name, needed = f"image {image}", any(spec.image == image for spec in kind.specs)
    if (images := kind.provider.images()) is not None:
        try:
            with closing(images):
                is_here = images.find(image) is not None
        except AgentbenchError as error:
            return Finding(_SANDBOXES, name, False, str(error), needed=needed)
        if not is_here and is_local(image):  # no registry has it, so pulling is no advice
            return Finding(_SANDBOXES, name, False, str(not_built(image, kind.name)), needed=needed)
        if not is_here:
            text = "is not on this machine; the first run that needs it pulls it"
            return Finding(_SANDBOXES, name, None, text, needed=needed)
    if live:
        return await _try_sandbox(kind, name, image, sandboxes, f"sandbox {kind.name}", needed=needed)
    text = f"sandbox {kind.name}; --live runs a command in a container of it"
    return Finding(_SANDBOXES, name, True, text, needed=needed, untried=True)


async def _try_sandbox(
    kind: _Kind, name: str, image: str | None, sandboxes: Sandboxes, text: str, *, needed: bool
) -> Finding:
    """Return the finding `name` on a sandbox that ran a command, with the time of its start, as each run needs it."""
    try:
        settings = kind.trial(image)
    except UnavailableError as error:  # no run profile names the kind
        return Finding(_SANDBOXES, name, None, f"{text}; not tried: {error}", needed=needed)
    try:
        seconds = await _time_command(sandboxes, sandboxes.spec(settings))
    except AgentbenchError as error:
        return Finding(_SANDBOXES, name, False, str(error), needed=needed)
    return Finding(_SANDBOXES, name, True, f"{text}; ran a command in {seconds:.2f} s", needed=needed)


async def _time_command(sandboxes: Sandboxes, spec: SandboxSpec) -> float:
    """Return the seconds that a sandbox took to start and to run a command. Raises AgentbenchError if it failed."""
    started = time.perf_counter()
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "doctor"))
    try:
        result = await sandbox.exec(_TRIAL, seconds=_TRIAL_SECONDS)
        seconds = time.perf_counter() - started
    finally:
        await sandbox.stop()
    if result.exit_code != 0:
        end = result.killed or f"exit code {result.exit_code}"
        raise UnavailableError(f"a trial command failed ({end}): {result.output.strip() or 'no output'}")
    return seconds


def _list_engines(profiles: Sequence[RunProfile]) -> list[str]:
    """Return the programs that the profiles name."""
    packs: Iterable[PackNeeds] = load_extensions("doctor").values()
    engines = {engine for pack in packs for each in profiles for engine in pack.engines(each)}
    return sorted(engines - extension_names("sandbox"))


def _examine_engine(cli: str, *, needed: bool, live: bool) -> Finding:
    name = f"container engine {cli}"
    problem = find_engine_problem(cli, starts=live)
    if problem is None and not live:
        return Finding(_SANDBOXES, name, None, "is installed; --live starts it to see", needed=needed, untried=True)
    return _report(name, problem, "answers", needed=needed)


def _examine_choice(profile: RunProfile, sandboxes: Sandboxes) -> Finding:
    """Return the sandbox that the profile chooses for a case that has no sandbox settings.

    The findings on cases report whether a case needs it.
    """
    settings = profile.sandbox_settings
    name = f"profile {profile.run_profile_id}"
    try:
        kind = sandboxes.spec(settings).kind
    except UnavailableError as error:
        return Finding(_SANDBOXES, name, False, str(error))
    text = f"`sandbox: {kind}`"
    if settings.type == AUTO:
        text = f"`sandbox: auto` takes {kind}"
    if (weakness := provider_of(kind).weakness(settings)) is not None:
        text += f": {weakness}"
    return Finding(_SANDBOXES, name, True, text)
