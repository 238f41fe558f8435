"""An MCP server with fixed answers, over stdin and stdout. Its only argument is JSON: `{tools: [...], mocks: {...}}`.

Python runs it as a script in isolated mode, so that nothing of a workspace is imported: it uses the standard library
alone.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

BROKEN = "unexpected call of a mock"
"""Beginning of the answer to a call that the mock does not expect."""
_PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_INPUT = re.compile(r"\{\{\s*input\.([A-Za-z0-9_.-]+)\s*\}\}")


def answer(server: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request, None for an unknown method."""
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in _PROTOCOLS else _PROTOCOLS[-1],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "mock", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": server["tools"]}
    if method == "tools/call":
        return call_mock(server["mocks"], str(params.get("name")), params.get("arguments") or {})
    return {} if method == "ping" else None


def call_mock(mocks: dict[str, Any], name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the mock's answer to a call, an error for one that it does not expect."""
    mock = mocks.get(name)
    if mock is None:
        return _make_result(f"{BROKEN}: {name} has no answer", is_error=True)
    for key, pattern in mock["expect"].items():
        value = _find_value(arguments, key)
        if re.search(pattern, value) is None:
            return _make_result(f"{BROKEN}: {name}: {key}: found {value[:200]!r}, expected /{pattern}/", is_error=True)
    text = _INPUT.sub(lambda match: _find_value(arguments, match[1]), mock["text"])
    return _make_result(text, is_error=mock["is_error"])


def _find_value(arguments: dict[str, Any], path: str) -> str:
    """Return the text of a value in the arguments; other values than texts are JSON, missing ones empty."""
    value: Any = arguments
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return ""
        value = value[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _make_result(text: str, *, is_error: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def main() -> None:
    """Answer requests until stdin ends."""
    server = json.loads(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(server, request.get("method", ""), request.get("params") or {})
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": f"unknown method {request.get('method')}"}
        else:
            reply["result"] = result
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
