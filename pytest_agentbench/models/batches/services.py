"""The batch services of OpenAI, Azure, Anthropic and Google: submit, watch, read and cancel batches."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import httpx2

from pytest_agentbench.bounded.replies import ReplyRefusedError, bounded_replies
from pytest_agentbench.config.dialects import DIALECTS
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.apis.choice import ENDPOINT_APIS, find_endpoint_api
from pytest_agentbench.models.apis.messages import VERSION, choose_auth_header, choose_version
from pytest_agentbench.models.batches.jobs import Job, Kind
from pytest_agentbench.models.batches.translation import from_anthropic, from_gemini, to_anthropic, to_bytes, to_gemini
from pytest_agentbench.models.connections import tls_context
from pytest_agentbench.models.failures import RequestFailed, not_connected, refused_reply, status_failed
from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.routes import DEFAULT_BASE_URL
from pytest_agentbench.records.case import ApiName, DialectName, Model

_SECONDS = 300.0
"""Seconds for one request to a service. It is long, because a file of lines may be large."""
_LARGEST_RESULTS = 512 * 2**20
_PAGES = 20

Lost = Literal["not run", "expired", "cancelled"]
"""Why a line has no answer."""


@dataclass(frozen=True, slots=True)
class Line:
    """The answer to a line, in the form of a single reply; `lost` if the service never processed it."""

    status: int = 0
    body: bytes = b""
    lost: Lost | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """Current state of a batch, as the service names it, and the service's whole `reply`.

    After the end, `missing` is the answer for lines that have none.
    """

    state: str
    ended: bool
    reply: Mapping[str, Any]
    missing: Line = Line(lost="not run")


class BatchService(Protocol):
    """A service that takes batches. All methods raise RequestFailed."""

    most_lines: int
    most_bytes: int

    def write_line(self, name: str, body: Mapping[str, Any]) -> bytes:
        """Return the line of a request."""
        ...

    async def upload(self, job: Job, lines: Sequence[bytes]) -> str | None:
        """Return the name of the uploaded lines, or None if they are sent with the creation."""
        ...

    async def create(self, job: Job, lines: Sequence[bytes]) -> str:
        """Create the batch of the job. Return its name."""
        ...

    async def find(self, job: Job) -> str | None:
        """Return the name of the job's batch, or None if it was not created."""
        ...

    async def poll(self, batch: str) -> Poll:
        """Return the current state of a batch."""
        ...

    async def read(self, poll: Poll) -> dict[str, Line]:
        """Return the answers of a batch that has ended, by the ids of their lines."""
        ...

    async def cancel(self, batch: str) -> None:
        """Ask the service to stop."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


_KINDS: Mapping[DialectName, Kind] = {
    "openai": "openai",
    "azure": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
_NATIVE: Mapping[ApiName, Kind] = {"responses": "openai", "messages": "anthropic"}


def find_kind(model: Model) -> Kind | None:
    """Return the batch protocol of a model's endpoint, or None if it has no known one.

    For a model with another API than Chat Completions, only services whose lines have that API count.
    """
    if model.scripted or model.provider is not None:
        return None
    kind = _find_kind(model)
    if model.api == "chat" or _NATIVE.get(model.api) == kind:
        return kind
    return None


def _find_kind(model: Model) -> Kind | None:
    if model.batch is not None and model.batch != "auto":
        return model.batch
    if model.dialect != "auto":
        return _KINDS.get(model.dialect)
    host = urlsplit(model.base_url or DEFAULT_BASE_URL).hostname or ""
    return next((kind for name, kind in _KINDS.items() if re.fullmatch(DIALECTS[name][0], host)), None)


def open_service(kind: Kind, model: Model, key: str, headers: Mapping[str, str]) -> BatchService:
    """Return the service of a model's endpoint. `headers` are sent with each request."""
    if kind == "openai":
        return _OpenAI(model, key, headers)
    if kind == "anthropic":
        return _Anthropic(model, key, headers)
    return _Gemini(model, key, headers)


def require_kind(model: Model) -> Kind:
    """Return the result of `find_kind`. Raises ConfigError if it is None."""
    kind = find_kind(model)
    if kind is None:
        raise ConfigError(
            f"model {model.model_id!r}: batch: its endpoint ({model.base_url or DEFAULT_BASE_URL}) has no known "
            f"batches; set batch: {_NATIVE.get(model.api, 'openai, anthropic or gemini')} if it has batches of that "
            "kind, or leave it out"
        )
    return kind


class _Service:
    """The requests to one endpoint with one key, which all three services share."""

    most_lines = 50_000
    most_bytes = 200_000_000

    def __init__(self, model: Model, key: str, headers: Mapping[str, str]) -> None:
        self._model = model
        self._base = (model.base_url or DEFAULT_BASE_URL).rstrip("/")
        self._http = httpx2.AsyncClient(
            headers={**self._sign(key), **headers},
            params=dict(model.query),
            timeout=httpx2.Timeout(_SECONDS, connect=10),
            event_hooks=bounded_replies(_LARGEST_RESULTS),
            verify=tls_context(),
        )

    def _sign(self, key: str) -> dict[str, str]:
        if key:
            return {"authorization": f"Bearer {key}"}
        return {}

    async def _ask(self, method: str, url: str, **sent: Any) -> httpx2.Response:
        """Return a response with a success status. Raises RequestFailed."""
        try:
            response = await self._http.request(method, url, **sent)
        except ReplyRefusedError as error:
            raise refused_reply(str(error)) from error
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise not_connected(error, self._model) from error
        if not response.is_success:
            raise status_failed(response.status_code, response.content, self._model)
        return response

    async def _ask_json(self, method: str, url: str, **sent: Any) -> dict[str, Any]:
        response = await self._ask(method, url, **sent)
        try:
            data = response.json()
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            summary = f"the reply to {method} {urlsplit(url).path} is no JSON object"
            raise RequestFailed("invalid_response", summary, "Check the base_url of the entry.", retryable=True)
        return data

    async def _poll(self, url: str) -> dict[str, Any] | None:
        """Return the service's answer on a batch, or None if the batch is unknown."""
        try:
            return await self._ask_json("GET", url)
        except RequestFailed as failed:
            if failed.status == 404:
                return None
            raise

    async def close(self) -> None:
        await self._http.aclose()


_GONE = Poll("gone", ended=True, reply={})
_LOST: Mapping[object, Lost] = {"expired": "expired", "cancelled": "cancelled"}


def _make_poll(state: str, ended: bool, reply: Mapping[str, Any], problems: str = "") -> Poll:
    """Return a poll. The answer for lines without one depends on the state."""
    if state.lower() != "failed":
        return Poll(state, ended, reply, Line(lost=_LOST.get(state.lower(), "not run")))
    message = f"the batch was refused: {problems or 'the service gives no reason'}"
    error = {"error": {"message": message, "type": "invalid_request_error"}}
    return Poll(state, ended, reply, Line(400, _encode(error)))


class _OpenAI(_Service):
    @property
    def _url(self) -> str:
        return f"/v1{find_endpoint_api(self._model).path}"

    def _sign(self, key: str) -> dict[str, str]:
        if key and re.fullmatch(DIALECTS["azure"][0], urlsplit(self._model.base_url or "").hostname or ""):
            return {"api-key": key}
        return super()._sign(key)

    def write_line(self, name: str, body: Mapping[str, Any]) -> bytes:
        return _encode({"custom_id": name, "method": "POST", "url": self._url, "body": body})

    async def upload(self, job: Job, lines: Sequence[bytes]) -> str | None:
        file = (f"{job.job}.jsonl", b"".join(lines), "application/jsonl")
        reply = await self._ask_json("POST", f"{self._base}/files", data={"purpose": "batch"}, files={"file": file})
        return str(reply.get("id"))

    async def create(self, job: Job, lines: Sequence[bytes]) -> str:
        request = {
            "input_file_id": job.file,
            "endpoint": self._url,
            "completion_window": "24h",
            "metadata": {"agentbench_job": job.job},
        }
        return str((await self._ask_json("POST", f"{self._base}/batches", json=request)).get("id"))

    async def find(self, job: Job) -> str | None:
        after: dict[str, str] = {}
        for _ in range(_PAGES):
            reply = await self._ask_json("GET", f"{self._base}/batches", params={"limit": "100", **after})
            batches = _list_of(reply.get("data"))
            for batch in batches:
                if (batch.get("metadata") or {}).get("agentbench_job") == job.job:
                    return str(batch["id"])
            # Newest first: a batch that is an hour older than the job ends the search.
            if not reply.get("has_more") or not batches or (batches[-1].get("created_at") or 0) < job.created - 3600:
                return None
            after = {"after": str(batches[-1]["id"])}
        return None

    async def poll(self, batch: str) -> Poll:
        reply = await self._poll(f"{self._base}/batches/{batch}")
        if reply is None:
            return _GONE
        state = str(reply.get("status"))
        errors = _list_of((reply.get("errors") or {}).get("data"))
        problems = "; ".join(f"{e.get('code')}, line {e.get('line')}: {e.get('message')}" for e in errors)
        return _make_poll(state, state in ("completed", "failed", "expired", "cancelled"), reply, problems)

    async def read(self, poll: Poll) -> dict[str, Line]:
        answers: dict[str, Line] = {}
        for name in ("output_file_id", "error_file_id"):
            if file := poll.reply.get(name):  # null or empty if there are no such lines
                response = await self._ask("GET", f"{self._base}/files/{file}/content")
                for line in _read_lines(response.content):
                    answers[str(line.get("custom_id"))] = self._read_line(line)
        return answers

    @staticmethod
    def _read_line(line: Mapping[str, Any]) -> Line:
        response, error = line.get("response"), line.get("error")
        # A failed line has its error in the response. Only lines that were never run have an `error`.
        if isinstance(response, Mapping) and response.get("status_code"):
            return Line(int(response["status_code"]), _encode(response.get("body")))
        code = str(as_object(error).get("code"))
        return Line(lost=_LOST.get(code.removeprefix("batch_"), "not run"))

    async def cancel(self, batch: str) -> None:
        await self._ask("POST", f"{self._base}/batches/{batch}/cancel")


class _Anthropic(_Service):
    most_lines = 100_000
    most_bytes = 256_000_000

    def __init__(self, model: Model, key: str, headers: Mapping[str, str]) -> None:
        super().__init__(model, key, headers)
        self._key, self._own = key, {name.lower() for name in headers}

    def _sign(self, key: str) -> dict[str, str]:
        return {}  # the version of each request decides the header of the key

    async def _ask(self, method: str, url: str, fields: Collection[str] = (), **sent: Any) -> httpx2.Response:
        """Return the response to a request whose lines have these fields."""
        version = choose_version(self._model, fields)
        signed = {VERSION: version}
        if self._key:
            name = choose_auth_header(version)
            signed[name] = f"Bearer {self._key}" if name == "Authorization" else self._key
        signed = {name: value for name, value in signed.items() if name.lower() not in self._own}
        return await super()._ask(method, url, headers={**signed, **sent.pop("headers", {})}, **sent)

    def write_line(self, name: str, body: Mapping[str, Any]) -> bytes:
        if not self._is_native:
            body = to_anthropic(body)
        return _encode({"custom_id": name, "params": body})

    @property
    def _is_native(self) -> bool:
        return self._model.api == "messages"

    async def upload(self, job: Job, lines: Sequence[bytes]) -> str | None:
        return None

    async def create(self, job: Job, lines: Sequence[bytes]) -> str:
        content = b'{"requests":[' + b",".join(line.rstrip(b"\n") for line in lines) + b"]}"
        headers = {"content-type": "application/json"}
        url = f"{self._base}/messages/batches"
        fields = {field for line in lines for field in json.loads(line)["params"]}
        reply = await self._ask_json("POST", url, content=content, headers=headers, fields=fields)
        return str(reply.get("id"))

    async def find(self, job: Job) -> str | None:
        """Return the newest batch that has as many lines as the job and, if it has ended, answers to them."""
        reply = await self._ask_json("GET", f"{self._base}/messages/batches", params={"limit": "20"})
        for batch in _list_of(reply.get("data")):
            counts = batch.get("request_counts") or {}
            if sum(value for value in counts.values() if isinstance(value, int)) != len(job.ids):
                continue
            poll = self._read_poll(batch)
            # A running batch does not list its ids: they are checked when its results are read.
            if not poll.ended or not job.ids or set(await self.read(poll)) & set(job.ids):
                return str(batch["id"])
        return None

    async def poll(self, batch: str) -> Poll:
        reply = await self._poll(f"{self._base}/messages/batches/{batch}")
        if reply is None:
            return _GONE
        return self._read_poll(reply)

    @staticmethod
    def _read_poll(reply: Mapping[str, Any]) -> Poll:
        state = str(reply.get("processing_status"))
        return Poll(state, state == "ended", reply)

    async def read(self, poll: Poll) -> dict[str, Line]:
        url = str(poll.reply.get("results_url") or "")
        # The key is not sent to another host than the endpoint's.
        if urlsplit(url).hostname != urlsplit(self._base).hostname:
            return {}
        response = await self._ask("GET", url)
        lines = _read_lines(response.content)
        return {str(line.get("custom_id")): self._read_result(line.get("result") or {}) for line in lines}

    def _read_result(self, result: Mapping[str, Any]) -> Line:
        kind = result.get("type")
        if kind == "succeeded":
            message = result.get("message") or {}
            if not self._is_native:
                message = from_anthropic(message)
            return Line(200, to_bytes(message))
        if kind == "errored":
            error = result.get("error") or {}
            code = str((as_object(error).get("error") or as_object(error)).get("type"))
            return Line(ENDPOINT_APIS["messages"].statuses.get(code, 500), _encode(error))
        if kind == "canceled":
            kind = "cancelled"
        return Line(lost=_LOST.get(kind, "not run"))

    async def cancel(self, batch: str) -> None:
        await self._ask("POST", f"{self._base}/messages/batches/{batch}/cancel")


class _Gemini(_Service):
    most_lines = 100_000

    def __init__(self, model: Model, key: str, headers: Mapping[str, str]) -> None:
        super().__init__(model, key, headers)
        parts = urlsplit(self._base)
        self._root = f"{parts.scheme}://{parts.netloc}"

    def _sign(self, key: str) -> dict[str, str]:
        if key:
            return {"x-goog-api-key": key}
        return {}

    def write_line(self, name: str, body: Mapping[str, Any]) -> bytes:
        return _encode({"key": name, "request": to_gemini(body)})

    async def upload(self, job: Job, lines: Sequence[bytes]) -> str | None:
        content = b"".join(lines)
        begin = {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(len(content)),
            "x-goog-upload-header-content-type": "application/jsonl",
        }
        url = f"{self._root}/upload/v1beta/files"
        response = await self._ask("POST", url, headers=begin, json={"file": {"display_name": job.job}})
        place = response.headers.get("x-goog-upload-url", "")
        if urlsplit(place).hostname != urlsplit(self._root).hostname:
            raise RequestFailed("invalid_response", "no place for the file was named", "Run again.", retryable=True)
        end = {"x-goog-upload-command": "upload, finalize", "x-goog-upload-offset": "0"}
        reply = await self._ask_json("POST", place, headers=end, content=content)
        return str((reply.get("file") or {}).get("name"))

    async def create(self, job: Job, lines: Sequence[bytes]) -> str:
        request = {"batch": {"display_name": job.job, "input_config": {"file_name": job.file}}}
        url = f"{self._root}/v1beta/models/{job.model}:batchGenerateContent"
        return str((await self._ask_json("POST", url, json=request)).get("name"))

    async def find(self, job: Job) -> str | None:
        reply = await self._ask_json("GET", f"{self._root}/v1beta/batches", params={"pageSize": "100"})
        for batch in _list_of(reply.get("operations")):
            if (batch.get("metadata") or {}).get("displayName") == job.job:
                return str(batch["name"])
        return None

    async def poll(self, batch: str) -> Poll:
        reply = await self._poll(f"{self._root}/v1beta/{batch}")
        if reply is None:
            return _GONE
        state = str((reply.get("metadata") or {}).get("state"))
        state = state.removeprefix("JOB_STATE_").removeprefix("BATCH_STATE_")
        ended = state in ("SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")
        return _make_poll(state, ended, reply, str((reply.get("error") or {}).get("message") or ""))

    async def read(self, poll: Poll) -> dict[str, Line]:
        file = (poll.reply.get("response") or {}).get("responsesFile")
        if not file:
            return {}
        response = await self._ask("GET", f"{self._root}/download/v1beta/{file}:download", params={"alt": "media"})
        return {str(line.get("key")): self._read_line(line) for line in _read_lines(response.content)}

    @staticmethod
    def _read_line(line: Mapping[str, Any]) -> Line:
        if isinstance(response := line.get("response"), Mapping):
            return Line(200, to_bytes(from_gemini(response)))
        error = line.get("error") or {}
        code = error.get("code")
        if code == 1:
            return Line(lost="cancelled")
        status = 500
        if isinstance(code, int):
            status = _GRPC_STATUS.get(code, 500)
        return Line(status, _encode({"error": {**error, "code": status}}))

    async def cancel(self, batch: str) -> None:
        await self._ask("POST", f"{self._root}/v1beta/{batch}:cancel")


_GRPC_STATUS = {3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 11: 400, 12: 501, 14: 503, 16: 401}


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _read_lines(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON lines. Unreadable lines are skipped, so their requests are made again."""
    for line in content.splitlines():
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def _list_of(value: Any) -> list[dict[str, Any]]:
    return [item for item in as_list(value) if isinstance(item, dict)]
