"""Limits of a guest's configuration: it may tighten the session's root, and never loosen it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from pytest_agentbench.config.base import ConfigFile, Guest, Origin
from pytest_agentbench.config.documents import Loc, make_located_error
from pytest_agentbench.config.model_entries import ModelEntry
from pytest_agentbench.config.profiles import EvaluationProfile, ModelsFile, RunProfile, SuiteFile
from pytest_agentbench.config.request_fields import EXTRA_BODY, spread_extra_body
from pytest_agentbench.config.sections import RunnerSettings, SectionedFile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import AUTO, Record
from pytest_agentbench.records.case import SandboxSettings

_OPENNESS = ("deny", "watch", "public", "allow")
_BUILT_IN = "demo"
"""The model that answers from scripts unless models.yaml declares it."""


def _more(value: Any, most: Any) -> bool:
    """Return whether a number or flag allows more. None means no limit, and true allows."""
    return most is not None and (value is None or value > most)


def _longer_outage(seconds: float, most: float) -> bool:
    """Return whether an outage may last longer: 0 is without a limit."""
    return most != 0 and (seconds == 0 or seconds > most)


def _less(value: Any, most: Any) -> bool:
    return bool(value < most)


def _opens(network: str, most: str) -> bool:
    return _OPENNESS.index(network) > _OPENNESS.index(most)


def _another(value: Any, most: Any) -> bool:
    return value is not None and value != most


def _another_kind(kind: str, most: str) -> bool:
    """Return whether a kind may isolate less than the one that the user allows."""
    if kind == most:
        return False
    if most != AUTO and _isolates(most):
        return True
    return not _isolates(kind)


def _isolates(kind: str) -> bool:
    """Return whether sandboxes of a kind isolate, by its provider: one that declares nothing might not."""
    if kind == AUTO:
        return True
    provider = find_extension("sandbox", kind)
    return provider is not None and provider.isolation != "none"


def _asks_for_more(values: Any, most: Any) -> bool:
    if isinstance(values, Mapping):
        return any(most.get(name) != value for name, value in values.items())
    return not set(values) <= set(most)


def _further_hosts(hosts: tuple[str, ...], most: tuple[str, ...]) -> bool:
    """Return whether a list of hosts allows more; an empty list allows the whole web."""
    return bool(most) and (not hosts or _asks_for_more(hosts, most))


def _excuses(value: str, most: str) -> bool:
    return value not in ("fail", most)


Loosens = Callable[[Any, Any], bool]
RUN_LIMITS: Mapping[str, Loosens] = {
    "sandbox.type": _another_kind,
    "sandbox.image": _another,
    "sandbox.network": _opens,
    "sandbox.build_network": _opens,
    "sandbox.cpus": _more,
    "sandbox.memory_mb": _more,
    "sandbox.processes": _more,
    "sandbox.workspace_mb": _more,
    "network.web": _opens,
    "network.hosts": _further_hosts,
    "network.allow_private": _asks_for_more,
    "mcp_servers": _asks_for_more,
    "variants": _asks_for_more,
    "allow_outside_paths": _more,
    "allow_floating_image": _more,
    "reuse_unsuccessful": _more,
    "run_timeout_seconds": _more,
    "conversation.turn_timeout_seconds": _more,
    "conversation.max_turns": _more,
    "conversation.max_steps": _more,
    "execution_policy.max_concurrency": _more,
    "execution_policy.run_repetitions": _more,
}
"""Fields of a run profile with a function that decides whether one value loosens another."""
EVALUATION_LIMITS: Mapping[str, Loosens] = {
    "security_policy.allow_local_python_hooks": _more,
    "security_policy.network_access": _opens,
    "security_policy.redact_secrets": _less,
    "on_filtered": _excuses,
}
"""Fields of an evaluation profile with such functions."""
_EFFECTIVE = {"sandbox": "sandbox_settings", "conversation": "conversation_limits"}
"""Properties of a run profile with the effective values of its fields."""
RUNNER_LIMITS = ("max_turns", "retries", "timeout_seconds", "outage_seconds", "max_tokens")
_SYNONYMS = {"max_tokens": ("max_tokens", "max_completion_tokens")}
"""Settings with several names."""
_SUITE_MODEL = {"model_id", "label"}
"""Fields of a model in a guest's suite: the model's name, and not the way to reach it."""


def refuse_loosening(path: Path, file: ConfigFile, limit: ConfigFile, place: str, guest: Guest) -> None:
    """Raise ConfigError if a guest's file at `path` loosens `limit`, whose place the message names."""
    problems = [
        (loc, f"found {_shown(value)}, expected at most {_shown(most)} according to {place}; {guest.remedy}")
        for loc, value, most in _excess(file, limit, guest)
    ]
    if problems:
        raise make_located_error(path, problems)


def _excess(file: ConfigFile, limit: ConfigFile, guest: Guest) -> Iterator[tuple[Loc, Any, Any]]:
    if isinstance(file, RunProfile) and isinstance(limit, RunProfile):
        yield from _beyond(file, limit, RUN_LIMITS)
        yield from _runner_excess(file, limit)
    elif isinstance(file, EvaluationProfile):
        yield from _beyond(file, limit, EVALUATION_LIMITS)
    elif isinstance(file, SuiteFile) and isinstance(limit, SuiteFile):
        yield from _suite_excess(file, limit)
    if isinstance(file, SectionedFile) and isinstance(limit, SectionedFile):
        yield from _sections_excess(file, limit, guest)


def _beyond(file: ConfigFile, limit: ConfigFile, limits: Mapping[str, Loosens]) -> Iterator[tuple[Loc, Any, Any]]:
    for name, loosens in limits.items():
        loc = tuple(name.split("."))
        value, most = _value(file, loc), _value(limit, loc)
        if loosens(value, most):
            yield loc, value, most
    if isinstance(file, RunProfile) and isinstance(limit, RunProfile):
        yield from _own_settings_beyond(file.sandbox_settings, limit.sandbox_settings)


def _own_settings_beyond(settings: SandboxSettings, limit: SandboxSettings) -> Iterator[tuple[Loc, Any, Any]]:
    """Yield the fields of a provider's own that differ from the limit's: nobody knows which values allow less."""
    for name in type(settings).model_fields.keys() - SandboxSettings.model_fields.keys():
        value = getattr(settings, name)
        most = getattr(limit, name, type(settings).model_fields[name].get_default())
        if value != most:
            yield ("sandbox", name), value, most


def _value(file: ConfigFile, loc: tuple[str, ...]) -> Any:
    """Return the value at a place; of a mapping that may be left out or shortened, the effective one."""
    value: Any = file
    for name in loc:
        value = getattr(value, _EFFECTIVE.get(name, name))
    return value


def _runner_excess(profile: RunProfile, limit: RunProfile) -> Iterator[tuple[Loc, Any, Any]]:
    yield from _settings_excess(("runner_defaults",), profile.runner_defaults, limit.runner_defaults)
    for name, layer in profile.model_overrides.items():
        most = {**limit.runner_defaults, **limit.model_overrides.get(name, {})}
        yield from _settings_excess(("model_overrides", name), layer, most)


def _settings_excess(loc: Loc, layer: Mapping[str, Any], limit: Mapping[str, Any]) -> Iterator[tuple[Loc, Any, Any]]:
    settings, limit = spread_extra_body(layer), spread_extra_body(limit)
    for name in RUNNER_LIMITS:
        most = limit.get(name, RunnerSettings.model_fields[name].default)
        loosens = _longer_outage if name == "outage_seconds" else _more
        for field in _SYNONYMS.get(name, (name,)):
            if settings.get(field) is not None and loosens(settings[field], most):
                place = (*loc, field) if field in layer else (*loc, EXTRA_BODY, field)
                yield place, settings[field], most


def _suite_excess(suite: SuiteFile, limit: SuiteFile) -> Iterator[tuple[Loc, Any, Any]]:
    limits = {model.model_id: model for model in limit.models}
    for at, model in enumerate(suite.models):
        same = limits.get(model.model_id)
        if model != same and (more := sorted(model.model_fields_set - _SUITE_MODEL)):
            yield ("models", at, more[0]), more, "model_id" if same is None else same
    if _asks_for_more(suite.variants, limit.variants):  # each of them may change any limit
        yield ("variants",), suite.variants, limit.variants


def _sections_excess(guest_file: SectionedFile, limit: SectionedFile, guest: Guest) -> Iterator[tuple[Loc, Any, Any]]:
    """Yield the excess of sections. A missing section means its default, which may exceed the limit too."""
    sections = {section.name: section for file in (limit, guest_file) for section, _ in file.sections()}
    for name, section in sections.items():
        for loc, value, most in section.excess(guest_file.section(section), limit.section(section), guest):
            yield (name, *loc), value, most


def _shown(value: Any) -> str:
    """Return a value as a message may show it: of servers the names alone, for their values may be keys."""
    if isinstance(value, Mapping):
        return f"{[*value]}"
    if isinstance(value, Record):
        value = value.model_dump(exclude_defaults=True)
    return repr(value)


class GuestModels(ModelsFile):
    """The session root's models, for a guest's cases. Models that only the guest's file at `path` has are refused."""

    path: Path
    guest: Guest
    host: str
    theirs: tuple[str, ...] = Field(default=())

    def read_by(self, origin: Origin) -> Self:
        """Store the origin of the file. Its models keep theirs, the session's root."""
        self._origin = origin
        return self

    def get(self, model_id: str) -> ModelEntry | None:
        """Return the entry of that id, or None.

        :raises ConfigError: only the guest's file has one.
        """
        if model_id in self.theirs:
            raise self.refusal(model_id)
        return super().get(model_id)

    def refusal(self, model_id: str) -> ConfigError:
        """Return the error of a use of that model."""
        message = (
            f"found {model_id!r}, which only a guest's file declares, expected an entry in {self.host}; write "
            f"one there, or {self.guest.remedy}"
        )
        return make_located_error(self.path, [(("models",), message)])


def models_of_guest(path: Path, file: ModelsFile, declared: ModelsFile, host: str, guest: Guest) -> GuestModels:
    """Return the models of a guest with the models.yaml `file` at `path`, in a session whose root has `declared`."""
    declared_ids = {model.model_id for model in declared.models}
    theirs = [model for model in file.models if model.model_id not in declared_ids]
    theirs = [model for model in theirs if not (model.scripted and model.model_id == _BUILT_IN)]
    return GuestModels(
        schema_version=1,
        models=declared.models,
        path=path,
        guest=guest,
        host=host,
        theirs=tuple(model.model_id for model in theirs),
    )
