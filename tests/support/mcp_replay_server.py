"""Replay a recorded server of MCP-Bench: its tools from a catalogue, its answers from samples of real calls.

`python -I mcp_replay_server.py --catalogue FILE --samples FILE --server "Unit Converter" [--die-after N]`

The catalogue is `{"Server:tool": {server, name, description, input_schema}}`; a server without an entry has one
invented tool, `lookup(query)`. Samples are lines `{server, tool, args, isError, text}`, or `exc` for a protocol error;
a call without a sample gets a plain answer about that. With `--die-after N` the process dies in its call N + 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

INVALID_PARAMS, METHOD_NOT_FOUND = -32602, -32601
_TEXT = {"type": "string"}
_MADE_UP: Json = {
    "name": "lookup",
    "description": "Look something up.",
    "input_schema": {"type": "object", "properties": {"query": _TEXT}, "required": ["query"]},
}


class Replay:
    """Tools and answers of a server."""

    def __init__(self, server: str, catalogue: Path, samples: Path, die_after: int | None) -> None:
        self.server = server
        recorded = [tool for tool in json.loads(catalogue.read_text("utf-8")).values() if tool["server"] == server]
        self.tools = {tool["name"]: tool for tool in recorded or [_MADE_UP]}
        lines = map(json.loads, samples.read_text("utf-8").splitlines())
        self.samples = {_key(line["tool"], line["args"]): line for line in lines if line["server"] == server}
        self.left = die_after

    def answer(self, method: str, params: Json) -> Json:
        """Return the result of a request, or its error."""
        if method == "initialize":
            about = {"serverInfo": {"name": self.server, "version": "replay"}, "capabilities": {"tools": {}}}
            return {"result": {"protocolVersion": "2025-06-18", **about}}
        if method == "ping":
            return {"result": {}}
        if method == "tools/list":
            shown = ("name", "description")
            tools = [{k: t[k] for k in shown} | {"inputSchema": t["input_schema"]} for t in self.tools.values()]
            return {"result": {"tools": tools}}
        if method == "tools/call":
            return self._call(params.get("name"), params.get("arguments") or {})
        return {"error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}}

    def _call(self, tool: Any, arguments: Json) -> Json:
        if self.left is not None:
            if self.left == 0:
                os._exit(1)
            self.left -= 1
        sample = self.samples.get(_key(tool, arguments))
        if sample is not None and "exc" in sample:
            return {"error": {"code": INVALID_PARAMS, "message": sample["exc"]}}
        if sample is None and tool not in self.tools:
            return {"error": {"code": INVALID_PARAMS, "message": f"Unknown tool: {tool}"}}
        text = sample["text"] if sample else f"replayed: {self.server} has no recorded answer to this call of {tool}"
        failed = bool(sample and sample["isError"])
        return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}


def _key(tool: Any, arguments: Json) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


def main() -> None:
    """Answer requests until stdin ends; notifications get no answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--catalogue", type=Path, required=True)
    parser.add_argument("--samples", type=Path, required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--die-after", type=int)
    args = parser.parse_args()
    replay = Replay(args.server, args.catalogue, args.samples, args.die_after)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            reply = replay.answer(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
