"""Identities of runs, evaluations and profiles: SHA-256 over canonical JSON of everything that can change a result."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from pytest_agentbench.records.base import CasePart, Record

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
    from pytest_agentbench.records.case import Case, McpServer, Message, MetricSpec, Model

R = TypeVar("R", bound=Record)

SCHEMA_VERSION = 2
"""Part of every fingerprint: raised when the meaning of a stored run changes."""

_TRANSPORT = frozenset({"timeout_seconds", "retries", "outage_seconds", "stall_seconds", "stream", "batch"})

# Values of sections and parts that a document does not have. Fingerprints cover them, so a change here changes every
# fingerprint of a run profile, a judge or a rubric.
_PROFILE_SECTIONS: dict[str, Any] = {"planner": None, "task_text": "fuzzy", "openclaw": None}
_JUDGE_SECTIONS: dict[str, Any] = {"mcp_tasks": {"shuffle": "axes", "language": "en"}}
_CASE_PARTS: dict[str, Any] = {"mcp_task": None}

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def plain(value: object) -> Any:
    """Return `value` as JSON has it, numbers by value (`0.0` is `0`); unknown objects, NaN and infinities as text."""
    # By exact type first: this is called for each value of each case, and abstract classes take four times as long
    kind = type(value)
    if kind in _LEAVES:
        return value
    convert = _CONVERSIONS.get(kind)
    if convert is None:
        convert = next((made for base, made in _CONVERSIONS_OF_SUBCLASSES if isinstance(value, base)), str)
    return convert(value)


class Plain(dict[str, Any]):
    """A mapping that is as JSON has it already: `plain` passes it on as it is."""


def _number(value: float) -> int | float | str:
    # YAML of one person has `1`, of another `1.0`; JSON of a third turns one into the other
    if value.is_integer():
        return int(value)
    if math.isfinite(value):
        return value
    return str(value)


def _mapping(value: Mapping[object, object]) -> dict[str, Any]:
    if not value:
        return {}
    return {
        key if type(key) is str else _key(key): item if type(item) in _LEAVES else plain(item)
        for key, item in value.items()
    }


def _key(key: object) -> str:
    """Return a YAML key as a JSON key: `1`, `1.0`, `true`, `null` and dates as JSON or ISO 8601 writes them."""
    json_key = plain(key)
    if isinstance(json_key, str):
        return json_key
    return _encode(json_key)


def _sequence(value: Iterable[object]) -> list[Any]:
    return [item if type(item) in _LEAVES else plain(item) for item in value]


def _set(value: Iterable[object]) -> list[Any]:
    # Python's own order of a set changes from process to process
    return sorted((plain(item) for item in value), key=_encode)


def _record(value: BaseModel) -> Any:
    if isinstance(value, Record):
        return _made_once(value, _dump)
    return _dump(value)


def _dump(value: BaseModel) -> Any:
    return plain(value.model_dump())


_MOST_RECORDS = 256
_last: dict[tuple[int, Any], tuple[Record, Any]] = {}


def _made_once(record: R, make: Callable[[R], Any]) -> Any:
    """Return `make(record)`, cached for frozen records that many cases share, such as models and metrics."""
    key = (id(record), make)
    if (entry := _last.get(key)) is None:
        entry = (record, make(record))  # with the record, so that no other gets its id meanwhile
        if len(_last) >= _MOST_RECORDS:
            _last.clear()
        _last[key] = entry
    return entry[1]


_LEAVES = frozenset({str, int, bool, type(None)})
_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    float: _number,
    Plain: lambda value: value,
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
    set: _set,
    frozenset: _set,
}
_CONVERSIONS_OF_SUBCLASSES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (BaseModel, _record),
    (date, lambda value: value.isoformat()),
    (bytes, lambda value: value.hex()),
    (str, str.__str__),
    (int, int.__int__),
    (float, lambda value: _number(float(value))),
    (Mapping, _mapping),
    (Sequence, _sequence),
)


def canonical_json(value: object) -> bytes:
    """Return `value` as ASCII JSON with sorted keys and no blanks; equal values, as `1.0` and `1`, give equal bytes."""
    return _encode(plain(value)).encode("ascii")


def fingerprint(value: object) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical JSON of `value`; bytes count as canonical JSON already."""
    return hashlib.sha256(value if isinstance(value, bytes) else canonical_json(value)).hexdigest()


def run_fingerprint_input(
    case: Case,
    model: Model,
    runner_type: str,
    settings: Mapping[str, Any],
    repetition: int,
    extra: Mapping[str, Any] | None = None,
) -> Plain:
    """Return everything that can change the agent's behaviour, without titles, tags, concurrency and the number of
    repetitions.

    `settings` is the merged runner configuration. `extra` contains other inputs of the agent: tool and MCP server
    definitions, image, workspace template, a script's hash, the metadata that a user's callable may read.
    """
    # Values of JSON types are inserted unchanged: to convert each takes four times as long.
    # Left out if empty, so that adding parts to the format changes no fingerprint.
    parts = {
        name: identity
        for name, part in case.parts.items()
        if isinstance(part, CasePart) and ((identity := part.identity(case.path.parent)) or part.is_section)
    }
    return Plain(
        **({"parts": plain(parts)} if parts else {}),
        schema_version=SCHEMA_VERSION,
        case_id=case.case_id,
        repetition=repetition,
        runner={"type": runner_type, "settings": plain(drop_transport(settings))},
        model=_made_once(model, model_input),
        messages=_messages(case.messages),
        turns=_messages(case.turns),
        attachments=[{"name": each.name, "sha256": each.sha256, "size": each.size} for each in case.attachments],
        context=plain(case.context),
        tools=[*case.tools],
        extra=plain(extra or {}),
    )


def drop_transport(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return runner settings without transport settings, which change no result."""
    return {name: value for name, value in settings.items() if name not in _TRANSPORT}


def model_input(model: Model) -> Plain:
    """Return everything of a model that can change its answers in a run."""
    names = ("model_id", "requested_model", "base_url", "scripted", "parameters", "options")
    return Plain({name: plain(getattr(model, name)) for name in names} | plain(endpoint_input(model)))


_TELLING_NAMES = re.compile(r"(?i)api-version|anthropic-beta|x-openrouter-.*")


def endpoint_input(model: Model) -> dict[str, Any]:
    """Return the settings of a model's endpoint that can change its answers, as far as its entry sets them.

    Headers and query parameters are included by name only, because their values may be keys.
    """
    # Only settings that differ from their default: a new one must not change the fingerprints of stored runs
    settings: dict[str, Any] = {}
    if model.dialect != "auto":
        settings["dialect"] = model.dialect
    if model.api != "chat":
        settings["api"] = model.api
    if model.anthropic_version is not None:  # None: the request determines it
        settings["anthropic_version"] = model.anthropic_version
    if model.wires:
        settings["wires"] = {name: wire.base_url for name, wire in model.wires.items()}
    if (dialect := model.dialect_overrides) is not None:
        # Prompt caching changes the cost of an answer, not the answer
        overrides = dialect.model_dump(exclude_unset=True, exclude={"prompt_cache"})
        settings |= {"dialect_overrides": overrides} if overrides else {}
    for part, names in (("headers", model.headers), ("query", model.query)):
        if telling := sorted(name.lower() for name in names if _TELLING_NAMES.fullmatch(name)):
            settings[part] = telling
    return settings


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [
        # Calls and the time of a turn are left out if there are none
        {
            "role": message.role,
            "content": message.content,
            "name": message.name,
            **message.calls,
            **({} if message.max_seconds is None else {"max_seconds": _number(message.max_seconds)}),
        }
        for message in messages
    ]


def run_profile_input(profile: RunProfile) -> dict[str, Any]:
    """Return the effective settings of a run profile: not its names, and not how many runs go at once or how often."""
    names = {"run_profile_id", "title", "metadata", "execution_policy", "reuse_unsuccessful"}
    # The fingerprint of each run covers the effect of its variant, its skills, and the models of its roles
    names |= {"variants", "reference_variant", "skills", "plugins", "roles"}
    if not profile.network.model_dump(exclude_defaults=True):
        names.add("network")  # fields at their default are left out, so that a new field changes no fingerprint
    names |= {name for name in ("parallel_tools", "conversation") if getattr(profile, name) is None}
    if not profile.exclude_tools:
        names.add("exclude_tools")
    # Values of absent sections first; sections that the profile has replace them below
    settings: dict[str, Any] = {**_PROFILE_SECTIONS, **profile.model_dump(exclude=names)}
    settings["runner_defaults"] = drop_transport(profile.runner_defaults)
    settings["model_overrides"] = {name: drop_transport(layer) for name, layer in profile.model_overrides.items()}
    settings |= {section.name: section.fingerprint(value) for section, value in profile.sections()}
    # Variables, headers and folders of servers are covered by each run's fingerprint
    servers = profile.mcp_servers.items()
    settings["mcp_servers"] = {name: _server_input(server) for name, server in servers}
    return settings


def _server_input(server: McpServer) -> dict[str, Any]:
    names = {"env", "headers", "cwd"}
    if not server.exclude_tools:
        names.add("exclude_tools")  # an empty list is left out
    return server.model_dump(exclude=names)


def evaluation_profile_input(profile: EvaluationProfile, judge_models: Sequence[Model] = ()) -> dict[str, Any]:
    """Return the settings that affect every evaluation: judges, prompt, anchors, policy, metrics."""
    names = {"evaluation_profile_id", "title", "metadata", "judge_system_prompt_path", "judge_system_prompt"}
    names |= (profile.model_extra or {}).keys()
    # Fields at their default are left out
    names |= {"on_filtered", "judge_sees_reasoning"} - profile.model_dump(exclude_defaults=True).keys()
    settings = {**profile.model_dump(exclude=names), **_sections(profile)}
    return {**settings, "system_prompt": profile.system_prompt, "judge_models": _judges(judge_models)}


def judge_input(profile: EvaluationProfile, judge_models: Sequence[Model] = ()) -> dict[str, Any]:
    """Return the settings that identify a profile's judges: models, requests, prompt, aggregation of verdicts."""
    names = {"judges", "judge_runs", "aggregation", "anchors"}
    if profile.judge_sees_reasoning:
        names.add("judge_sees_reasoning")
    settings = {**_JUDGE_SECTIONS, **profile.model_dump(include=names), **_sections(profile)}
    return {**settings, "system_prompt": profile.system_prompt, "judge_models": _judges(judge_models)}


def _sections(profile: EvaluationProfile) -> dict[str, Any]:
    """Return the fingerprint inputs of the profile's sections from packs; sections without one are left out."""
    inputs = {section.name: section.fingerprint(value) for section, value in profile.sections()}
    return {name: plain(value) for name, value in inputs.items() if value is not None}


def metric_judge_input(metric: MetricSpec, judge_models: Sequence[Model] = ()) -> dict[str, Any]:
    """Return the settings that identify the judge of a metric that asks one of these models."""
    return {**metric.model_dump(include={"name", "args", "compat"}), "judge_models": _judges(judge_models)}


def rubric_input(case: Case) -> dict[str, Any]:
    """Return the parts of a case by which judges and people grade a run.

    The messages to the agent are part of the run.
    """
    names = ("title", "expectations", "rubric", "reference", "require_hard")
    parts = {name: part for name, part in case.parts.items() if isinstance(part, CasePart) and part.measure}
    return {**_CASE_PARTS, **{name: getattr(case, name) for name in names}, **parts}


def _judges(models: Sequence[Model]) -> list[dict[str, Any]]:
    names = ("requested_model", "base_url", "parameters", "options")
    return [{name: getattr(model, name) for name in names} | endpoint_input(model) for model in models]


class VerdictInputs:
    """Everything that decides the verdict on a run of a case, for any run, and hashes of it.

    The canonical JSON is written once for all runs. The members that differ, run and title, are last in it.
    """

    def __init__(self, covered: Plain) -> None:
        """Set up the input of verdicts; `covered` is the `evaluation_input` without a run."""
        self.covered = covered
        self._head = canonical_json(Plain({name: covered[name] for name in covered.keys() - _LAST}))[:-1]

    def fingerprint(self, run_fingerprint: str) -> str:
        """Return the fingerprint of the verdict on a run."""
        return self._hash(run_fingerprint, self.covered["title"])

    @property
    def measure(self) -> str:
        """Return a hash that ignores the title, so that runs before and after a corrected title stay comparable."""
        return self._hash("", "")

    def _hash(self, run: str, title: str) -> str:
        last = f',"run":{_encode(run)},"schema_version":{self.covered["schema_version"]},"title":{_encode(title)}}}'
        return fingerprint(self._head + last.encode("ascii"))


_LAST = {"run", "schema_version", "title"}


def evaluation_input(
    run_fingerprint: str,
    case: Case,
    profile_fingerprint: str,
    metric_judges: Sequence[Model] = (),
    extra: Mapping[str, Any] | None = None,
) -> Plain:
    """Return the run and everything that can change its verdict, for a profile whose fingerprint is known.

    `metric_judges` are the models that the case's metrics ask. `extra` contains other inputs of the verdict: the code
    of hooks and of plugins' checks and metrics, the scripts of scripted judges.
    """
    return Plain(
        metric_judges=plain(_judges(metric_judges)),
        extra=plain(extra or {}),
        schema_version=SCHEMA_VERSION,
        title=case.title,
        run=run_fingerprint,
        profile=profile_fingerprint,
        checks=[_record(check) for check in case.checks],
        expectations=_record(case.expectations),
        rubric=plain(case.rubric),
        metrics=[_record(metric) for metric in case.metrics],
        # A single text stands for itself, so that its fingerprint does not depend on the record of several answers.
        reference=case.reference if case.golds is None else _record(case.golds),
        policy={"require_hard": case.require_hard, "report_only": case.report_only},
    )
