"""What a gateway refuses, as the SDKs of each dialect raise it; and silences that no client minds."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from runners.gateway.test_gateway_listener import at, end, listening
from sdks.sdks_support import ALL, PROGRAMS, SDKS, Sdk, needs, of
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from support.bench import case_yaml
from support.fault_endpoint import FaultEndpoint, always
from support.script_server import served

from pytest_agentbench.models.script_trees import ScriptTree
from pytest_agentbench.records.case import Model
from pytest_agentbench.runners.base import RunContext
from pytest_agentbench.runners.gateway import gateway as gateway_module
from pytest_agentbench.runners.gateway import opening

pytestmark = pytest.mark.slow
INPUT = {"messages": [{"role": "user", "content": "Go."}]}
CLIENT = SDKS[0]
in_each_dialect = pytest.mark.parametrize("dialect", [pytest.param(each, marks=needs(CLIENT.variable)) for each in ALL])


async def started(context: RunContext, *command: str) -> str:
    """What a program prints that finds the run's gateway by its variables."""
    # A proxy is none of loopback's, and the SDKs' clients ask for one
    environ = {**os.environ, **context.gateway.env(), "NO_PROXY": "*", "PYTHONWARNINGS": "ignore"}
    process = await asyncio.create_subprocess_exec(
        *command, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return printed.decode()


async def refusals(context: RunContext, dialect: str, *names: str) -> dict[str, Any]:
    program = str(PROGRAMS / "refusals.py")
    return dict(json.loads(await started(context, CLIENT.python, program, dialect, *names)))


def is_raised(found: list[Any], dialect: str, status: int, said: str) -> None:
    """The exception is the SDK's own for the status, and says why."""
    own = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 409: "ConflictError"}
    own |= {413: "ContentTooLargeError" if dialect == "messages" else "APIStatusError"}
    own |= {429: "RateLimitError", 500: "InternalServerError"}
    googles = "ServerError" if status >= 500 else "ClientError"
    name, code, text = found
    assert (name, code) == (googles if dialect == "gemini" else own[status], status), text
    assert said in text


REFUSED = {
    "endpoint": (404, "is not served here"),
    "model": (404, "this run has the model 'm-1' and no other; found 'other'"),
    "server_tool": (400, "the provider would run"),
    "parameter": (400, "not supported"),
    "large": (413, "larger than 33,554,432 bytes"),
    "foreign": (401, "no run has this token"),
}


@in_each_dialect
def test_a_refusal_is_raised_as_an_exception_of_the_sdk(dialect: str) -> None:
    async def run(endpoint: FaultEndpoint) -> None:
        async with listening(at(endpoint)) as (_, make, _http):
            context = make()
            found = await refusals(context, dialect, "asked", *REFUSED)
            assert found.pop("asked") == []
            for name, (status, said) in REFUSED.items():
                is_raised(found[name], dialect, status, said)
            assert len(endpoint.requests) == 1
            end(context)
            is_raised((await refusals(context, dialect, "asked"))["asked"], dialect, 409, "turn is over")

    with FaultEndpoint() as endpoint:
        asyncio.run(run(endpoint))


@pytest.mark.parametrize("status", [429, 500])
@in_each_dialect
def test_an_outage_is_told_with_the_status_that_an_agent_needs(
    dialect: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = replace(opening.GatewayPolicy(), outage_status=status)
    monkeypatch.setattr(opening, "GatewayPolicy", lambda **given: policy)

    async def run(endpoint: FaultEndpoint) -> None:
        async with listening(at(endpoint)) as (_, make, _http):
            found = await refusals(make(), dialect, "asked")
            is_raised(found["asked"], dialect, status, "The model gave no answer")

    with FaultEndpoint(always("429")) as endpoint:
        asyncio.run(run(endpoint))


def slowed(app: ASGIApp) -> ASGIApp:
    """The app with a silence before each event."""

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        async def later(message: Message) -> None:
            if message["type"] == "http.response.body":
                await asyncio.sleep(0.12)
            await send(message)

        await app(scope, receive, later)

    return slow


@of(*(sdk for sdk in SDKS if sdk.name != "instructor"))  # its first reply has to be a call
def test_no_client_minds_silences(tmp_path: Path, sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "_PATIENCE_SECONDS", 0.05)
    (tmp_path / "case").mkdir()
    (tmp_path / "case/test.yaml").write_text(yaml.safe_dump(case_yaml("case", input=INPUT)))
    (tmp_path / "case/demo.yaml").write_text("schema_version: 1\nreplies: [{content: It is late.}]\n")

    async def run(url: str) -> None:
        fields: dict[str, Any] = {"model_id": "m", "requested_model": "m-1", "base_url": url, "api_key_env": None}
        wires = {api: Model(**fields, api=api) for api in ALL}
        async with listening(Model(**fields, wires=wires)) as (_, make, _http):
            asked = [(*sdk.command(tmp_path), agent, "stream", "Go.", "m-1") for agent in sdk.agents]
            printed = await asyncio.gather(*(started(make(), *command) for command in asked))
        assert [each.strip() for each in printed] == ["It is late."] * len(asked)

    with served(ScriptTree(tmp_path), around=slowed) as url:
        asyncio.run(run(url))
