"""What the tests of this room share: cases, contexts, and a chat endpoint on loopback that says what it is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.records.case import Case, Message, Model, RunnerSpec
from pytest_agentbench.runners.base import RunContext, RunEnd, Runner, conclude
from pytest_agentbench.runners.probe import llm_probe
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces


def make_case(folder: Path = Path("case"), *, tools: Sequence[str] = (), text: str = "Go.", **fields: Any) -> Case:
    fields.setdefault("messages", (Message(role="user", content=text),))
    return Case(
        case_id="a_case",
        title="A case",
        path=folder / "test.yaml",
        runner=RunnerSpec(type="llm_probe"),
        tools=tuple(tools),
        **fields,
    )


def assistant(content: str | None = None, *calls: tuple[str, object], finish: str | None = None) -> dict[str, Any]:
    """A completion; a call is (name, arguments), where text is sent as it is."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"c{number}",
                "type": "function",
                "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
            }
            for number, (name, args) in enumerate(calls, start=1)
        ]
    reason = finish or ("tool_calls" if calls else "stop")
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 0,
        "model": "told-v1",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


Reply = dict[str, Any] | int | str
"""A completion; a number: that HTTP status; a text: a request refused with it."""


@contextmanager
def told(*replies: Reply | Callable[[dict[str, Any]], Reply]) -> Iterator[tuple[Model, list[dict[str, Any]]]]:
    """A model that gives these replies in order, and the requests it has got. A function makes a reply of a request."""
    requests: list[dict[str, Any]] = []
    coming = iter(replies)
    one_by_one = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with one_by_one:
                requests.append(request)
                reply = next(coming)
            reply = reply(request) if callable(reply) else reply
            status, body = 200, reply
            if isinstance(reply, int | str):
                status, message = (reply, "no") if isinstance(reply, int) else (400, reply)
                body = {"error": {"message": message}}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if status == 503:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/v1"
            yield Model(model_id="told", requested_model="told-v1", base_url=url, api_key_env=None), requests
        finally:
            server.shutdown()
            thread.join()


def probe(
    case: Case, model: Model, *, runner: Runner = llm_probe, seconds: float | None = None, **fields: Any
) -> tuple[RunContext, RunEnd | None]:
    """Run the case with llm_probe, or another runner; no end where `seconds` cut it off."""

    async def run() -> tuple[RunContext, RunEnd | None]:
        endpoints, workspaces = Endpoints(scripts=fields.pop("scripts", None)), Workspaces()
        sandboxes = Sandboxes(workspaces)
        context = RunContext(case, lambda: sandboxes, model=model, client=endpoints.client(model), **fields)
        try:
            async with asyncio.timeout(seconds):
                return context, conclude(await runner(case, context), context.trace)
        except TimeoutError:
            return context, None
        finally:
            await endpoints.close()
            workspaces.close()

    return asyncio.run(run())
