"""Serve MCP over stdin and stdout by the standard library: plain tools, and one tool for each kind of failure.

`python -I tests/support/mcp_server.py [options]`. Tools: `echo(text)`, `add(a, b)`, `fail` (error flag), `soft_error`
(an error without the flag), `environment`, `folder`, `count` (number of its calls in this process), `hang`, `slow
(seconds)`, `die` (during the call), `deaf` (stops reading), `noise` (text on stdout), `flood(count)` (notifications),
`huge(megabytes)`, `huge_id_last`, `long_line(megabytes)` (which is not a message), `cut` (half a character),
`malformed` (no result), `binary`, `structured`, `nothing`, `link`, `ask` (asks the client). `--tools N` adds N tools
`tool_1`..., which echo.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]

PROTOCOL = "2025-06-18"
NOISE = "starting with API_KEY=sk-noise-0123456789abcdef"
ODD_NAMES = ("with space", "dots.and/slashes", "größe", "a" * 100, 'quo"te', "colon:in:it")
_ANYTHING: Json = {"type": "object", "properties": {}}
_BROKEN: Json = {
    "wrong_type": {"type": "no such type"},
    "remote": {"$ref": "http://127.0.0.1:9/schema.json"},
    "recursive": {"$ref": "#"},
}
_LOCK = threading.Lock()


def send(message: Json) -> None:
    """Write one whole line of JSON-RPC."""
    write((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())


def write(data: bytes) -> None:
    """Write any bytes to stdout; other threads' bytes cannot come between."""
    with _LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def text(content: str, *, is_error: bool = False) -> Json:
    """Return a result of one text."""
    return {"content": [{"type": "text", "text": content}], "isError": is_error}


class Tools:
    """The tools. Each method has a call's arguments and returns its result."""

    def __init__(self) -> None:
        self._count = 0
        self._asked = 0
        self.answers: dict[str, Json] = {}
        self.answered = threading.Condition()
        self.deaf = threading.Event()

    def named(self, name: str) -> Callable[[Json], Json] | None:
        """Return the tool of this name, or None."""
        if name.startswith("tool_") or name in ODD_NAMES or name in _BROKEN:
            return self.do_echo
        return getattr(self, f"do_{name}", None)

    def do_echo(self, arguments: Json) -> Json:
        return text(str(arguments.get("text", "")))

    def do_add(self, arguments: Json) -> Json:
        return text(str(arguments["a"] + arguments["b"]))

    def do_fail(self, arguments: Json) -> Json:
        return text("it failed: " + str(arguments.get("why", "no reason")), is_error=True)

    def do_soft_error(self, arguments: Json) -> Json:
        return text(json.dumps({"error": "no such fruit"}))

    def do_environment(self, arguments: Json) -> Json:
        return text(json.dumps(dict(os.environ), sort_keys=True))

    def do_folder(self, arguments: Json) -> Json:
        return text(os.getcwd())

    def do_count(self, arguments: Json) -> Json:
        self._count += 1
        return text(str(self._count))

    def do_hang(self, arguments: Json) -> Json:
        threading.Event().wait()
        raise AssertionError

    def do_slow(self, arguments: Json) -> Json:
        time.sleep(arguments.get("seconds", 0.2))
        return text("done")

    def do_die(self, arguments: Json) -> Json:
        print("last words: out of memory", file=sys.stderr, flush=True)
        os._exit(3)

    def do_noise(self, arguments: Json) -> Json:
        write(NOISE.encode() + b'\n\n{"not": "json-rpc"}\n[1, 2]\n\xff\xfe\x00 binary\n{"jsonrpc": "2.0", "id": {\n')
        return text("spoke")

    def do_flood(self, arguments: Json) -> Json:
        line = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 200}}
        many = (json.dumps(line) + "\n").encode() * 100
        for _ in range(arguments.get("count", 10_000) // 100):
            write(many)
        return text("flooded")

    def do_huge(self, arguments: Json) -> Json:
        return text("x" * int(arguments.get("megabytes", 5) * 2**20))

    def do_huge_id_last(self, arguments: Json) -> Json:
        return {**self.do_huge(arguments), "_idLast": True}

    def do_cut(self, arguments: Json) -> Json:
        return text("cut \ud83d")

    def do_malformed(self, arguments: Json) -> Json:
        return {"contents": "of another kind"}

    def do_deaf(self, arguments: Json) -> Json:
        self.deaf.set()
        return text("I do not read any more")

    def do_long_line(self, arguments: Json) -> Json:
        for _ in range(int(arguments.get("megabytes", 20))):
            write(b"x" * 2**20)
        write(b"\n")
        return text("wrote")

    def do_binary(self, arguments: Json) -> Json:
        data = base64.b64encode(bytes(12_345)).decode()
        blob = {"uri": "file:///a.bin", "mimeType": "application/octet-stream", "blob": data}
        return {
            "content": [
                {"type": "text", "text": "a picture:"},
                {"type": "image", "mimeType": "image/png", "data": data},
                {"type": "audio", "mimeType": "audio/wav", "data": data},
                {"type": "resource", "resource": blob},
                {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
            ]
        }

    def do_structured(self, arguments: Json) -> Json:
        return {"content": [], "structuredContent": {"answer": 42}}

    def do_nothing(self, arguments: Json) -> Json:
        return {"content": []}

    def do_link(self, arguments: Json) -> Json:
        return {"content": [{"type": "resource_link", "uri": "file:///report.md", "name": "report"}]}

    def do_ask(self, arguments: Json) -> Json:
        """Return the client's answers to requests of a server, as JSON by method."""
        message = {"role": "user", "content": {"type": "text", "text": "hello"}}
        schema = {"type": "object", "properties": {}}
        asked = {
            "ping": {},
            "roots/list": {},
            "sampling/createMessage": {"messages": [message], "maxTokens": 5},
            "elicitation/create": {"message": "name?", "requestedSchema": schema},
        }
        return text(json.dumps({method: self._ask(method, params) for method, params in asked.items()}))

    def _ask(self, method: str, params: Json) -> Json:
        with self.answered:
            self._asked += 1
            number = f"ask-{self._asked}"
            send({"id": number, "method": method, "params": params})
            self.answered.wait_for(lambda: number in self.answers)
            return self.answers.pop(number)


def described(options: argparse.Namespace) -> list[Json]:
    """Return the tools in the form of `tools/list`."""
    number = {"type": "number"}
    schemas: dict[str, Any] = {
        "echo": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "add": {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]},
    }
    names = [name.removeprefix("do_") for name in vars(Tools) if name.startswith("do_")]
    names += [f"tool_{number}" for number in range(1, options.tools + 1)]
    tools = [
        {
            "name": name,
            "description": f"Tool {name}.",
            "inputSchema": schemas.get(name, _ANYTHING),
            **({"annotations": {"readOnlyHint": True}} if name in ("echo", "add") else {}),
        }
        for name in names
    ]
    if options.broken_schemas:
        tools += [{"name": name, "inputSchema": schema} for name, schema in _BROKEN.items()]
    if options.no_schema:
        tools += [{"name": "unschooled", "inputSchema": "none"}, {"inputSchema": _ANYTHING}, "no tool"]
    if options.odd_names:
        tools += [{"name": name, "inputSchema": _ANYTHING} for name in ODD_NAMES]
    if options.duplicates:
        tools.append({"name": "echo", "description": "The second echo.", "inputSchema": _ANYTHING})
    return tools


class Server:
    """Answer requests; each call of a tool runs in a separate thread."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._tools = Tools()
        self._described = described(options)

    def run(self) -> None:
        """Serve until stdin ends."""
        for line in sys.stdin.buffer:
            self._receive(json.loads(line))
            if self._tools.deaf.wait(0):
                threading.Event().wait()
        if self._options.stays:
            threading.Event().wait()

    def _receive(self, message: Json) -> None:
        if "method" not in message:
            with self._tools.answered:
                self._tools.answers[message["id"]] = {
                    key: message[key] for key in ("result", "error") if key in message
                }
                self._tools.answered.notify_all()
        elif "id" in message:
            if message["method"] == "tools/call":
                log(self._options, f"call {message['params']['name']}")
                threading.Thread(target=self._answer, args=[message], daemon=True).start()
            else:
                self._answer(message)
        else:
            log(self._options, message["method"])

    def _answer(self, message: Json) -> None:
        try:
            result = self._result(message["method"], message.get("params") or {})
            if result.pop("_idLast", False):
                send({"result": result, "id": message["id"]})
            else:
                send({"id": message["id"], "result": result})
        except LookupError as error:
            send({"id": message["id"], "error": {"code": -32602, "message": str(error.args[0])}})

    def _result(self, method: str, params: Mapping[str, Any]) -> Json:
        if method == "initialize":
            return {
                "protocolVersion": self._options.protocol or params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self._options.name, "version": self._options.version},
            }
        if method == "tools/list" and self._options.die_at_list:
            os._exit(5)
        if method == "tools/list" and not self._options.no_list:
            return self._page(int(params.get("cursor") or 0))
        if method == "tools/call":
            tool = self._tools.named(params["name"])
            if tool is None:
                raise LookupError(f"Unknown tool: {params['name']}")
            return tool(params.get("arguments") or {})
        if method == "ping":
            return {}
        raise LookupError(f"Method not found: {method}")

    def _page(self, begin: int) -> Json:
        end = begin + self._options.page
        more = {"nextCursor": str(end)} if end < len(self._described) or self._options.endless else {}
        return {"tools": self._described[begin % len(self._described) : end], **more}


def log(options: argparse.Namespace, line: str) -> None:
    """Append a line to the log, if there is one."""
    if options.log is not None:
        with open(options.log, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def arguments() -> argparse.Namespace:
    """Return the options; by their defaults the server works."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="test-server")
    parser.add_argument("--version", default="1.0")
    parser.add_argument("--protocol", default=PROTOCOL, help="the version it says it speaks; '' echoes the client's")
    parser.add_argument("--log", help="a file that gets a line 'start NAME PID' per start, one per notification")
    parser.add_argument("--tools", type=int, default=0, metavar="N", help="N more tools")
    parser.add_argument("--page", type=int, default=1000, metavar="N", help="tools on each page of tools/list")
    parser.add_argument("--endless", action="store_true", help="tools/list always names a next page")
    parser.add_argument("--no-list", action="store_true", help="tools/list is refused")
    parser.add_argument("--die-at-list", action="store_true")
    parser.add_argument("--broken-schemas", action="store_true")
    parser.add_argument(
        "--no-schema", action="store_true", help="a tool whose schema is no object, and two without a name"
    )
    parser.add_argument("--odd-names", action="store_true")
    parser.add_argument("--duplicates", action="store_true", help="a second tool 'echo'")
    parser.add_argument("--noise", action="store_true", help="text on stdout before it answers")
    parser.add_argument("--start-seconds", type=float, default=0.0, help="how long it takes to come up")
    parser.add_argument("--die-at-start", action="store_true")
    parser.add_argument("--die-at-restart", action="store_true", help="where --log tells of an earlier start")
    parser.add_argument("--stays", action="store_true", help="goes on when stdin ends")
    parser.add_argument("--say", default="", help="what it writes to stderr at its start")
    return parser.parse_args()


def main() -> None:
    """Serve until stdin ends."""
    options = arguments()
    again = options.log is not None and os.path.exists(options.log)
    log(options, f"start {options.name} {os.getpid()}")
    print(options.say, end="", file=sys.stderr, flush=True)
    if options.die_at_start or (options.die_at_restart and again):
        sys.exit(4)
    time.sleep(options.start_seconds)
    if options.noise:
        write(NOISE.encode() + b"\n")
    Server(options).run()


if __name__ == "__main__":
    main()
