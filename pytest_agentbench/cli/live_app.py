"""The pages of `agentbench watch` over ASGI, for this machine only: the shell, its data, the details of a run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from urllib.parse import parse_qs

from pytest_agentbench.cli.live_data import Answer, LiveData
from pytest_agentbench.cli.serve import foreign_problem
from pytest_agentbench.models import App, Receive, Scope, Send

_ROUTE = re.compile(r"/(?:session/(?P<name>[0-9A-Za-z-]{1,60})/)?(?P<what>|data\.json|run\.json)")
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_NO_FRAMES = b"frame-ancestors 'none'"
"""The page's own policy stands in the page; this cannot."""


def live_app(data: LiveData, page: bytes) -> App:
    """Serves GET / and /session/NAME/, and beside each `data.json` and `run.json?nodeid=`. Nothing names a file."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        route = _ROUTE.fullmatch(scope["path"])
        if (problem := foreign_problem(scope)) is not None:
            await _refuse(send, 403, problem)
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, "only GET is served")
        elif route is None:
            await _refuse(send, 404, "there is nothing here")
        elif not route["what"]:
            await _send(send, 200, b"text/html; charset=utf-8", page)
        else:
            await _send_data(send, headers.get(b"if-none-match"), await asyncio.to_thread(_asked(data, route, scope)))

    return app


def _asked(data: LiveData, route: re.Match[str], scope: Scope) -> Callable[[], Answer | None]:
    if route["what"] == "data.json":
        return lambda: data.data(route["name"])
    nodeid = parse_qs(scope["query_string"].decode("latin-1")).get("nodeid", [""])[0]
    return lambda: data.detail(route["name"], nodeid)


async def _send_data(send: Send, known: bytes | None, answer: Answer | None) -> None:
    if answer is None:
        await _refuse(send, 404, "there is no such session or run")
        return
    tag = f'"{answer.tag}"'.encode()
    if known == tag:
        await _send(send, 304, None, b"", (b"etag", tag))
    else:
        await _send(send, 200, b"application/json", answer.body, (b"etag", tag))


async def _refuse(send: Send, status: int, reason: str) -> None:
    await _send(send, status, b"text/plain; charset=utf-8", f"{reason}\n".encode())


async def _send(send: Send, status: int, kind: bytes | None, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [*_SAFE, (b"content-security-policy", _NO_FRAMES), *more]
    if kind is not None:
        headers += [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
