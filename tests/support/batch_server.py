"""Serve the batch services of OpenAI, Anthropic and Google on loopback, with the answers of a scenario.

    with BatchServer(scenario) as server:
        ...  # server.base_url of the entry; server.creates, uploads, downloads, direct count requests

A scenario names `states`, the answers to successive polls of the first batch (`404`: the batch is gone), and the lines
of its results by item: an item is named by the last letter of its request's last message. Items without a line,
direct requests and further batches are answered with a 4. `hold` (a path) stops the server before it answers the
requests named in that file, until the file is gone.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
KEY = "sk-batch"


class BatchServer:
    def __init__(
        self,
        api: str = "openai",
        *,
        states: tuple[str, ...] = ("completed",),
        lines: Mapping[str, Any] | None = None,
        errors: tuple[Mapping[str, Any], ...] = (),
        every_batch: bool = False,
        answer: str = "4",
    ) -> None:
        self.api, self.states, self.lines, self.errors = api, states, lines or {}, errors
        self.every_batch, self.answer = every_batch, answer
        self.counts: Counter[str] = Counter()
        self.files: dict[str, bytes] = {}
        self.batches: list[dict[str, Any]] = []
        self.direct: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.versions: list[str] = []
        self.holding = threading.Event()
        self.hold: str | None = None
        self.refuse: dict[str, int] = {}

    def __enter__(self) -> BatchServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task] = set()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**24))
        self.root = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.base_url = f"{self.root}/v1beta/openai" if self.api == "gemini" else f"{self.root}/v1"
        return self

    def __exit__(self, *exc: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def creates(self) -> int:
        return len(self.batches)

    def items_of(self, number: int) -> list[str]:
        """Return the items of a batch, numbered from 0."""
        return sorted(item for item in self.batches[number]["items"].values())

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.current_task())
        try:
            while True:
                line, *head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (each.partition(":") for each in head if each)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = line.split(" ", 2)
                path = target.partition("?")[0]
                status, content, more = self._respond(method, path, headers, body)
                if self.hold is not None and self.hold == f"{method} {self._shape(path)}":
                    self.holding.set()
                    await asyncio.Event().wait()
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                fields = {"content-type": "application/json", "content-length": str(len(data)), **more}
                shown = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                writer.write(f"HTTP/1.1 {status} X\r\n{shown}\r\n".encode() + data)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    @staticmethod
    def _shape(path: str) -> str:
        return re.sub(r"(batches/|files/|batch_|file-)[^/:]*\d+", r"\1N", path)

    def _respond(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        self.requests.append((method, path))
        if (status := self.refuse.get(f"{method} {self._shape(path)}")) is not None:
            return status, {"error": {"message": "not here", "code": "refused"}}, {}
        signed = {"openai": f"Bearer {KEY}", "anthropic": KEY, "gemini": KEY}[self.api]
        name = {"openai": "authorization", "anthropic": "x-api-key", "gemini": "x-goog-api-key"}[self.api]
        if self.api == "anthropic" and headers.get("anthropic-version", "") >= "2026-10-21":
            name, signed = "authorization", f"Bearer {KEY}"
        if path.endswith("/chat/completions"):
            return self._answer_directly(json.loads(body))
        if headers.get(name) != signed:
            return 401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, {}
        made = {"openai": self._openai, "anthropic": self._anthropic, "gemini": self._gemini}[self.api]
        found = made(method, path, headers, body)
        if found is None:
            self.problems.append(f"{method} {path}")
            return 404, {"error": {"message": f"{method} {path}"}}, {}
        return found if isinstance(found, tuple) else (200, found, {})

    def _answer_directly(self, body: dict) -> tuple[int, Any, dict[str, str]]:
        self.direct.append(_item_of(body["messages"][-1]["content"]))
        message = {"role": "assistant", "content": self.answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {"id": "d", "model": body["model"], "choices": [choice], "usage": USAGE}, {}

    def _make(self, requests: dict[str, Any], **facts: Any) -> dict[str, Any]:
        """Create a batch of requests, by the ids of their lines."""
        items = {line: _item_of(json.dumps(request)) for line, request in requests.items()}
        batch = {"number": len(self.batches), "items": items, "requests": requests, "polls": 0, **facts}
        self.batches.append(batch)
        return batch

    def _state(self, batch: dict[str, Any], *, poll: bool) -> str:
        states = self.states if batch["number"] == 0 or self.every_batch else self.states[-1:]
        if batch["number"] and not self.every_batch:
            return {"openai": "completed", "anthropic": "ended", "gemini": "JOB_STATE_SUCCEEDED"}[self.api]
        at = min(batch["polls"], len(states) - 1)
        batch["polls"] += poll
        return states[at]

    def _line(self, batch: dict[str, Any], item: str) -> Any:
        """Return the scenario's line for an item, or None if the item is answered."""
        return self.lines.get(item) if batch["number"] == 0 or self.every_batch else None

    # -- OpenAI

    def _openai(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        path = path.removeprefix("/v1")
        if (method, path) == ("POST", "/files"):
            file = body.split(b"\r\n\r\n")[-1].rsplit(b"\r\n--", 1)[0]
            assert b'name="purpose"\r\n\r\nbatch' in body
            self.files[name := f"file-{len(self.files) + 1}"] = file
            return {"id": name, "object": "file", "purpose": "batch", "bytes": len(file)}
        if (method, path) == ("POST", "/batches"):
            asked = json.loads(body)
            lines = [json.loads(line) for line in self.files[asked["input_file_id"]].splitlines()]
            assert all(set(line) == {"custom_id", "method", "url", "body"} for line in lines)
            assert {line["url"] for line in lines} == {asked["endpoint"]}
            assert len({line["body"]["model"] for line in lines}) == 1
            assert len({line["custom_id"] for line in lines}) == len(lines)
            return self._show(
                self._make({line["custom_id"]: line["body"] for line in lines}, metadata=asked["metadata"])
            )
        if (method, path) == ("GET", "/batches"):
            return {"data": [self._show(each, poll=False) for each in reversed(self.batches)], "has_more": False}
        if match := re.fullmatch(r"/batches/batch_(\d+)(/cancel)?", path):
            batch = self.batches[int(match[1])]
            if match[2]:
                batch["cancelled"] = True
                return self._show(batch)
            shown = self._show(batch, poll=True)
            return shown if shown["status"] != "404" else (404, {"error": {"message": "No such batch"}}, {})
        if match := re.fullmatch(r"/files/(out|err)(\d+)/content", path):
            self.counts["downloads"] += match[1] == "out"
            return b"".join(self._results(self.batches[int(match[2])], match[1]))
        return None

    def _show(self, batch: dict[str, Any], *, poll: bool = False) -> dict[str, Any]:
        status, number = self._state(batch, poll=poll), batch["number"]
        ended = status in ("completed", "expired", "cancelled")
        files = {kind: [*self._results(batch, kind)] for kind in ("out", "err")}
        return {
            "id": f"batch_{number}",
            "status": status,
            "created_at": 4_000_000_000,
            "metadata": batch["metadata"],
            "output_file_id": f"out{number}" if ended and files["out"] else None,
            "error_file_id": f"err{number}" if ended and files["err"] else "",
            "errors": {"data": [*self.errors]} if status == "failed" else None,
        }

    def _results(self, batch: dict[str, Any], kind: str):
        """Return the lines of the results, in another order than the requests."""
        for line, item in sorted(batch["items"].items(), key=lambda each: each[1], reverse=True):
            said = self._line(batch, item)
            if said == "missing":
                continue
            if said is None:
                message = {"role": "assistant", "content": self.answer}
                body = {"id": f"r-{item}", "model": "m", "usage": USAGE}
                body["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
                said = {"response": {"status_code": 200, "request_id": "q", "body": body}, "error": None}
            good = said.get("response") is not None and said["response"]["status_code"] in (0, 200)
            if good == (kind == "out"):
                yield json.dumps({"id": "x", **said, "custom_id": line}).encode() + b"\n"

    # -- Anthropic

    def _anthropic(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        self.versions.append(headers["anthropic-version"])
        path = path.removeprefix("/v1/messages/batches")
        if (method, path) == ("POST", ""):
            requests = json.loads(body)["requests"]
            assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", each["custom_id"]) for each in requests)
            sampled = any({"temperature", "top_p", "top_k"} & each["params"].keys() for each in requests)
            if sampled and headers["anthropic-version"] >= "2026-10-21":
                return 400, {"error": {"message": "temperature: Extra inputs are not permitted"}}, {}
            return self._show_anthropic(self._make({each["custom_id"]: each["params"] for each in requests}))
        if (method, path) == ("GET", ""):
            return {"data": [self._show_anthropic(each) for each in reversed(self.batches)], "has_more": False}
        if match := re.fullmatch(r"/msgbatch_(\d+)(/results|/cancel)?", path):
            batch = self.batches[int(match[1])]
            if match[2] == "/results":
                self.counts["downloads"] += 1
                return b"".join(self._anthropic_results(batch))
            batch["cancelled"] = match[2] == "/cancel"
            return self._show_anthropic(batch, poll=True)
        return None

    def _show_anthropic(self, batch: dict[str, Any], *, poll: bool = False) -> dict[str, Any]:
        state, name = self._state(batch, poll=poll), f"msgbatch_{batch['number']}"
        url = f"{self.root}/v1/messages/batches/{name}/results" if state == "ended" else None
        counts = {"processing": len(batch["items"]), "succeeded": 0}
        return {"id": name, "processing_status": state, "results_url": url, "request_counts": counts}

    def _anthropic_results(self, batch: dict[str, Any]):
        for line, item in batch["items"].items():
            said = self._line(batch, item) or {"result": {"type": "succeeded", "message": _MESSAGE}}
            yield json.dumps({**said, "custom_id": line}).encode() + b"\n"

    # -- Gemini

    def _gemini(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        if (method, path) == ("POST", "/upload/v1beta/files"):
            assert headers["x-goog-upload-command"] == "start"
            return 200, {}, {"x-goog-upload-url": f"{self.root}/upload/here"}
        if (method, path) == ("POST", "/upload/here"):
            self.files[name := f"files/{len(self.files) + 1}"] = body
            return {"file": {"name": name, "uri": name}}
        if method == "POST" and path.endswith(":batchGenerateContent"):
            asked = json.loads(body)["batch"]
            lines = [json.loads(line) for line in self.files[asked["input_config"]["file_name"]].splitlines()]
            batch = self._make({line["key"]: line["request"] for line in lines}, display=asked["display_name"])
            return self._show_gemini(batch)
        if (method, path) == ("GET", "/v1beta/batches"):
            return {"operations": [self._show_gemini(each) for each in reversed(self.batches)]}
        if match := re.fullmatch(r"/v1beta/batches/(\d+)(:cancel)?", path):
            batch = self.batches[int(match[1])]
            batch["cancelled"] = bool(match[2])
            return self._show_gemini(batch, poll=True)
        if match := re.fullmatch(r"/download/v1beta/files/out(\d+):download", path):
            self.counts["downloads"] += 1
            batch = self.batches[int(match[1])]
            return b"".join(self._gemini_results(batch))
        return None

    def _show_gemini(self, batch: dict[str, Any], *, poll: bool = False) -> dict[str, Any]:
        state = self._state(batch, poll=poll)
        done = {"done": True, "response": {"responsesFile": f"files/out{batch['number']}"}} if "SUCC" in state else {}
        return {
            "name": f"batches/{batch['number']}",
            "metadata": {"state": state, "displayName": batch["display"]},
            **done,
        }

    def _gemini_results(self, batch: dict[str, Any]):
        for line, item in batch["items"].items():
            said = self._line(batch, item) or {"response": _CANDIDATES}
            yield json.dumps({**said, "key": line}).encode() + b"\n"


_MESSAGE = {
    "id": "msg_1",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "4"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}
_CANDIDATES = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "4"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
}


def _item_of(text: str) -> str:
    return re.findall(r"item (\w+)", text)[-1]
