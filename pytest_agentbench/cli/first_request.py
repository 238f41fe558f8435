"""The first request of a case's run, as it would be sent, and where each of its fields comes from. Nobody is asked."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.additions import additions_for, verified_names
from pytest_agentbench.cli.places import find_run_profile, list_case_files
from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.documents import Loc, make_located_error, read_document
from pytest_agentbench.config.field_doubts import place_doubts
from pytest_agentbench.config.profiles import RunProfile, SuiteFile, merge_runner_settings
from pytest_agentbench.config.request_fields import EXTRA_BODY, spread_extra_body
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.engine.run_plan import require_input
from pytest_agentbench.engine.services import Registry, build_registry
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.client import Connection, Endpoints
from pytest_agentbench.models.connections import HttpConnection
from pytest_agentbench.models.replies import RawReply
from pytest_agentbench.models.routes import describe_route, find_unknown_overrides, list_near_models, resolve_model
from pytest_agentbench.models.spelling import Spelling
from pytest_agentbench.records.case import Case, Model, header_variable
from pytest_agentbench.runners.base import RunContext
from pytest_agentbench.runners.kinds import RunnerKind
from pytest_agentbench.secrets.redaction import Redactor, strip_credentials
from pytest_agentbench.sources.case_source import BadRow, OpenedSource, SourceCase, SourceRequest
from pytest_agentbench.sources.discovery import open_source
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

if TYPE_CHECKING:
    import httpx2

_HIDDEN = "***"
_MAY_BE_KEY = re.compile(r"(?i)key|token|secret|signature|^sig$|^code$|auth|cookie|password")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of a session that decide a request: model, case, run profile and suite."""

    model: str
    case: str
    run_profile: str | None = None
    suite: str | None = None


@dataclass(frozen=True)
class FirstRequest:
    """A request as the endpoint gets it, with hidden keys. `origins` maps each field of the body to its source."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    origins: Mapping[str, str]
    warnings: Sequence[str]

    def to_json(self) -> str:
        """Return it as an object {url, headers, body, origins, warnings}."""
        fields = {name: getattr(self, name) for name in ("url", "headers", "body", "origins", "warnings")}
        return json.dumps(fields, ensure_ascii=False, indent=2)

    def to_text(self) -> str:
        """Return it for people."""
        lines = [f"{self.method} {self.url}", *(f"{name}: {value}" for name, value in self.headers.items()), ""]
        lines += [json.dumps(self.body, ensure_ascii=False, indent=2), ""]
        for name, origin in self.origins.items():
            value = json.dumps(self.body[name], ensure_ascii=False)
            if len(value) <= 60:
                name = f"{name} {value}"
            lines.append(f"{name}: {origin}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def find_first_request(paths: Sequence[Path], roots: SessionRoots, options: RequestOptions) -> FirstRequest:
    """Return the first request of the run of a case below the paths.

    Raises ConfigError if the case cannot be run, or if only a run knows its first request.
    """
    registry = build_registry()
    found_case = _find_case(paths, roots, registry, options)
    profile, suite, case = found_case.profile, found_case.suite, found_case.case
    if problems := find_unknown_overrides(profile, found_case.root, {options.model}):
        raise make_located_error(found_case.root.find("run_profiles", options.run_profile or ""), problems)
    model = resolve_model(options.model, models=found_case.root.models(), suite=suite)
    settings = merge_runner_settings(profile, model.model_id, case.runner.overrides, model.parameters)
    sent = asyncio.run(_send_nowhere(case, model, profile, settings, registry))
    body = json.loads(sent.body)
    layers = list(_list_layers(found_case, model))
    origins = dict(_find_origins(body, sent.spelling, layers, case, model))
    redact = Redactor()
    redact.know(model.variables)
    files = [each for each in (suite, profile, found_case.root.models()) if each is not None]
    warnings = [text for file in files for text in place_doubts(file)]
    warnings += [text for text, _ in found_case.opened.field_doubts()]
    warnings += list_near_models([options.model], found_case.root.models(), suite)
    host = describe_route(model)
    pairs = [pair for layer in layers for pair in spread_extra_body(layer.fields).items()]
    set_fields = {name for name, value in pairs if value is not None}
    warnings += [
        f"{name}: has no effect: its endpoint ignores it ({host})"
        for name in sent.spelling.dialect.ignored
        if name in body or name in set_fields
    ]
    return FirstRequest(
        sent.method,
        redact.text(sent.url),
        {name: redact.text(value) for name, value in sent.headers.items()},
        redact.value(body),
        {name: _relate(origin) for name, origin in origins.items()},
        [redact.text(text) for text in dict.fromkeys(warnings)],
    )


@dataclass(frozen=True, slots=True)
class _FoundCase:
    case: Case
    opened: OpenedSource
    root: ConfigRoot
    profile: RunProfile
    suite: SuiteFile | None


def _find_case(paths: Sequence[Path], roots: SessionRoots, registry: Registry, options: RequestOptions) -> _FoundCase:
    named_path, ids = Path(options.case).absolute(), set[str]()
    for place in paths:
        for path in list_case_files(place):
            root = roots.of(path)
            profile = find_run_profile(root, options.run_profile)
            outside = profile.allow_outside_paths
            known_names = verified_names(registry.known, additions_for(path.parent))
            request = SourceRequest(root, known_names, allow_outside=outside, run_profile=profile)
            try:
                opened = open_source(path, request)
                rows = () if opened.is_remote else opened.rows()
                for row in rows:
                    if isinstance(row, SourceCase) and (row.case_id == options.case or path == named_path):
                        suite = root.suite(options.suite) if options.suite else None
                        return _FoundCase(row.make(), opened, root, profile, suite)
                    if not isinstance(row, BadRow):
                        ids.add(row.case_id)
            except ConfigError:
                if path == named_path or path.parent.name == options.case:
                    raise
    raise ConfigError(f"--show-request: found no case {options.case!r}{suggest(options.case, ids)}")


@dataclass(frozen=True, slots=True)
class _SentRequest:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    spelling: Spelling


class _RequestMade(Exception):
    def __init__(self, request: httpx2.Request | None, body: bytes) -> None:
        super().__init__()
        self.request, self.body = request, body


class _Nowhere:
    """A connection that makes requests as the real one does, and ends the run with the first."""

    def __init__(self, real: Connection) -> None:
        self._real = real

    async def send(self, body: bytes, headers: Mapping[str, str], stall_seconds: float | None = None) -> RawReply:
        request = await self._real.make_request(body, headers) if isinstance(self._real, HttpConnection) else None
        raise _RequestMade(request, body)

    async def close(self) -> None:
        await self._real.close()


class _EndpointsNowhere(Endpoints):
    def _connect(self, model: Model) -> Connection:
        return _Nowhere(super()._connect(model))


async def _send_nowhere(
    case: Case, model: Model, profile: RunProfile, settings: Mapping[str, Any], registry: Registry
) -> _SentRequest:
    """Let the case's runner run up to its first request."""
    place = f"{case.path}:{case.line}:1"
    runner = registry.runners.get(case.runner.type)
    if runner is None:
        raise ConfigError(
            f"{place}: the requests of the runner {case.runner.type} are known only to a session: a conftest.py or "
            "plugin adds it, and neither is loaded here"
        )
    require_input(runner, case.runner.type, case)
    if isinstance(runner, RunnerKind) and runner.own_tools:
        raise ConfigError(f"{place}: the runner {case.runner.type} starts a program that makes the requests")
    if case.mcp_servers or profile.mcp_servers:
        raise ConfigError(f"{place}: the first request lists tools of MCP servers, which this command does not start")
    if model.provider is not None:
        raise ConfigError(f"{place}: {describe_route(model)}: only the plugin knows its requests")
    workspaces = Workspaces()
    endpoints = _EndpointsNowhere(providers=registry.providers)
    try:
        client = endpoints.client(model)
        sandboxes = Sandboxes(workspaces, starts_engines=False)
        context = RunContext(
            case=case,
            open_sandboxes=lambda: sandboxes,
            model=model,
            settings=settings,
            client=client,
            tools=registry.tools,
            sandbox_spec=lambda: sandboxes.spec(profile.sandbox_settings, case.sandbox),
            search=registry.search,
            network=profile.network,
        )
        try:
            await runner(case, context)
        except _RequestMade as made:
            method, url, headers = _show_request(made.request, model, client.spelling.dialect.auth_header)
            return _SentRequest(method, url, headers, made.body, client.spelling)
        raise ConfigError(f"{place}: the runner {case.runner.type} ended without a request")
    finally:
        await endpoints.close()
        workspaces.close()


def _show_request(request: httpx2.Request | None, model: Model, auth_header: str) -> tuple[str, str, dict[str, str]]:
    """Return method, address and headers, their keys hidden."""
    if request is None:
        return "POST", f"the scripts of the case ({model.model_id} is asked offline)", {}
    secret = {auth_header.lower(), "authorization"}
    secret |= {name.lower() for name, value in model.headers.items() if header_variable(value) is not None}
    headers = {name: _HIDDEN if name in secret else _hide(name, value) for name, value in request.headers.items()}
    address = strip_credentials(str(request.url.copy_with(query=None)))
    if query := "&".join(f"{name}={_hide(name, value)}" for name, value in request.url.params.multi_items()):
        address += f"?{query}"
    return request.method, address, headers


def _hide(name: str, value: str) -> str:
    if _MAY_BE_KEY.search(name):
        return _HIDDEN
    return value


@dataclass(frozen=True, slots=True)
class _Layer:
    """A mapping of request fields with its file and its place in that file."""

    path: Path
    loc: Loc
    fields: Mapping[str, Any]


def _list_layers(found_case: _FoundCase, model: Model) -> Iterator[_Layer]:
    """Yield the layers of the request's fields in the order in which a session merges them."""
    models, suite, profile, case = found_case.root.models(), found_case.suite, found_case.profile, found_case.case
    for file in (models, suite):
        if file is None:
            continue
        for each in file.models:
            if each.model_id != model.model_id or each.origin is None or each.origin.path is None:
                continue
            path = each.origin.path
            at: Loc = ("models", _index_of(path, model.model_id))
            yield _Layer(path, (*at, "parameters"), each.parameters)
            if file is suite:
                yield _Layer(path, at, each.model_extra or {})
                yield _Layer(path, (*at, "primary_params"), getattr(each, "primary_params", {}))
    if profile.origin is not None and profile.origin.path is not None:
        yield _Layer(profile.origin.path, ("runner_defaults",), profile.runner_defaults)
        own = profile.model_overrides.get(model.model_id, {})
        yield _Layer(profile.origin.path, ("model_overrides", model.model_id), own)
    yield _Layer(found_case.opened.file, ("runner",), case.runner.overrides)


def _index_of(path: Path, model_id: str) -> int:
    ids = [each.get("model_id") for each in read_document(path).data["models"]]
    if model_id in ids:
        return ids.index(model_id)
    return 0


_NO_REQUEST: Mapping[str, Any] = {"model": "", "messages": []}
_CASE_FIELDS = {"messages": "messages", "input": "messages", "system": "messages", "tools": "context"}
"""The fields of a request that a case decides, with the field of its `input`."""


def _find_origins(
    body: Mapping[str, Any], spelling: Spelling, layers: Sequence[_Layer], case: Case, model: Model
) -> Iterator[tuple[str, str]]:
    said: dict[str, str] = {}
    bare = spelling.write(spelling.spell(_NO_REQUEST)[0])
    for layer in layers:
        for name, value in spread_extra_body(layer.fields).items():
            if value is None:
                continue
            # Names of the endpoint: `max_tokens` may be `max_completion_tokens` there
            made = spelling.write(spelling.spell({**_NO_REQUEST, name: value})[0])
            spelled = {each for each in made if each not in bare or each == name or made[each] != bare[each]}
            loc = (*layer.loc, name) if name in layer.fields else (*layer.loc, EXTRA_BODY, name)
            said |= dict.fromkeys(spelled, _place(layer.path, loc))
    if model.prompt_cache is not None:
        entry = next(layer for layer in layers if layer.loc[:1] == ("models",))
        said.setdefault("prompt_cache_key", _place(entry.path, (*entry.loc[:2], "prompt_cache")))
    here = f"{case.path}:{case.line}"
    for name in body:
        if name == "model":
            yield name, _origin_of_name(layers)
        elif name in _CASE_FIELDS:
            yield name, _place(case.path, ("input", _CASE_FIELDS[name])) if case.dataset is None else here
        else:
            asked_by = f"api: {model.api}" if name in bare else f"the runner {case.runner.type}"
            yield name, said.get(name, asked_by)


def _origin_of_name(layers: Sequence[_Layer]) -> str:
    """Return the source of the endpoint's name for the model: an entry of a file, else the command line."""
    for layer in reversed(layers):
        if layer.loc[:1] == ("models",) and len(layer.loc) > 1:
            entry = read_document(layer.path).data["models"][layer.loc[1]]
            for field in ("requested_model", "openrouter_model", "model_name"):
                if field in entry:
                    return _place(layer.path, (*layer.loc[:2], field))
    entries = [layer for layer in layers if layer.loc[:1] == ("models",)]
    if entries:
        return _place(entries[0].path, (*entries[0].loc[:2], "model_id"))
    return "--model"


def _place(path: Path, loc: Loc) -> str:
    if path.suffix not in (".yaml", ".yml"):
        return f"{path}:1"
    return f"{path}:{read_document(path).problem(loc, '', at_key=True).line}"


def _relate(origin: str) -> str:
    """Return a place as a path relative to the current folder, if the file is below it."""
    path, colon, line = origin.rpartition(":")
    if not colon or not os.path.isabs(path) or (related := os.path.relpath(path)).startswith(".."):
        return origin
    return f"{related}:{line}"
