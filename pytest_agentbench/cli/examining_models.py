"""The models that models.yaml declares and that judges name: keys, and whether their endpoints answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.config import ConfigRoot, EvaluationProfile
from pytest_agentbench.engine import CHAT_JUDGE
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models import DEFAULT_BASE_URL, describe_route, missing_key, resolve_model
from pytest_agentbench.records import Model
from pytest_agentbench.store import without_credentials

if TYPE_CHECKING:
    import httpx2

_SECONDS = 5.0
_AREA = "models"


class Models:
    """The models of a root, and those that the judges of profiles name: these are needed."""

    def __init__(self, root: ConfigRoot, profiles: Sequence[EvaluationProfile]) -> None:
        declared = root.models()
        self._judges = {name for profile in profiles for name in _judges(profile)}
        self._found: list[Model] = []
        self._refused: list[Finding] = []
        for name in dict.fromkeys([*(entry.model_id for entry in declared.models), *sorted(self._judges)]):
            try:
                self._found.append(resolve_model(name, models=declared))
            except ConfigError as error:
                needed = name in self._judges
                self._refused.append(Finding(_AREA, _name(name, needed=needed), False, str(error), needed=needed))
        self._asked = {_endpoint(model): model for model in self._found if _can_be_asked(model)}

    def actions(self) -> Iterator[str]:
        """What `live` sends."""
        for base_url, variable in self._asked:
            key = f"with the key in {variable}" if variable is not None else "without a key"
            yield f"GET {without_credentials(base_url)}/models {key}"

    async def examine(self, *, live: bool) -> list[Finding]:
        """A finding for each model. Each endpoint is asked once, where this is `live`, else none."""
        asked = self._asked if live else {}
        replies = dict(zip(asked, await asyncio.gather(*map(_ask, asked.values())), strict=True))
        found = [
            _finding(model, replies.get(_endpoint(model)), needed=model.model_id in self._judges)
            for model in self._found
        ]
        return [*found, *self._refused]


def _judges(profile: EvaluationProfile) -> list[str]:
    used = {run.judge_id for run in profile.judge_runs}
    return [
        judge.model for judge in profile.judges if judge.judge_id in used and judge.type == CHAT_JUDGE and judge.model
    ]


def _endpoint(model: Model) -> tuple[str, str | None]:
    return (model.base_url or DEFAULT_BASE_URL).rstrip("/"), model.api_key_env


def _can_be_asked(model: Model) -> bool:
    return not (model.scripted or model.provider or missing_key(model))


def _finding(model: Model, reply: tuple[bool, str] | None, *, needed: bool) -> Finding:
    name = _name(model.model_id, needed=needed)
    if (problem := missing_key(model)) is not None and not model.provider:
        return Finding(_AREA, name, False, problem, needed=needed)
    route = describe_route(model)
    if reply is None:
        if model.scripted or model.provider:
            return Finding(_AREA, name, None if model.provider else True, route, needed=needed)
        return Finding(_AREA, name, None, f"{route}; --live asks the endpoint", needed=needed, untried=True)
    works, said = reply
    return Finding(_AREA, name, works, f"{route}; the endpoint {said}", needed=needed)


def _name(model_id: str, *, needed: bool) -> str:
    return f"judge {model_id}" if needed else model_id


async def _ask(model: Model) -> tuple[bool, str]:
    """Whether the endpoint answers `GET /models`, and what it answers."""
    import httpx2

    from pytest_agentbench.bounded import MAX_LISTING, bounded_replies

    base_url, variable = _endpoint(model)
    headers = {} if variable is None else {"Authorization": f"Bearer {os.environ[variable].strip()}"}
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS, event_hooks=bounded_replies(MAX_LISTING)) as client:
            response = await client.get(f"{base_url}/models", headers=headers)
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
        reason = str(error) or type(error).__name__
        return False, f"cannot be reached ({reason}): start it, or correct base_url in models.yaml"
    return _read(response, variable)


def _read(response: httpx2.Response, variable: str | None) -> tuple[bool, str]:
    status = response.status_code
    if status in (401, 403):
        return (
            (False, f"refuses the key in {variable} (HTTP {status})") if variable else (True, "answers, to keys only")
        )
    if 300 <= status < 400:
        return False, f"redirects elsewhere (HTTP {status}), which no request follows: correct base_url in models.yaml"
    if status in (404, 405):
        return True, f"answers, but gives no list of models (HTTP {status})"
    return status < 400, "answers" if status < 400 else f"answers HTTP {status}"
