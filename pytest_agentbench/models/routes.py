"""Models before a request: the endpoint, key and name of each, and the cassettes that replace them.

Sessions that ask no model import nothing else of this room: this module contains everything that others and the
clients must agree on.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.dialects import resolve_dialect
from pytest_agentbench.config.documents import Loc, make_located_error, read_document
from pytest_agentbench.config.keys import KeyGrants, find_key_problem
from pytest_agentbench.config.model_entries import ModelEntry, SuiteModel, WireFields
from pytest_agentbench.config.profiles import ModelsFile, RunProfile, SuiteFile
from pytest_agentbench.config.request_fields import spread_extra_body
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import ApiName, Case, CassetteMode, Dialect, Limits, Model, header_variable
from pytest_agentbench.secrets.redaction import Redactor, strip_credentials

DEMO = "demo"
"""The model id that always answers from scripts next to the cases, with or without an entry in models.yaml."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Identity of one of several equal requests, as a text, and the task of the run that makes it."""

    text: str
    owner: asyncio.Task[Any]

    @classmethod
    def mark(cls, text: str) -> None:
        """Mark the further requests of this task, within its current draw."""
        before, task = DRAW.get(), asyncio.current_task()
        if before is not None:
            DRAW.set(cls(f"{before.text} {text}", before.owner))
        elif task is not None:
            DRAW.set(cls(text, task))


DRAW: ContextVar[Draw | None] = ContextVar("DRAW", default=None)

CASSETTES = "cassettes"
"""Folder of the cassettes, next to the file of the case."""

CASE_HEADER = "X-Agentbench-Case"
"""Names the case (percent-encoded) that a request belongs to. Sent to scripted models only."""

ROLE_HEADER = "X-Agentbench-Role"
"""Names the role in the run that a request belongs to. Sent to scripted models only."""

_NO_KEY = "none"
DEFAULT_BASE_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
_OPENROUTER_KEY = "OPENROUTER_API_KEY"
_OPENAI_KEY = "OPENAI_API_KEY"
_NATIVE: Mapping[ApiName | None, tuple[str, str]] = {
    "messages": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"),
}
"""Default address of an API, and the variable of its key."""

_Written = Sequence[ModelEntry | SuiteModel]


def resolve_model(
    model_id: str, *, models: ModelsFile, suite: SuiteFile | None = None, environ: Mapping[str, str] = os.environ
) -> Model:
    """Return the model that `--model`, a suite or a judge names.

    A model of the suite, completed by the entry of `models.yaml` with the same id (the suite's fields win); else that
    entry; else `model_id` is the name of a model at the default endpoint (seed 002, spec/config.md "models.yaml").
    Raises ConfigError if its key would be sent to a host that it does not belong to.
    """
    suite_models = suite.models if suite is not None else ()
    of_suite = next((model for model in suite_models if model.model_id == model_id), None)
    entry = models.get(model_id)
    fields = _take_given_fields(entry) | _take_given_fields(of_suite)
    names = (of_suite and of_suite.declared_name, entry and entry.requested_model, model_id)
    requested = next(name for name in names if name)
    scripted = fields.get("scripted", model_id == DEMO and "base_url" not in fields)
    provider = entry.provider if entry else None  # of a suite's model it is a part of the name
    written = [source for source in (of_suite, entry) if source is not None]

    ways = _Ways(model_id, requested, written, models, environ)
    asks = not (scripted or provider)
    # No key is needed if none is sent: a missing one must not stop an offline run.
    way: dict[str, Any] = {"api_key_env": None}
    if asks:
        way = ways.find(fields, "base_url", "api_key_env", "headers")
    model = Model(
        model_id=model_id,
        requested_model=requested,
        label=fields.get("label"),
        **way,
        dialect=fields.get("dialect", "auto"),
        dialect_overrides=fields.get("dialect_overrides"),
        anthropic_version=fields.get("anthropic_version"),
        provider=provider,
        scripted=scripted,
        judge=fields.get("judge") or (model_id if scripted else None),
        parameters=_merge_parameters(entry, of_suite),
        prices=fields.get("prices"),
        limits=fields.get("limits", Limits()),
        cassettes=fields.get("cassettes"),
        stream=fields.get("stream", False),
        stall_seconds=fields.get("stall_seconds"),
        batch=fields.get("batch"),
        prompt_cache=fields.get("prompt_cache"),
        # Requests of one suite share a prefix: OpenAI routes requests with one key to one cache.
        prompt_cache_key=f"{suite.suite_id if suite else 'default'}-{model_id}",
        # Not sent with any request. It stays in the fingerprint, so that earlier runs are found.
        options={"provider": of_suite.provider} if of_suite is not None and of_suite.provider else {},
    )
    if model.prompt_cache is not None and not scripted:
        dialect = resolve_dialect(model.dialect, model.base_url or DEFAULT_BASE_URL, model.dialect_overrides)
        if provider or not caches_prompts(model, dialect):
            raise _make_model_error(model_id, _NO_CACHE, written, ("prompt_cache",))
    wires = {
        name: model.model_copy(update=ways.find(_fields_of_wire(fields, name, wire), "wires"))
        for name, wire in fields.get("wires", {}).items()
        if asks and name != model.api
    }
    if wires:
        return model.model_copy(update={"wires": wires})
    return model


@dataclass(frozen=True, slots=True)
class _Ways:
    """The routes to a model: that of its entry, and those of its further APIs."""

    model_id: str
    requested: str
    written: _Written
    models: ModelsFile
    environ: Mapping[str, str]

    def find(self, fields: Mapping[str, Any], *about: str) -> dict[str, Any]:
        """Return the address of requests and their key. Raises ConfigError at `about` if the key may not go there."""
        base_url, key = _find_route(fields, self.requested, self.environ)
        headers = fields.get("headers", {})
        for variable in filter(None, (key, *map(header_variable, headers.values()))):
            problem = _find_key_problem(base_url or DEFAULT_BASE_URL, variable, self.written, self.models, self.environ)
            if problem is not None:
                raise _make_model_error(self.model_id, problem, self.written, about)
        base_url, query = _split_query(base_url)
        query |= fields.get("query", {})
        api = fields.get("api", "chat")
        return {"base_url": base_url, "api_key_env": key, "headers": headers, "query": query, "api": api}


def _fields_of_wire(fields: Mapping[str, Any], api: ApiName, wire: WireFields) -> dict[str, Any]:
    """Return the fields of a model for one of its further APIs."""
    wire_fields = {**fields, "api": api}
    if wire.api_key_env is not None:
        wire_fields["api_key_env"] = wire.api_key_env
    if wire.base_url is not None:
        wire_fields["base_url"] = wire.base_url
        # The entry's headers may contain keys: they go to no other address.
        wire_fields.pop("headers", None)
        wire_fields.pop("query", None)
    return wire_fields


_NO_CACHE = (
    "no request asks this endpoint to cache prompts: it does so without being asked, or never; leave prompt_cache out "
    "(behind a gateway that accepts marks or keys, set `dialect_overrides: {prompt_cache: marks}` or `key`)"
)


def caches_prompts(model: Model, dialect: Dialect) -> bool:
    """Return whether something in a request makes the model's endpoint cache prompts."""
    return takes_marks(model, dialect) or dialect.prompt_cache == "key"


def takes_marks(model: Model, dialect: Dialect) -> bool:
    """Return whether messages carry marks for caching."""
    # Routers pass marks on to Anthropic's models only.
    routed = dialect.prompt_cache == "marks" and model.requested_model.rpartition("/")[0] in ("", "anthropic")
    return routed or model.api == "messages"


def _merge_parameters(entry: ModelEntry | None, of_suite: SuiteModel | None) -> dict[str, Any]:
    """Return the request fields of a model; the suite's take precedence over those of models.yaml."""
    layers: list[Mapping[str, Any]] = []
    if entry is not None:
        layers.append(entry.parameters)
    if of_suite is not None:
        layers += [of_suite.parameters, of_suite.request_fields, of_suite.primary_params]
    return {name: value for layer in layers for name, value in spread_extra_body(layer).items()}


def find_unknown_overrides(profile: RunProfile, root: ConfigRoot, named: Iterable[str] = ()) -> list[tuple[Loc, str]]:
    """Return the model_overrides of models that no models.yaml and no suite declares, and that are not `named`."""
    if not profile.model_overrides:
        return []
    known = {*root.list_model_ids(), *named, DEMO}
    return [
        (("model_overrides", name), f"unknown model_id {name!r}{suggest(name, known)}")
        for name in profile.model_overrides
        if name not in known
    ]


def list_near_models(ids: Iterable[str], models: ModelsFile, suite: SuiteFile | None) -> list[str]:
    """Return a note for each undeclared model of the command line whose id is similar to a declared one."""
    declared = {entry.model_id for entry in models.models}
    if suite is not None:
        declared |= {model.model_id for model in suite.models}
    return [
        f"--model {name}: no entry of models.yaml has this id, so the default endpoint is asked for a model of that "
        f"name; did you mean {near[0]!r}?"
        for name in ids
        if name not in declared and (near := get_close_matches(name, declared, n=1, cutoff=0.75))
    ]


def missing_key(model: Model, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return why `model` cannot be asked: a variable has no key, or one that cannot be sent. Return None if all have
    one.
    """
    return next(filter(None, (_find_unset(model, variable, environ) for variable in model.variables)), None)


def _find_unset(model: Model, variable: str, environ: Mapping[str, str]) -> str | None:
    key = environ.get(variable, "").strip()
    # As a header it would fail with an error that shows the key.
    if key and not (key.isascii() and key.isprintable()):
        return (
            f"model {model.model_id!r}: the environment variable {variable} contains line breaks or other "
            "characters that no key has; set it again"
        )
    if key:
        return None
    field = "api_key_env" if variable == model.api_key_env else "headers"
    return (
        f"model {model.model_id!r} needs a key: the environment variable {variable} is not set "
        f"({describe_route(model)}). Set it, or name another variable in {field} of the model's entry in "
        f"models.yaml (`none` for an endpoint without keys), or run offline with --model {DEMO}"
    )


def describe_route(model: Model) -> str:
    """Return the destination of requests for `model`, as a phrase for errors and reports."""
    if model.provider:
        return f"{model.model_id} is reached through the provider {model.provider}, which a plugin adds"
    if model.scripted:
        return f"{model.model_id} is scripted: answered offline, from scripts next to the cases"
    route = f"{model.requested_model!r} at {strip_credentials(model.base_url or DEFAULT_BASE_URL)}"
    if not model.variables:
        return f"{route} without a key"
    return f"{route} with the key in {', '.join(model.variables)}"


def _take_given_fields(model: ModelEntry | SuiteModel | None) -> dict[str, Any]:
    """Return the fields that the file sets, without defaults."""
    if model is None:
        return {}
    named = {name: getattr(model, name) for name in model.model_fields_set}
    return {name: value for name, value in named.items() if value is not None}


def _find_key_problem(
    base_url: str, variable: str, written: _Written, models: ModelsFile, environ: Mapping[str, str]
) -> str | None:
    """Return why the key may not be sent there, or None if it may.

    An entry of the session's root with both fields is the user's permission.
    """
    users = [_take_given_fields(entry) for entry in written if entry.origin is not None and entry.origin.is_users]
    users += [_fields_of_wire(fields, *wire) for fields in users for wire in fields.get("wires", {}).items()]
    paired = any(_pairs(fields, base_url, variable) for fields in users)
    grants = KeyGrants() if models.origin is None else models.origin.root.key_grants()
    return find_key_problem(variable, base_url, grants, written=paired, environ=environ)


def _pairs(fields: Mapping[str, Any], base_url: str, variable: str) -> bool:
    """Return whether an entry sets both the address and the variable of the key."""
    named = {fields.get("api_key_env"), *map(header_variable, fields.get("headers", {}).values())}
    return fields.get("base_url") == base_url and variable in named


def _make_model_error(model_id: str, problem: str, written: _Written, about: Sequence[str]) -> ConfigError:
    """Return the error at the entry's first field among `about`, such as the address of a key."""
    for entry in written:
        named = [name for name in about if name in _take_given_fields(entry)]
        if named and entry.origin is not None and entry.origin.path is not None:
            # Read again for the line: records keep their file, not their place in it.
            ids = [model.get("model_id") for model in read_document(entry.origin.path).data["models"]]
            place = ("models", ids.index(model_id), named[0])
            return make_located_error(entry.origin.path, [(place, f"model {model_id!r}: {problem}")])
    return ConfigError(f"model {model_id!r}: {problem}")


def _find_route(fields: Mapping[str, Any], requested: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return (base_url, api_key_env); a base_url of None is the OpenAI client's own."""
    own_url, own_key = _NATIVE.get(fields.get("api"), (environ.get("OPENAI_BASE_URL"), _OPENAI_KEY))
    base_url = fields.get("base_url") or own_url or None
    named_key = fields.get("api_key_env")
    # `vendor/model` is OpenRouter's form of model names. Its key shows that the user has an account there.
    if base_url is None and "/" in requested and environ.get(_OPENROUTER_KEY) and named_key in (None, _OPENROUTER_KEY):
        base_url = OPENROUTER_URL
    if named_key is None:
        if any(map(header_variable, fields.get("headers", {}).values())):
            return base_url, None
        named_key = _OPENROUTER_KEY if base_url == OPENROUTER_URL else own_key
    if named_key == _NO_KEY:
        return base_url, None
    return base_url, named_key


def _split_query(base_url: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the address without its query, and the fields of the query."""
    if base_url is None or "?" not in base_url:
        return base_url, {}
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(query="")), dict(parse_qsl(parts.query, keep_blank_values=True))


@dataclass(frozen=True)
class Cassettes:
    """The cassettes of a session: `mode` applies to models without their own, `session` names the session."""

    mode: CassetteMode = "off"
    session: str | None = None
    redactor: Redactor = field(default_factory=Redactor)

    def mode_of(self, model: Model) -> CassetteMode:
        """Return a model's mode. Scripted models are always asked."""
        # A scripted model costs nothing, and would only copy demo.yaml into cassettes.
        if model.scripted:
            return "off"
        return model.cassettes or self.mode

    def path(self, case: Case, model_id: str, repetition: int) -> Path:
        """Return the file of a run: `cassettes/<model>-r<n>.yaml` in the case's folder. A row's file is in a folder
        with the row's id there.
        """
        folder = case.path.parent / CASSETTES
        if case.dataset is not None:
            folder /= slug(case.case_id)
        return folder / f"{slug(model_id)}-r{repetition}.yaml"

    def digest(self, case: Case, model_id: str, repetition: int) -> str | None:
        """Return the SHA-256 of a run's cassette file, or None if it does not exist."""
        try:
            return hashlib.sha256(read_file(self.path(case, model_id, repetition))).hexdigest()
        except OSError:
            return None
