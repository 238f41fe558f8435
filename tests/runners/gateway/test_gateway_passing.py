"""Requests that pass through a gateway to an endpoint of their own dialect, byte for byte, and what is read of them."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from runners.gateway.gateway_support import Served

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import ProviderError, UnavailableError
from pytest_agentbench.models.cassette_file import Cassette
from pytest_agentbench.models.cassettes import TapedClient
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.tape import Tape
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import ToolCallEvent, Usage
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.policy import GatewayPolicy
from pytest_agentbench.secrets.redaction import Redactor


@dataclass
class Upstream:
    """An endpoint that keeps each request as it came, and answers with the next of `answers`: (head, pieces)."""

    answers: list[tuple[str, list[bytes | float]]]
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Upstream]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line, *head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in head if each)}
            self.requests.append((line, headers, await reader.readexactly(int(headers["content-length"]))))
            status, pieces = self.answers.pop(0)
            writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\n".encode())
            for piece in pieces:
                if isinstance(piece, float):
                    await writer.drain()
                    await asyncio.sleep(piece)
                else:
                    writer.write(piece)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


def ok(*pieces: bytes | float, kind: str = "application/json") -> tuple[str, list[bytes | float]]:
    return f"200 OK\r\ncontent-type: {kind}\r\nrequest-id: req-7\r\nx-secret: no", [*pieces]


def events(*pieces: bytes | float) -> tuple[str, list[bytes | float]]:
    return ok(*pieces, kind="text/event-stream")


@asynccontextmanager
async def passing(
    folder: Path,
    upstream: Upstream,
    *,
    api: str = "chat",
    tape: Tape | None = None,
    policy: GatewayPolicy = GatewayPolicy(),  # noqa: B008 - frozen
    parameters: dict[str, Any] | None = None,
    of_model: dict[str, Any] | None = None,
    retries: int = 0,
) -> AsyncIterator[Served]:
    endpoints, trace = Endpoints(backoff=Backoff(first=0.001)), Recorder()
    url = f"http://127.0.0.1:{upstream.port}" + ("/v1beta" if api == "gemini" else "/v1")
    way = {"base_url": url, "api_key_env": None, "api": api}
    model = Model(model_id="m", requested_model="m-1", parameters=of_model or {}, **way)
    client = endpoints.client(model)
    client = client if tape is None else TapedClient(model, tape, lambda: endpoints.client(model))
    requests = Requests("a_case", client, RunnerSettings(retries=retries), trace)
    gateway = Gateway(requests, model, trace, parameters or {}, policy=policy)
    path = folder / "model.sock"
    path.unlink(missing_ok=True)
    transport = httpx2.AsyncHTTPTransport(verify=False, uds=str(path))  # loading certificates takes 23 ms
    try:
        async with gateway.serving(path), httpx2.AsyncClient(transport=transport, base_url="http://gateway") as http:
            with gateway.turn("Go."):
                yield Served(gateway, trace, http, path, model)
    finally:
        await endpoints.close()


PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/m-1:generateContent",
}
STREAMED = {**PATHS, "gemini": "/v1beta/models/m-1:streamGenerateContent?alt=sse"}
# What Python would write otherwise: numbers beyond its floats, a key twice, escapes that need none, blanks
ODD = '"odd": {"big": 1e400, "twice": 1, "twice": 2, "text": "\\u00e9 \u4e2d \\/"  }'
ASKED = {
    "chat": '{"model": "m-1", "messages": [{"role": "user", "content": "Go."}], ODD}',
    "responses": '{"model": "m-1", "input": "Go.", "store": false, ODD}',
    "messages": '{"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "Go."}], ODD}',
    "gemini": '{"contents": [{"role": "user", "parts": [{"text": "Go."}]}], ODD}',
}
ASKED = {dialect: text.replace("ODD", ODD) for dialect, text in ASKED.items()}
CALL_USAGE = Usage(input_tokens=11, cached_tokens=2, output_tokens=3)
REPLIES = {
    "chat": '{"id": "c-1", "model": "m-1", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": '
    '"assistant", "content": "Hi."}}], "usage": {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": '
    '{"cached_tokens": 2}}, ODD}',
    "responses": '{"id": "r-1", "model": "m-1", "object": "response", "status": "completed", "output": [{"type": '
    '"message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}], "usage": {"input_tokens": '
    '11, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}}, ODD}',
    "messages": '{"id": "m-1", "type": "message", "role": "assistant", "model": "m-1", "stop_reason": "end_turn", '
    '"content": [{"type": "text", "text": "Hi."}], "usage": {"input_tokens": 9, "cache_read_input_tokens": 2, '
    '"output_tokens": 3}, ODD}',
    "gemini": '{"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP", '
    '"index": 0}], "usageMetadata": {"promptTokenCount": 11, "cachedContentTokenCount": 2, "candidatesTokenCount": 3}, '
    "ODD}",
}
REPLIES = {dialect: text.replace("ODD", ODD) for dialect, text in REPLIES.items()}
STREAMS = {
    "chat": [
        ": a comment\n\n",
        'data: {"id": "c-1", "model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "H"}}]}'
        "\n\n",
        'data: {"choices": [{"index": 0, "delta": {"content": "i."}, "finish_reason": "stop"}], ODD}\n\n',
        'data: {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": '
        '{"cached_tokens": 2}}}\n\n',
        "data: [DONE]\n\n",
    ],
    "responses": [
        'event: response.created\ndata: {"type": "response.created", "response": {"id": "r-1"}}\n\n',
        'event: vendor.event\ndata: {"type": "vendor.event", ODD}\n\n',
        'event: response.completed\ndata: {"type": "response.completed", "response": ODD}\n\n'.replace(
            "ODD", REPLIES["responses"]
        ),
    ],
    "messages": [
        'event: message_start\ndata: {"type": "message_start", "message": {"id": "m-1", "type": "message", "role": '
        '"assistant", "model": "m-1", "content": [], "usage": {"input_tokens": 9, "cache_read_input_tokens": 2, '
        '"output_tokens": 1}}}\n\n',
        'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block": {"type": '
        '"text", "text": ""}}\n\n',
        'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", '
        '"text": "Hi."}, ODD}\n\n',
        'event: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": '
        '{"output_tokens": 3}}\n\n',
        'event: message_stop\ndata: {"type": "message_stop"}\n\n',
    ],
    "gemini": [
        'data: {"candidates": [{"content": {"role": "model", "parts": [{"text": "H"}]}, "index": 0}], '
        '"usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 1}}\r\n\r\n',
        'data: {"candidates": [{"content": {"role": "model", "parts": [{"text": "i."}]}, "finishReason": "STOP", '
        '"index": 0}], "usageMetadata": {"promptTokenCount": 11, "cachedContentTokenCount": 2, "candidatesTokenCount": '
        "3}, ODD}\r\n\r\n",
    ],
}
STREAMS = {dialect: [each.replace("ODD", ODD) for each in texts] for dialect, texts in STREAMS.items()}


def streaming(dialect: str) -> str:
    """Return a request for a stream that no field is missing in."""
    wants = {"chat": '"stream": true, "stream_options": {"include_usage": true}, ', "gemini": ""}
    return ASKED[dialect].replace("{", "{" + wants.get(dialect, '"stream": true, '), 1)


def as_usage(usage: Usage) -> dict[str, int | None]:
    return {name: getattr(usage, name) for name in ("input_tokens", "cached_tokens", "output_tokens")}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", PATHS)
def test_requests_and_replies_pass_byte_for_byte_and_are_counted(tmp_path, dialect, stream):
    pieces = [each.encode() for each in STREAMS[dialect]] if stream else [REPLIES[dialect].encode()]
    body = (streaming(dialect) if stream else ASKED[dialect]).encode()
    # Cut where no event ends
    cut = b"".join(pieces)
    parts: list[bytes | float] = [cut[:100], 0.01, cut[100:101], 0.01, cut[101:]]

    async def run() -> None:
        async with Upstream([events(*parts) if stream else ok(*parts)]).serving() as upstream:
            async with passing(tmp_path, upstream, api=dialect) as it:
                headers = {"anthropic-beta": "tools-2", "content-type": "application/json", "x-other": "no"}
                path = (STREAMED if stream else PATHS)[dialect]
                response = await it.http.post(path, content=body, headers={**headers, "authorization": "Bearer x"})
                assert response.content == cut
                assert response.headers["request-id"] == "req-7"
                assert "x-secret" not in response.headers
            line, sent, came = upstream.requests[0]
            assert came == body
            assert line.split()[1] == path
            assert (sent["anthropic-beta"], "x-other" in sent, "Bearer x" in sent.values()) == ("tools-2", False, False)
            assert as_usage(it.trace.usage) == as_usage(CALL_USAGE)
            way = {"dialect": dialect, "wire": dialect, "mode": "pass"}
            assert it.trace.provider["gateway"]["dialects"] == [way]

    asyncio.run(run())


@pytest.mark.slow
def test_a_stream_is_passed_on_as_it_comes_and_usage_that_nobody_asked_for_is_kept_back(tmp_path):
    first, *rest = [each.encode() for each in STREAMS["chat"][1:]]

    async def run() -> None:
        async with Upstream([events(first, 0.3, *rest)]).serving() as upstream:
            async with passing(tmp_path, upstream) as it:
                body = {**json.loads(ASKED["chat"].replace("1e400", "1")), "stream": True}
                async with it.http.stream("POST", PATHS["chat"], json=body) as response:
                    came = [piece async for piece in response.aiter_raw()]
            assert json.loads(upstream.requests[0][2]) == {**body, "stream_options": {"include_usage": True}}
            assert came[0] == first
            assert b"".join(came) == first + rest[0] + rest[2]
            assert as_usage(it.trace.usage) == as_usage(CALL_USAGE)

    asyncio.run(run())


RUN_PARAMETERS = {"temperature": 0.5, "max_tokens": 70}
CHANGED = {
    "chat": {"temperature": 0.5, "max_tokens": 70, "top_p": 0.1, "store": False},
    "responses": {"temperature": 0.5, "max_output_tokens": 70, "top_p": 0.1, "store": False},
    "messages": {"temperature": 0.5, "max_tokens": 70, "top_p": 0.1},
    "gemini": {"generationConfig": {"temperature": 0.5, "maxOutputTokens": 70, "topP": 0.1, "topK": 3}},
}
SERVED_TOOLS = {
    "chat": ({"tools": [{"type": "web_search"}]}, {"tools": []}),
    "responses": ({"tools": [{"type": "web_search"}]}, {"tools": []}),
    "messages": ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tools": []}),
    "gemini": (
        {"tools": [{"googleSearch": {}, "functionDeclarations": []}]},
        {"tools": [{"functionDeclarations": []}]},
    ),
}


@pytest.mark.parametrize("dialect", PATHS)
def test_only_what_is_the_runs_own_is_changed(tmp_path, dialect):
    async def run() -> None:
        async with Upstream([ok(REPLIES[dialect].encode())]).serving() as upstream:
            policy = GatewayPolicy(pin="rewrite", server_tools="remove")
            given_by = {"policy": policy, "parameters": RUN_PARAMETERS, "of_model": {"top_p": 0.1, "temperature": 0}}
            async with passing(tmp_path, upstream, api=dialect, **given_by) as it:
                given = json.loads(ASKED[dialect].replace("1e400", "1"))
                theirs = (
                    {"generationConfig": {"temperature": 1, "topK": 3}} if dialect == "gemini" else {"temperature": 1}
                )
                tools, left = SERVED_TOOLS[dialect]
                more = {"service_tier": "flex", "user": "me", "metadata": {"a": "b"}}
                stored = {"store": True} if dialect in ("chat", "responses") else {}
                body = {**given, **theirs, **tools, **more, **stored}
                if dialect != "gemini":
                    body["model"] = "another"
                await it.http.post(PATHS[dialect].replace("m-1", "another"), json=body)
            line, _, came = upstream.requests[0]
            assert json.loads(came) == {**given, **CHANGED[dialect], **left}
            assert line.split()[1] == PATHS[dialect]
            facts = it.trace.provider["gateway"]
            assert facts["rewritten_models"] == ["another"]
            assert len(facts["removed_tools"]) == 1

    asyncio.run(run())


def test_a_refusal_is_passed_on_and_the_run_goes_on(tmp_path):
    said = b'{"error": {"message": "too odd", "vendor": 1e400}}'

    async def run() -> None:
        refusal = ("400 Bad Request\r\ncontent-type: application/json\r\nrequest-id: req-8", [said])
        answers = [refusal, ok(REPLIES["chat"].encode())]
        async with Upstream(answers).serving() as upstream, passing(tmp_path, upstream) as it:
            refused = await it.http.post(PATHS["chat"], content=ASKED["chat"])
            assert (refused.status_code, refused.content) == (400, said)
            assert refused.headers["request-id"] == "req-8"
            assert it.gateway.outage is None
            assert (await it.http.post(PATHS["chat"], content=ASKED["chat"])).status_code == 200

    asyncio.run(run())


@pytest.mark.slow
def test_an_outage_is_recorded_and_not_retried(tmp_path):
    async def run() -> None:
        async with Upstream([("500 Oh", [b"{}"])]).serving() as upstream:
            async with passing(tmp_path, upstream, api="messages") as it:
                for _ in range(2):
                    refused = await it.http.post(PATHS["messages"], content=ASKED["messages"])
                    assert (refused.status_code, refused.json()["type"]) == (400, "error")
                assert isinstance(it.gateway.outage, ProviderError)
            assert len(upstream.requests) == 1

    asyncio.run(run())


@pytest.mark.parametrize("dialect", PATHS)
def test_a_page_between_two_answers_is_asked_for_again_and_reaches_no_agent(tmp_path, dialect):
    page = ok(b"<html>One moment</html>", kind="text/html")
    answer = events(*(each.encode() for each in STREAMS[dialect]))

    async def run() -> None:
        async with Upstream([answer, page, answer, page, page]).serving() as upstream:
            async with passing(tmp_path, upstream, api=dialect, retries=1) as it:
                for _ in range(2):
                    response = await it.http.post(STREAMED[dialect], content=streaming(dialect))
                    assert (response.status_code, b"One moment" in response.content) == (200, False)
                assert it.gateway.outage is None
                refused = await it.http.post(STREAMED[dialect], content=streaming(dialect))
                assert (refused.status_code, b"One moment" in refused.content) == (400, False)
                assert it.gateway.outage is not None
            assert len(upstream.requests) == 5

    asyncio.run(run())


@pytest.mark.parametrize("dialect", PATHS)
def test_a_stream_that_breaks_off_ends_with_an_error_and_is_not_asked_again(tmp_path, dialect):
    first = STREAMS[dialect][1 if dialect == "chat" else 0].encode()

    async def run() -> None:
        async with Upstream([events(first)]).serving() as upstream:
            async with passing(tmp_path, upstream, api=dialect) as it:
                response = await it.http.post(STREAMED[dialect], content=streaming(dialect))
                assert response.content.startswith(first)
                assert b"error" in response.content[len(first) :] or b"response.failed" in response.content
                assert it.gateway.outage is not None
            assert len(upstream.requests) == 1

    asyncio.run(run())


async def answered(it: Served) -> None:
    """Wait until nothing is in flight."""
    async with asyncio.timeout(10):
        while it.gateway.in_flight:  # noqa: ASYNC110 - nobody else waits for that
            await asyncio.sleep(0.01)


@pytest.mark.slow
def test_a_client_that_disconnects_is_still_charged(tmp_path):
    first, *rest = [each.encode() for each in STREAMS["chat"][1:]]

    async def run() -> None:
        async with Upstream([events(first, 0.2, *rest)]).serving() as upstream, passing(tmp_path, upstream) as it:
            async with it.http.stream("POST", PATHS["chat"], content=streaming("chat")) as response:
                async for _ in response.aiter_raw():
                    break
            await answered(it)
            assert as_usage(it.trace.usage) == as_usage(CALL_USAGE)

    asyncio.run(run())


@pytest.mark.slow
def test_a_connection_reset_is_not_logged(tmp_path, caplog):
    pieces = [each.encode() for each in STREAMS["chat"][1:]]

    async def run() -> None:
        async with Upstream([events(*pieces, 0.2)]).serving() as upstream, passing(tmp_path, upstream) as it:
            _, writer = await asyncio.open_unix_connection(it.socket)
            writer.transport.pause_reading()  # closed with something unread: the other end is told of a reset
            body = streaming("chat").encode()
            writer.write(f"POST {PATHS['chat']} HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            await asyncio.sleep(0.1)
            writer.transport.abort()
            await answered(it)
        gc.collect()

    asyncio.run(run())
    assert caplog.messages == []


CALLING = (
    '{"id": "r-1", "model": "m-1", "object": "response", "status": "completed", "output": [{"type": "reasoning", "id": '
    '"rs-1", "summary": [], "encrypted_content": "sealed"}, {"type": "function_call", "call_id": "call-1", "name": '
    '"write", "arguments": "{\\"path\\": \\"a\\"}"}], "usage": {"input_tokens": 11, "output_tokens": 3}}'
)


def test_a_passed_stream_is_recorded_and_replayed_without_a_request(tmp_path):
    stream = 'event: response.completed\ndata: {"type": "response.completed", "response": ODD}\n\n'.replace(
        "ODD", CALLING
    )

    def tape(mode: str) -> Tape:
        return Tape(
            tmp_path / "cassettes" / "m.yaml", Cassette("a_case", "m", 1, "s"), lambda asked: mode, Redactor({})
        )

    async def run() -> None:
        recording = tape("record")
        async with Upstream([events(stream.encode())]).serving() as upstream:
            async with passing(tmp_path, upstream, api="responses", tape=recording) as it:
                first = await it.http.post(PATHS["responses"], content=streaming("responses"))
            recording.save()
            async with passing(tmp_path, upstream, api="responses", tape=tape("replay")) as it:
                again = await it.http.post(PATHS["responses"], content=streaming("responses"))
                assert [each.name for each in it.events(ToolCallEvent)] == ["write"]
            assert len(upstream.requests) == 1
        final = [json.loads(each.content.decode().strip().rpartition("data: ")[2]) for each in (first, again)]
        output = [event["response"]["output"] for event in final]
        assert [item["type"] for item in output[1]] == [item["type"] for item in output[0]]
        assert output[1][0]["encrypted_content"] == "sealed"
        assert output[1][1]["call_id"] == "call-1"

    asyncio.run(run())


@pytest.mark.slow
def test_a_strict_session_translates_nothing(tmp_path):
    async def run() -> None:
        policy = GatewayPolicy(translates=False)
        async with Upstream([ok(REPLIES["chat"].encode())]).serving() as upstream:
            async with passing(tmp_path, upstream, policy=policy) as it:
                passed = await it.http.post(PATHS["chat"], content=ASKED["chat"])
                assert passed.status_code == 200
                for _ in range(2):
                    refused = await it.http.post(PATHS["responses"], content=ASKED["responses"])
                    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_answer")
                with pytest.raises(UnavailableError, match=r"uses the API responses, and the model 'm' chat: .*wires"):
                    it.gateway.find_end(answered=True)
            assert len(upstream.requests) == 1

    asyncio.run(run())


def test_signatures_of_gemini_that_an_agent_lost_are_put_back_and_results_go_once(tmp_path):
    called = {"functionCall": {"name": "read", "args": {"path": "a"}}}
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [{**called, "thoughtSignature": "SIG"}]}, "index": 0}]
    }
    result = {"functionResponse": {"id": "own-1", "name": "read", "response": {"output": "x"}}}
    lost = {"functionCall": {**called["functionCall"], "id": "own-1"}}
    asked = {"role": "user", "parts": [{"text": "Go."}]}

    async def run() -> None:
        answers = [ok(json.dumps(answer).encode()), ok(REPLIES["gemini"].encode())]
        async with Upstream(answers).serving() as upstream, passing(tmp_path, upstream, api="gemini") as it:
            await it.http.post(PATHS["gemini"], json={"contents": [asked]})
            again = [asked, {"role": "model", "parts": [lost]}, {"role": "user", "parts": [result, result]}]
            await it.http.post(PATHS["gemini"], json={"contents": again})
            sent = json.loads(upstream.requests[1][2])["contents"]
            assert sent[1]["parts"] == [{**lost, "thoughtSignature": "SIG"}]
            assert sent[2]["parts"] == [result]
            assert it.trace.provider["gateway"]["signature_restored"] is True

    asyncio.run(run())


def test_an_agent_asks_in_its_own_dialects_only(tmp_path):
    async def run() -> None:
        policy = GatewayPolicy(dialects=("messages",))
        async with Upstream([]).serving() as upstream, passing(tmp_path, upstream, policy=policy) as it:
            refused = await it.http.post(PATHS["chat"], content=ASKED["chat"])
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_route")
            assert it.notes("refused_endpoint") == [{"method": "POST", "path": PATHS["chat"]}]

    asyncio.run(run())
