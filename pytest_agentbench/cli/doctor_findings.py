"""Findings of `agentbench doctor` on models and MCP servers, each tried the way a session uses it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.job import CHAT_JUDGE
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.routes import DEFAULT_BASE_URL, describe_route, missing_key, resolve_model
from pytest_agentbench.records.case import Case, McpServer, Model
from pytest_agentbench.secrets.redaction import strip_credentials
from pytest_agentbench.tools.mcp.launching import choose_sandbox, find_problem, server_refusal

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
    missing = find_problem(server, os.environ, choose_sandbox(server, profile.sandbox_settings).type)
    return Finding(_SERVERS, label, missing is None, missing or server.command, needed=True)


def _report_undeclared(name: str, declared: Mapping[str, McpServer]) -> Finding:
    text = f"no servers.yaml, commands.json or run profile declares it{suggest(name, declared.keys())}"
    return Finding(_SERVERS, name, False, text, needed=True)
