"""Serve a FaultEndpoint with faults below HTTP status codes. It counts the answers that it bills: all that it makes."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from support.fault_endpoint import FaultEndpoint, _response

_RETRY_AFTER = {
    "seconds": lambda: "1",
    "date": lambda: format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True),
    "huge": lambda: "1000000000",
    "negative": lambda: "-5",
}
BILLED_AND_LOST = frozenset(
    {"empty", "cut-body", "slow-body", "malformed", "gzip", "reset-after", "no-choices", "late", "hang"}
    | {"cut-stream", "ended-stream"}
)
"""Faults after which the endpoint has made an answer that nobody can read."""
BILLED = BILLED_AND_LOST | {"ok", "close", "text-type", "no-usage", "other-model"}


@dataclass
class MisbehavingEndpoint(FaultEndpoint):
    """An endpoint with further faults: `status-N` (JSON), `page-N` (HTML), `429-after-KIND`, and those of `_respond`.

    After `down_at` requests it stops listening for `down_seconds` (None: for ever).
    """

    down_at: int | None = None
    down_seconds: float | None = None
    went_down: float | None = field(default=None, init=False)
    _done: set[int] = field(default_factory=set, init=False)

    @property
    def billed(self) -> int:
        """Return the number of answers that the endpoint has made, read or not."""
        return sum(request.fault in BILLED for request in self.requests)

    async def _respond(self, writer: asyncio.StreamWriter, fault: str, body: dict) -> bool:
        if self.down_at is not None and len(self.requests) >= self.down_at and self.went_down is None:
            self.went_down = time.monotonic()
            self._server.close()
            if self.down_seconds is not None:
                self._up = asyncio.ensure_future(self._come_back())
            for request in self.requests:
                request.fault = request.fault if id(request.body) in self._done else "cut"
            for task in [task for task in self._tasks if task is not asyncio.current_task()]:
                task.cancel()
            return False
        goes_on = await self._misbehave(writer, fault, body)
        self._done.add(id(body))
        return goes_on

    async def _misbehave(self, writer: asyncio.StreamWriter, fault: str, body: dict) -> bool:
        kind, _, detail = fault.partition("-")
        if kind == "status":
            said = {"message": f"Trouble of the kind {detail}", "type": "trouble", "code": "trouble"}
            writer.write(_response(int(detail), json.dumps({"error": said}).encode()))
        elif kind == "page":
            page = f"<html><h1>{detail}</h1></html>".encode()
            writer.write(_response(int(detail), page, **{"content-type": "text/html"}))
        elif fault.startswith("429-after-"):
            wait = {"retry-after": _RETRY_AFTER[detail.removeprefix("after-")]()}
            writer.write(_response(429, b'{"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}', **wait))
        elif fault == "redirect":
            writer.write(_response(302, b"", location="http://127.0.0.1:9/login"))
        elif fault == "empty":
            writer.write(_response(200, b""))
        elif fault == "gzip":
            writer.write(_response(200, b"\x1f\x8b\x08no gzip", **{"content-encoding": "gzip"}))
        elif fault == "text-type":
            writer.write(_response(200, self._body(body), **{"content-type": "text/html"}))
        elif fault == "no-usage":
            told = {name: value for name, value in json.loads(self._body(body)).items() if name != "usage"}
            writer.write(_response(200, json.dumps(told).encode()))
        elif fault == "other-model":
            writer.write(_response(200, json.dumps({**json.loads(self._body(body)), "model": "another"}).encode()))
        elif fault == "late":
            await asyncio.sleep(3.5)
            writer.write(_response(200, self._body(body)))
        elif fault in ("reset-before", "reset-after"):
            return False
        elif fault == "close":
            writer.write(_response(200, self._body(body)))
            await writer.drain()
            writer.close()
            return False
        else:
            return await super()._respond(writer, fault, body)
        await writer.drain()
        return True

    def _body(self, body: dict) -> bytes:
        return json.dumps(self._completion(body, "ok")).encode()

    async def _come_back(self) -> None:
        await asyncio.sleep(self.down_seconds or 0)
        port = int(self.base_url.rpartition(":")[2].partition("/")[0])
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=2048)
