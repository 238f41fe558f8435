"""Convert agents of a live openclaw.json to agent.yaml."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.documents import parse_json, read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.openclaw.config import find_model_fields

if TYPE_CHECKING:
    from pytest_agentbench.config.documents import Loc
    from pytest_agentbench.secrets.redaction import Redactor


_RUNS_OWN = frozenset(
    {"workspace", "cwd", "repoRoot", "agentDir", "sessionStore", "sandbox", "runtime", "modelPolicy"}
    | {"modelSelectionScope", "default"}
)
"""Fields that a run decides itself, or that make no sense in its container."""
_PROMPT = "systemPromptOverride"
_OUTSIDE_AGENT = frozenset({"id", "name", "description", "identity", _PROMPT})
_OPENCLAW_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """An openclaw.json: `agents` by their ids, and the `defaults` of all agents."""

    path: Path
    whole: Mapping[str, Any]
    agents: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CapturedAgent:
    """A captured agent: `data` is agent.yaml. `left_out` and `with_keys` are paths of omitted fields."""

    data: dict[str, Any]
    left_out: tuple[str, ...] = ()
    with_keys: tuple[str, ...] = ()


def read_live(path: Path) -> LiveConfig:
    """Return the configuration. Raises ConfigError if the file is not plain JSON, or includes other files."""
    try:
        document = parse_json(read_bytes(path), path)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; expected plain JSON: remove comments and trailing commas in a copy, and name it with --config"
        ) from error
    whole = document.data
    if not isinstance(whole, dict):
        raise ConfigError(f"{path}:1:1: found {type(whole).__name__}, expected an object, as OpenClaw writes it")
    agents = as_object(whole.get("agents"))
    for place, part in (("$include", whole), ("agents.$include", agents)):
        if "$include" in part:
            raise ConfigError(
                f"{path}: {place}: included files are not read; name a file with all settings by --config"
            )
    # Agents may be a list, or a mapping by their ids.
    entries: dict[str, Mapping[str, Any]] = {}
    if isinstance(agents.get("list"), list):
        entries = {str(entry.get("id")): entry for entry in agents["list"] if isinstance(entry, dict)}
    entries |= {key: value for key, value in as_object(agents.get("entries")).items() if isinstance(value, dict)}
    return LiveConfig(path, whole, entries, as_object(agents.get("defaults")))


def list_secrets(live: LiveConfig) -> dict[str, str]:
    """Return the texts of the configuration that may be keys, for `Redactor.know_values`, by position and name."""
    return {
        f"{number} {name}": text
        for number, (name, text) in enumerate(_list_texts(live.whole, ""))
        # `${NAME}` names a variable, sentences are prose, and a short word without digits is a setting such as "main".
        if not text.startswith("$") and not re.search(r"\s", text) and (len(text) >= 16 or re.search("[0-9]", text))
    }


def choose_agent(live: LiveConfig, workspace: Path, agent_id: str) -> str | None:
    """Return the id of the agent that works in the workspace, else `agent_id` if listed; None if no agents are listed.

    Raises ConfigError if several or no agents fit.
    """
    if not live.agents:
        return None
    here = [name for name, entry in live.agents.items() if _is_workspace(entry.get("workspace"), workspace)]
    named = [name for name in here or live.agents if _normalize_id(name) == _normalize_id(agent_id)]
    free = [name for name, entry in live.agents.items() if "workspace" not in entry]
    candidates = [named, here]
    if len(live.agents) == 1:
        # A single agent without a workspace works in the default one.
        candidates.append(free)
    for names in candidates:
        if len(names) == 1:
            return names[0]
    number = "several" if here else "none"
    raise ConfigError(
        f"{live.path}: found the agents {', '.join(sorted(live.agents))}, and {number} with the workspace {workspace}; "
        f"expected one, or one with the id {agent_id}: give the live agent's id with --agent-id"
    )


def make_captured_agent(live: LiveConfig | None, name: str | None, agent_id: str, redactor: Redactor) -> CapturedAgent:
    """Return the agent `name` of the configuration as agent.yaml for `agent_id`, without a run's fields and keys."""
    data: dict[str, Any] = {"schema_version": 1, "agent_id": agent_id, "title": agent_id}
    if live is None:
        return CapturedAgent(data)
    entry = live.agents.get(name or "", {})
    place = f"agents.{name}" if name else "agents"
    defaults = _Fragment(live.defaults, "agents.defaults", redactor)
    own = _Fragment(entry, place, redactor)
    agent = {key: value for key, value in own.kept.items() if key not in _OUTSIDE_AGENT}
    if name is not None and _OPENCLAW_ID.fullmatch(name):
        agent = {"id": name, **agent}
    if prompt := _text(own.kept.get(_PROMPT)) or _text(defaults.kept.get(_PROMPT)):
        agent["prompt"] = prompt
    identity = as_object(own.kept.get("identity"))
    alias = _text(redactor.value(_find_alias(entry, live.defaults)))
    fragments: dict[str, dict[str, Any]] = {
        "identity": dict(identity),
        "agents_defaults": {key: value for key, value in defaults.kept.items() if key != _PROMPT},
        "agent": agent,
    }
    if alias:
        fragments["model_defaults"] = {"aliases": {"default": alias}}
    data["title"] = _text(own.kept.get("name")) or _text(identity.get("name")) or agent_id
    if description := _text(own.kept.get("description")):
        data["description"] = description
    data["openclaw"] = {key: value for key, value in fragments.items() if value}
    return CapturedAgent(data, (*defaults.left_out, *own.left_out), (*defaults.with_keys, *own.with_keys))


class _Fragment:
    """A part of the configuration: `kept` are its fields for agent.yaml, the others are paths of omitted fields."""

    def __init__(self, fragment: Mapping[str, Any], place: str, redactor: Redactor) -> None:
        decided: set[Loc] = {(name,) for name in _RUNS_OWN & fragment.keys()}
        # Again after each removal: a model is reported only once its fallbacks are gone.
        while model_fields := {loc for loc, _ in find_model_fields(_drop_fields(fragment, decided), ())}:
            decided |= model_fields
        secret = set(_find_keys(_drop_fields(fragment, decided), redactor))
        self.kept: dict[str, Any] = _drop_fields(fragment, decided | secret)
        self.left_out, self.with_keys = (
            # Only the top of an omitted part is named, not each field below it.
            sorted(
                {redactor.text(".".join([place, *map(str, loc)])) for loc in locs if not locs & _list_ancestors(loc)}
            )
            for locs in (decided, secret)
        )


def _list_ancestors(loc: Loc) -> set[Loc]:
    return {loc[:length] for length in range(len(loc))}


def _drop_fields(value: Any, dropped: set[Loc], at: Loc = ()) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _drop_fields(member, dropped, (*at, key)) for key, member in value.items() if (*at, key) not in dropped
        }
    if isinstance(value, list):
        return [_drop_fields(item, dropped, (*at, n)) for n, item in enumerate(value) if (*at, n) not in dropped]
    return value


def _find_keys(value: Any, redactor: Redactor, at: Loc = ()) -> Iterator[Loc]:
    """Yield the paths of values that are keys, or whose names contain a key."""
    below: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        below = value.items()
    elif isinstance(value, list):
        below = enumerate(value)
    for name, member in below:
        if any(isinstance(text, str) and redactor.text(text) != text for text in (name, member)):
            yield (*at, name)
        else:
            yield from _find_keys(member, redactor, (*at, name))


def _list_texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield each text with the nearest name above it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _list_texts(member, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item, name)


def _find_alias(entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> object:
    """Return the alias of the agent's primary model."""
    model = entry.get("model") or defaults.get("model")
    primary = model.get("primary") if isinstance(model, Mapping) else model
    return as_object(as_object(defaults.get("models")).get(str(primary))).get("alias")


def _is_workspace(path: object, workspace: Path) -> bool:
    return isinstance(path, str) and os.path.realpath(os.path.expanduser(path)) == os.path.realpath(workspace)


def _normalize_id(name: str) -> str:
    return name.lower().replace("-", "_")


def _text(value: object) -> str | None:
    if isinstance(value, str) and value.strip():
        return value
    return None
