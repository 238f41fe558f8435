"""Findings of `agentbench doctor` on models, MCP servers and sandboxes, each tried the way a session uses it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_agentbench.cli.doctor_needs import Needs, PackNeeds
from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.job import CHAT_JUDGE
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.extensions import find_extension, load_extensions
from pytest_agentbench.models.routes import DEFAULT_BASE_URL, describe_route, missing_key, resolve_model
from pytest_agentbench.records.case import Case, McpServer, Model, SandboxSettings
from pytest_agentbench.secrets.redaction import strip_credentials
from pytest_agentbench.tools.mcp.launching import find_problem, server_refusal
from pytest_agentbench.workspaces.containers.compose import compose_problem
from pytest_agentbench.workspaces.containers.daemon import docker_problem
from pytest_agentbench.workspaces.containers.engines import engine_problem, missing_engine
from pytest_agentbench.workspaces.containers.images import has_image, is_local, not_built
from pytest_agentbench.workspaces.sandboxes.base import SandboxProvider, SandboxSpec, likeness_of
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem
from pytest_agentbench.workspaces.sandboxes.bwrap import closes_abstract_sockets
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

if TYPE_CHECKING:
    import httpx2


_REPLY_SECONDS = 5.0
_MODELS = "models"


class Models:
    """The models of a root, and those that the judges of profiles name: these are needed."""

    def __init__(self, root: ConfigRoot, profiles: Sequence[EvaluationProfile]) -> None:
        declared = root.models()
        self._judges = {name for profile in profiles for name in _list_judge_models(profile)}
        # A profile's judges are not asked about models with a judge of their own, as scripted ones have.
        if declared.models and all(entry.judge is not None for entry in declared.models):
            self._judges = {entry.judge for entry in declared.models if entry.judge is not None}
        self._found: list[Model] = []
        self._refused: list[Finding] = []
        for name in dict.fromkeys([*(entry.model_id for entry in declared.models), *sorted(self._judges)]):
            try:
                self._found.append(resolve_model(name, models=declared))
            except ConfigError as error:
                needed = name in self._judges
                self._refused.append(
                    Finding(_MODELS, _name_model(name, needed=needed), False, str(error), needed=needed)
                )
        # One request for each endpoint and key, for any number of models.
        self._asked = {_locate_endpoint(model): model for model in self._found if _can_be_asked(model)}

    def actions(self) -> Iterator[str]:
        """Yield a description of each request that `examine(live=True)` sends."""
        for base_url, variable in self._asked:
            key = f"with the key in {variable}" if variable is not None else "without a key"
            yield f"GET {strip_credentials(base_url)}/models {key}"

    async def examine(self, *, live: bool) -> list[Finding]:
        """Return a finding for each model. Each endpoint is asked once, where this is `live`, else none."""
        # Without `live` no key leaves this process: the findings then report only facts of the files.
        asked = self._asked if live else {}
        replies = dict(zip(asked, await asyncio.gather(*map(_ask_endpoint, asked.values())), strict=True))
        found = [
            _examine_model(model, replies.get(_locate_endpoint(model)), needed=model.model_id in self._judges)
            for model in self._found
        ]
        return [*found, *self._refused]


def _list_judge_models(profile: EvaluationProfile) -> list[str]:
    used = {run.judge_id for run in profile.judge_runs}
    return [
        judge.model for judge in profile.judges if judge.judge_id in used and judge.type == CHAT_JUDGE and judge.model
    ]


def _locate_endpoint(model: Model) -> tuple[str, str | None]:
    return (model.base_url or DEFAULT_BASE_URL).rstrip("/"), model.api_key_env


def _can_be_asked(model: Model) -> bool:
    return not (model.scripted or model.provider or missing_key(model))


def _examine_model(model: Model, reply: tuple[bool, str] | None, *, needed: bool) -> Finding:
    name = _name_model(model.model_id, needed=needed)
    if (problem := missing_key(model)) is not None and not model.provider:
        return Finding(_MODELS, name, False, problem, needed=needed)
    route = describe_route(model)
    if reply is None:
        if model.scripted or model.provider:
            return Finding(_MODELS, name, None if model.provider else True, route, needed=needed)
        return Finding(_MODELS, name, None, f"{route}; --live asks the endpoint", needed=needed, untried=True)
    works, reply_text = reply
    return Finding(_MODELS, name, works, f"{route}; the endpoint {reply_text}", needed=needed)


def _name_model(model_id: str, *, needed: bool) -> str:
    if needed:
        return f"judge {model_id}"
    return model_id


async def _ask_endpoint(model: Model) -> tuple[bool, str]:
    """Return whether the endpoint answers `GET /models`, with a description of its answer."""
    import httpx2

    from pytest_agentbench.bounded.replies import MAX_LISTING, bounded_replies

    base_url, variable = _locate_endpoint(model)
    # Without the openai client: importing it takes a second of CPU.
    headers = {} if variable is None else {"Authorization": f"Bearer {os.environ[variable].strip()}"}
    try:
        # Redirects are not followed by default: the key goes nowhere else.
        async with httpx2.AsyncClient(timeout=_REPLY_SECONDS, event_hooks=bounded_replies(MAX_LISTING)) as client:
            response = await client.get(f"{base_url}/models", headers=headers)
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
        reason = str(error) or type(error).__name__
        return False, f"cannot be reached ({reason}): start it, or correct base_url in models.yaml"
    return _judge_response(response, variable)


def _judge_response(response: httpx2.Response, variable: str | None) -> tuple[bool, str]:
    status = response.status_code
    if status in (401, 403):
        if variable:
            return False, f"refuses the key in {variable} (HTTP {status})"
        return True, "answers, to keys only"
    if 300 <= status < 400:
        return False, f"redirects elsewhere (HTTP {status}), which no request follows: correct base_url in models.yaml"
    # Some gateways serve completions alone.
    if status in (404, 405):
        return True, f"answers, but gives no list of models (HTTP {status})"
    if status < 400:
        return True, "answers"
    return False, f"answers HTTP {status}"


_SERVERS = "MCP servers"


def examine_servers(cases: Sequence[Case], root: ConfigRoot, profiles: Sequence[RunProfile]) -> Iterator[Finding]:
    """Yield a finding for each server of profiles, then for each one that cases declare or name."""
    findings: dict[str, Finding] = {}
    for profile in profiles:
        for name, server in profile.mcp_servers.items():
            label = f"{profile.run_profile_id}/{name}"
            findings[label] = _examine_server(label, name, server, root, profile)
        # Cases below one servers.yaml name the same servers, so the first finding of a name is enough.
        for case in cases:
            for finding in _examine_case(case, root, profile):
                findings.setdefault(finding.name, finding)
    yield from findings.values()


def _examine_case(case: Case, root: ConfigRoot, profile: RunProfile) -> Iterator[Finding]:
    """Yield findings for the servers of the case under the profile, without the profile's own."""
    own = {name: server for name, server in case.mcp_servers.items() if server is not None}
    for name, server in own.items():
        yield _examine_server(f"{case.case_id}/{name}", name, server, root, profile)
    names = sorted(_list_named_servers(case, profile) - own.keys() - profile.mcp_servers.keys())
    if not names:
        return
    optional = {name for part in case.case_parts for name in part.optional_servers(case.case_id, profile, ())}
    try:
        declared = root.mcp_servers(case.path)
    except ConfigError as error:
        yield Finding(_SERVERS, "servers files", False, str(error), needed=True)
        return
    for name in names:
        if name in declared:
            finding = _examine_server(name, name, declared[name], root, profile)
            yield replace(finding, needed=name not in optional)
        else:
            yield _report_undeclared(name, declared)


def _list_named_servers(case: Case, profile: RunProfile) -> set[str]:
    """Return the names of the servers that the case's file lists."""
    offered = {name for part in case.case_parts for name in part.offered_servers(case.case_id, profile, ())}
    return {*case.mcp_servers, *offered}


def _examine_server(label: str, name: str, server: McpServer, root: ConfigRoot, profile: RunProfile) -> Finding:
    if (refusal := server_refusal(name, server, root, profile)) is not None:
        return Finding(_SERVERS, label, False, refusal, needed=True)
    # A server by URL belongs to somebody else. A request could cost money and reveals the user.
    if server.command is None:
        return Finding(_SERVERS, label, None, f"is at {server.url}; it is asked when a run needs it", needed=True)
    sandbox = server.sandbox or profile.sandbox
    kind = sandbox.type if isinstance(sandbox, SandboxSettings) else sandbox
    # In a container programs are the image's, so only variables can be missing here.
    missing = find_problem(server, os.environ, "docker" if likeness_of(kind) == "docker" else "local")
    return Finding(_SERVERS, label, missing is None, missing or server.command, needed=True)


def _report_undeclared(name: str, declared: Mapping[str, McpServer]) -> Finding:
    text = f"no servers.yaml, commands.json or run profile declares it{suggest(name, declared.keys())}"
    return Finding(_SERVERS, name, False, text, needed=True)


_SANDBOXES = "sandboxes"
_TRIAL_SECONDS = 30.0
_TRIAL = ("/bin/sh", "-c", "echo works")


def list_sandbox_actions(profiles: Sequence[RunProfile], needs: Sequence[Needs]) -> Iterator[str]:
    """Yield a description of each program that `examine_sandboxes(live=True)` starts and that a file names."""
    for cli in _list_engines(profiles):
        yield f"run `{cli} version`, the container engine of a run profile"
    if docker_problem() is None:
        for image in _list_images(profiles, needs):
            yield f"run a command in a container of {image}, where that is on this machine"


async def examine_sandboxes(
    profiles: Sequence[RunProfile], needs: Sequence[Needs], sandboxes: Sandboxes, *, hooks: bool, live: bool
) -> list[Finding]:
    """Return findings for docker, bubblewrap, added sandboxes and each profile's choice.

    `hooks`: Python hooks of the cases need bubblewrap. Images are neither pulled nor built. Programs and images that
    files name are started only if `live`.
    """
    every = {spec for need in needs for spec in need.sandboxes}
    wanted = {spec for spec in every if spec.cli is None}
    kinds = {spec.kind for spec in wanted}
    needed = {spec.image for spec in wanted if spec.image is not None}
    findings = [_report("docker", docker_problem(), "a daemon answers", needed="docker" in kinds)]
    if findings[0].works:
        images = _list_images(profiles, needs)
        findings += [await _examine_image(sandboxes, image, needed=image in needed, live=live) for image in images]
        if any(spec.compose is not None for spec in wanted):
            findings.append(_report("compose", compose_problem(), "services of cases can be started", needed=True))
    for cli in _list_engines(profiles):
        findings.append(_examine_engine(cli, needed=any(spec.cli == cli for spec in every), live=live))
    findings.append(await _examine_bubblewrap(sandboxes, needed="bubblewrap" in kinds or hooks))
    added: Mapping[str, SandboxProvider] = load_extensions("sandbox")
    findings += [
        _report(name, provider.problem(), _isolation(provider), needed=name in kinds)
        for name, provider in added.items()
    ]
    return [*findings, *(_examine_choice(profile, sandboxes) for profile in profiles)]


def _list_engines(profiles: Sequence[RunProfile]) -> list[str]:
    """Return the programs that the profiles name."""
    packs: Iterable[PackNeeds] = load_extensions("doctor").values()
    return sorted({cli for pack in packs for each in profiles for cli in pack.engines(each)})


def _list_images(profiles: Sequence[RunProfile], needs: Sequence[Needs]) -> list[str]:
    """Return the images that docker's daemon is to run, of profiles and of cases."""
    images = {image for each in profiles if (image := each.sandbox_settings.image) is not None}
    specs = (spec for need in needs for spec in need.sandboxes if spec.cli is None)
    return sorted(images | {spec.image for spec in specs if spec.image is not None})


def _report(name: str, problem: str | None, text: str, *, needed: bool) -> Finding:
    """Return a finding on a part that was tried. `text` describes a part without a problem."""
    return Finding(_SANDBOXES, name, problem is None, problem or text, needed=needed)


def _examine_engine(cli: str, *, needed: bool, live: bool) -> Finding:
    name = f"container engine {cli}"
    problem = engine_problem(cli) if live else missing_engine(cli)
    if problem is None and not live:
        return Finding(_SANDBOXES, name, None, "is installed; --live starts it to see", needed=needed, untried=True)
    return _report(name, problem, "answers", needed=needed)


async def _examine_image(sandboxes: Sandboxes, image: str, *, needed: bool, live: bool) -> Finding:
    name = f"image {image}"
    try:
        if not has_image(image):
            # Of our own building: no registry has it, so pulling is no advice.
            if is_local(image):
                return Finding(_SANDBOXES, name, False, str(not_built(image)), needed=needed)
            text = f"is not on this machine; the first run that needs it pulls it, or `docker pull {image}` does"
            return Finding(_SANDBOXES, name, None, text, needed=needed)
        if not live:
            text = "is on this machine; --live runs a command in a container of it"
            return Finding(_SANDBOXES, name, True, text, needed=needed, untried=True)
        text = (
            f"a container ran a command in {await _try_sandbox(sandboxes, SandboxSettings(type='docker', image=image))}"
        )
    except AgentbenchError as error:
        return Finding(_SANDBOXES, name, False, str(error), needed=needed)
    return Finding(_SANDBOXES, name, True, text, needed=needed)


async def _examine_bubblewrap(sandboxes: Sandboxes, *, needed: bool) -> Finding:
    problem = bubblewrap_problem()
    # Tried and not only looked for: user namespaces may be off (Ubuntu 24.04, containers).
    if problem is None:
        try:
            text = f"ran a command in {await _try_sandbox(sandboxes, SandboxSettings(type='bubblewrap'))}"
            return Finding(_SANDBOXES, "bubblewrap", True, text, needed=needed)
        except AgentbenchError as error:
            problem = str(error)
    return Finding(_SANDBOXES, "bubblewrap", False, problem, needed=needed)


def _isolation(provider: SandboxProvider) -> str:
    like = provider.isolates_like
    if like == "local":
        return "isolates nothing, according to its provider"
    return f"isolates like {like}"


async def _try_sandbox(sandboxes: Sandboxes, settings: SandboxSettings) -> str:
    """Return how long a sandbox took to start and to run a command. Raises AgentbenchError if it failed."""
    # The whole start, as each run pays it.
    started = time.perf_counter()
    spec: SandboxSpec = sandboxes.spec(settings)
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "doctor"))
    try:
        result = await sandbox.exec(_TRIAL, seconds=_TRIAL_SECONDS)
        seconds = time.perf_counter() - started
    finally:
        await sandbox.stop()
    if result.exit_code != 0:
        end = result.killed or f"exit code {result.exit_code}"
        raise UnavailableError(f"a trial command failed ({end}): {result.output.strip() or 'no output'}")
    return f"{seconds:.2f} s"


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
    if settings.type == "auto":
        text = f"`sandbox: auto` takes {kind}"
    if kind == "bubblewrap" and settings.network == "allow" and not closes_abstract_sockets():
        text += (
            ", whose commands reach the abstract unix sockets of this machine (D-Bus, X, agents) with "
            "`network: allow`: Linux 6.12 with Landlock closes them, and docker has none"
        )
    if (provider := find_extension("sandbox", kind)) is not None:
        text += f", which {_isolation(provider)}"
    if kind == "local":
        text += ", which isolates nothing"
    return Finding(_SANDBOXES, name, True, text)
