"""Serve streamable HTTP on loopback by the server of the library.

`python tests/support/mcp_http_server.py PORT [json] [sessions]`: `json` answers without event streams, `sessions`
supports only sessions that begin with `initialize`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("over-http", version="2.0")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def slow(delay: float) -> str:
    await asyncio.sleep(delay)
    return "done"


@server.tool()
def huge(megabytes: int) -> str:
    return "x" * (megabytes * 2**20)


@server.tool()
def authorization(ctx: Context) -> str:
    return str(ctx.request_context.request.headers.get("authorization"))


class Sessions:
    """The application before `server/discover` existed."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            message = await receive()
            if json.loads(message["body"]).get("method") == "server/discover":
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"Bad Request: Missing session ID"})
                return
            given = [message]

            async def again() -> Any:
                return given.pop() if given else await receive()

            await self._app(scope, again, send)
        else:
            await self._app(scope, receive, send)


class Locked:
    """The application behind a lock that refuses every key."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})


def main() -> None:
    """Serve until killed."""
    port, options = int(sys.argv[1]), sys.argv[2:]
    app: Any = server.streamable_http_app(json_response="json" in options)
    if "sessions" in options:
        app = Sessions(app)
    if "locked" in options:
        app = Locked()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="off" if "locked" in options else "on")


if __name__ == "__main__":
    main()
