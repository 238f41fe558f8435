"""Serve recorded answers of endpoints on loopback: scenarios, by the model's name in the request.

The first rule of a scenario whose `when` is true answers; format.json of the data lists the conditions.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_STEP = re.compile(r"([^\[\]]+)(?:\[([^\]]*)\])?")
_NINE = re.compile("[A-Za-z0-9]{9}")


class ReplayEndpoint:
    """A server: `with ReplayEndpoint(scenarios) as endpoint`, at `endpoint.url` (without /v1).

    `requests` are the received bodies, by scenario. A name with a suffix after @ is counted separately.
    """

    def __init__(self, scenarios: Iterable[Mapping[str, Any]]) -> None:
        self._rules = {scenario["id"]: scenario["rules"] for scenario in scenarios}
        self._lock = threading.Lock()
        self.requests: dict[str, list[dict[str, Any]]] = defaultdict(list)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def count(self) -> Counter[str]:
        return Counter({name: len(bodies) for name, bodies in self.requests.items()})

    def __enter__(self) -> ReplayEndpoint:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        name = body["model"]
        with self._lock:
            self.requests[name].append(body)
            number = len(self.requests[name])
        query = parse_qs(urlsplit(handler.path).query)
        headers = {key.lower() for key in handler.headers}
        reply = next(
            rule["reply"]
            for rule in self._rules[name.partition("@")[0]]
            if _holds(rule["when"], body, number, headers, query)
        )
        _send(handler, reply, body)


def _send(handler: BaseHTTPRequestHandler, reply: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    if "echo_last_tool" in reply:
        message = {"role": "assistant", "content": body["messages"][-1]["content"]}
        reply = {
            "json": {
                "id": "r1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        }
    if "sse" in reply:
        _send_events(handler, reply)
        return
    text = json.dumps(reply["json"]) if "json" in reply else reply.get("text", "")
    content = text.encode()
    handler.send_response(reply.get("status", 200))
    handler.send_header("content-type", reply.get("content_type", "application/json"))
    handler.send_header("content-length", str(reply.get("declared_length", len(content))))
    for key, value in reply.get("headers", {}).items():
        handler.send_header(key, value)
    handler.end_headers()
    pieces = reply.get("chunks", 1)
    size = -(-len(content) // pieces) or 1
    for start in range(0, len(content), size):
        handler.wfile.write(content[start : start + size])
        handler.wfile.flush()
        if pieces > 1:
            time.sleep(reply["chunk_seconds"])
    if "declared_length" in reply:
        handler.close_connection = True


def _send_events(handler: BaseHTTPRequestHandler, reply: Mapping[str, Any]) -> None:
    """Send events one by one, pause as the reply sets it, and close the connection."""
    handler.send_response(reply["status"])
    handler.send_header("content-type", reply["content_type"])
    handler.send_header("connection", "close")
    handler.end_headers()
    try:
        for event in reply["sse"]:
            text = event if isinstance(event, str) else json.dumps(event)
            handler.wfile.write(f"{text if text.startswith(':') else f'data: {text}'}\n\n".encode())
            handler.wfile.flush()
        end = time.monotonic() + reply.get("stall_seconds", 0)
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, reply.get("keep_alive_seconds", left)))
            handler.wfile.write(b": keep-alive\n\n")
            handler.wfile.flush()
    except OSError:  # the client has given up
        pass
    handler.close_connection = True


def _holds(
    when: Mapping[str, Any], body: Mapping[str, Any], number: int, headers: set[str], query: Mapping[str, Any]
) -> bool:
    messages = body.get("messages") or []
    tools = sum(message["role"] == "tool" for message in messages)
    blocks = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    holds = {
        "request_max": lambda n: number <= n,
        "tool_messages": lambda n: tools == n,
        "tool_messages_min": lambda n: tools >= n,
        "tool_results": lambda n: sum(block["type"] == "tool_result" for block in blocks) == n,
        "function_outputs": lambda n: (
            sum(item.get("type") == "function_call_output" for item in body.get("input", ())) == n
        ),
        "has": lambda path: any(value is not None for value in _find(body, path)),
        "lacks": lambda path: all(value is None for value in _find(body, path)),
        "some_lacks": lambda path: any(value is None for value in _find(body, path)),
        "any_has": lambda paths: any(value is not _ABSENT for path in paths for value in _find(body, path, _ABSENT)),
        "lacks_header": lambda name: name not in headers,
        "lacks_query": lambda name: name not in query,
        "tools_may_be_called": lambda yes: (bool(body.get("tools")) and body.get("tool_choice") != "none") == yes,
        "id_not_nine": lambda yes: any(not _NINE.fullmatch(str(i)) for i in _list_ids(messages)) == yes,
    }
    return all(holds[name](value) for name, value in when.items())


_ABSENT = object()


def _find(value: Any, path: str, absent: Any = None) -> Iterator[Any]:
    """Yield the values at a path, or `absent` if a holder lacks the last key.

    A path has keys joined by dots, `name[x]` for the items of role or type x, and `name[]` for all items.
    """
    first, _, rest = path.partition(".")
    found = _STEP.fullmatch(first)
    assert found is not None
    here = value.get(found[1], absent) if isinstance(value, Mapping) else absent
    if found[2] is None:
        if not rest:
            yield here
        elif isinstance(here, Mapping):
            yield from _find(here, rest, absent)
        else:
            yield absent
        return
    for item in here if isinstance(here, list) else ():
        if not found[2] or found[2] in (item.get("role"), item.get("type")):
            yield from _find(item, rest, absent) if rest else [item]


def _list_ids(messages: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    for message in messages:
        yield from (call.get("id") for call in message.get("tool_calls") or ())
        if message["role"] == "tool":
            yield message.get("tool_call_id")
