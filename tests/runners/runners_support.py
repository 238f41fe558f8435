"""What the tests of this room share: cases, contexts, and a chat endpoint on loopback that says what it is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pytest_agentbench.models import Endpoints
from pytest_agentbench.records import Case, Message, Model, RunnerSpec
from pytest_agentbench.runners import RunContext, RunEnd, conclude, llm_probe
from pytest_agentbench.workspaces import Sandboxes, Workspaces


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


@contextmanager
def told(*replies: dict[str, Any] | int) -> Iterator[tuple[Model, list[dict[str, Any]]]]:
    """A model that gives these replies in order (a number: that HTTP status), and the requests it has got."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            reply = replies[len(requests) - 1]
            status, body = (reply, {"error": {"message": "no"}}) if isinstance(reply, int) else (200, reply)
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


def probe(case: Case, model: Model, *, seconds: float | None = None, **fields: Any) -> tuple[RunContext, RunEnd | None]:
    """Run the case with llm_probe; no end where `seconds` cut it off."""

    async def run() -> tuple[RunContext, RunEnd | None]:
        endpoints, workspaces = Endpoints(scripts=fields.pop("scripts", None)), Workspaces()
        context = RunContext(case, Sandboxes(workspaces), model=model, client=endpoints.client(model), **fields)
        try:
            async with asyncio.timeout(seconds):
                return context, conclude(await llm_probe(case, context), context.trace)
        except TimeoutError:
            return context, None
        finally:
            await endpoints.close()
            workspaces.close()

    return asyncio.run(run())
