"""The models that models.yaml declares and that judges name: keys, and whether their endpoints answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.config import ConfigRoot, EvaluationProfile
from pytest_agentbench.engine import CHAT_JUDGE
from pytest_agentbench.models import DEFAULT_BASE_URL, describe_route, missing_key, resolve_model
from pytest_agentbench.records import Model

if TYPE_CHECKING:
    import httpx2

_SECONDS = 5.0
_AREA = "models"


async def examine_models(root: ConfigRoot, profiles: Sequence[EvaluationProfile]) -> list[Finding]:
    """A finding for each model. Those that judge are needed. Each endpoint is asked once."""
    declared = root.models()
    judges = {name for profile in profiles for name in _judges(profile)}
    names = list(dict.fromkeys([*(entry.model_id for entry in declared.models), *sorted(judges)]))
    models = [resolve_model(name, models=declared) for name in names]
    asked = {_endpoint(model): model for model in models if _can_be_asked(model)}
    replies = dict(zip(asked, await asyncio.gather(*map(_ask, asked.values())), strict=True))
    return [_finding(model, replies.get(_endpoint(model)), needed=model.model_id in judges) for model in models]


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
    name = f"judge {model.model_id}" if needed else model.model_id
    if (problem := missing_key(model)) is not None and not model.provider:
        return Finding(_AREA, name, False, problem, needed=needed)
    route = describe_route(model)
    if reply is None:
        return Finding(_AREA, name, None if model.provider else True, route, needed=needed)
    works, said = reply
    return Finding(_AREA, name, works, f"{route}; the endpoint {said}", needed=needed)


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
    if status in (404, 405):
        return True, f"answers, but gives no list of models (HTTP {status})"
    return status < 400, "answers" if status < 400 else f"answers HTTP {status}"
