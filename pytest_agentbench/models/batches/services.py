"""The batch services of OpenAI (Azure's too), Anthropic and Google: to hand in, to watch, to read, to cancel."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from pytest_agentbench.models.routes import DEFAULT_BASE_URL
from pytest_agentbench.records.case import ApiName, DialectName, Model

_SECONDS = 300.0
"""Limit of one request to a service: a file of lines may be large."""
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
    """Current state of a batch: the service's word for it, and the service's whole answer.

    `missing` is, after the end, the answer for lines without one.
    """

    state: str
    ended: bool
    said: Mapping[str, Any]
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
        """Return the name of the batch that is made of the job."""
        ...

    async def find(self, job: Job) -> str | None:
        """Return the name of the job's batch, or None if it was not created."""
        ...

    async def poll(self, batch: str) -> Poll:
        """Return how a batch is."""
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
    found = None if model.scripted or model.provider is not None else _find_kind(model)
    if model.api == "chat" or _NATIVE.get(model.api) == found:
        return found
    return None


def _find_kind(model: Model) -> Kind | None:
    if model.batch is not None and model.batch != "auto":
        return model.batch
    if model.dialect != "auto":
        return _KINDS.get(model.dialect)
    host = urlsplit(model.base_url or DEFAULT_BASE_URL).hostname or ""
    return next((kind for name, kind in _KINDS.items() if re.fullmatch(DIALECTS[name][0], host)), None)


def open_service(kind: Kind, model: Model, key: str, headers: Mapping[str, str]) -> BatchService:
    """Return the service of a model's endpoint; `headers` go with each request."""
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
            f"model {model.model_id!r}: batch: its endpoint ({model.base_url or DEFAULT_BASE_URL}) has no batches that "
            f"are known; say batch: {_NATIVE.get(model.api, 'openai, anthropic or gemini')} where it speaks "
            f"{'that' if model.api in _NATIVE else 'one of them'}, or leave it out"
        )
    return kind


class _Service:
    """Send requests to one endpoint with one key, as all three services are asked."""

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
            said = f"{method} {urlsplit(url).path} was answered by what is no JSON object"
            raise RequestFailed("invalid_response", said, "Check the base_url of the entry.", retryable=True)
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


_GONE = Poll("gone", ended=True, said={})


def _make_poll(state: str, ended: bool, said: Mapping[str, Any], problems: str = "") -> Poll:
    """Return a poll, with the answer for lines without one, according to its state."""
    lost: Lost | None = {"expired": "expired", "cancelled": "cancelled"}.get(state.lower())  # type: ignore[assignment]
    if state.lower() != "failed":
        return Poll(state, ended, said, Line(lost=lost or "not run"))
    message = f"the batch was refused: {problems or 'the service does not say why'}"
    return Poll(
        state, ended, said, Line(400, _encode({"error": {"message": message, "type": "invalid_request_error"}}))
    )


class _OpenAI(_Service):
    @property
    def _url(self) -> str:
        return f"/v1{find_endpoint_api(self._model).path}"

    def _sign(self, key: str) -> dict[str, str]:
        azure = re.fullmatch(DIALECTS["azure"][0], urlsplit(self._model.base_url or "").hostname or "")
        if key:
            return {"api-key": key} if azure else super()._sign(key)
        return {}

    def write_line(self, name: str, body: Mapping[str, Any]) -> bytes:
        return _encode({"custom_id": name, "method": "POST", "url": self._url, "body": body})

    async def upload(self, job: Job, lines: Sequence[bytes]) -> str | None:
        file = (f"{job.job}.jsonl", b"".join(lines), "application/jsonl")
        said = await self._ask_json("POST", f"{self._base}/files", data={"purpose": "batch"}, files={"file": file})
        return str(said.get("id"))

    async def create(self, job: Job, lines: Sequence[bytes]) -> str:
        asked = {"input_file_id": job.file, "endpoint": self._url, "completion_window": "24h"}
        metadata = {"metadata": {"agentbench_job": job.job}}
        return str((await self._ask_json("POST", f"{self._base}/batches", json=asked | metadata)).get("id"))

    async def find(self, job: Job) -> str | None:
        after: dict[str, str] = {}
        for _ in range(_PAGES):
            said = await self._ask_json("GET", f"{self._base}/batches", params={"limit": "100", **after})
            batches = _list_of(said.get("data"))
            for each in batches:
                if (each.get("metadata") or {}).get("agentbench_job") == job.job:
                    return str(each["id"])
            if not said.get("has_more") or not batches or (batches[-1].get("created_at") or 0) < job.created - 3600:
                return None
            after = {"after": str(batches[-1]["id"])}
        return None

    async def poll(self, batch: str) -> Poll:
        said = await self._poll(f"{self._base}/batches/{batch}")
        if said is None:
            return _GONE
        state = str(said.get("status"))
        errors = _list_of((said.get("errors") or {}).get("data"))
        problems = "; ".join(f"{e.get('code')}, line {e.get('line')}: {e.get('message')}" for e in errors)
        return _make_poll(state, state in ("completed", "failed", "expired", "cancelled"), said, problems)

    async def read(self, poll: Poll) -> dict[str, Line]:
        found: dict[str, Line] = {}
        for name in ("output_file_id", "error_file_id"):
            if file := poll.said.get(name):  # null or empty where there are no such lines
                response = await self._ask("GET", f"{self._base}/files/{file}/content")
                for line in _read_lines(response.content):
                    found[str(line.get("custom_id"))] = self._read_line(line)
        return found

    @staticmethod
    def _read_line(line: Mapping[str, Any]) -> Line:
        response, error = line.get("response"), line.get("error")
        # A line that failed has its error in the response: `error` is of those that were never run
        if isinstance(response, Mapping) and response.get("status_code"):
            return Line(int(response["status_code"]), _encode(response.get("body")))
        code = error.get("code") if isinstance(error, Mapping) else None
        words: Mapping[object, Lost] = {"batch_expired": "expired", "batch_cancelled": "cancelled"}
        return Line(lost=words.get(code, "not run"))

    async def cancel(self, batch: str) -> None:
        await self._ask("POST", f"{self._base}/batches/{batch}/cancel")


class _Anthropic(_Service):
    most_lines = 100_000
    most_bytes = 256_000_000

    def __init__(self, model: Model, key: str, headers: Mapping[str, str]) -> None:
        super().__init__(model, key, headers)
        self._key, self._own = key, {name.lower() for name in headers}

    def _sign(self, key: str) -> dict[str, str]:
        return {}  # by the version of each request

    async def _ask(self, method: str, url: str, fields: Collection[str] = (), **sent: Any) -> httpx2.Response:
        """Return the response to a request, whose lines have these fields."""
        version = choose_version(self._model, fields)
        name = choose_auth_header(version)
        key = {name: self._key if name != "Authorization" else f"Bearer {self._key}"} if self._key else {}
        signed = {name: value for name, value in {VERSION: version, **key}.items() if name.lower() not in self._own}
        return await super()._ask(method, url, headers={**signed, **sent.pop("headers", {})}, **sent)

    def write_line(self, name: str, body: Mapping[str, Any]) -> bytes:
        return _encode({"custom_id": name, "params": body if self._is_native else to_anthropic(body)})

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
        said = await self._ask_json("POST", url, content=content, headers=headers, fields=fields)
        return str(said.get("id"))

    async def find(self, job: Job) -> str | None:
        """Return the newest batch of as many lines that is not older than the job, whose lines, once known, are its."""
        said = await self._ask_json("GET", f"{self._base}/messages/batches", params={"limit": "20"})
        for each in _list_of(said.get("data")):
            counts = each.get("request_counts") or {}
            if sum(value for value in counts.values() if isinstance(value, int)) != len(job.ids):
                continue
            poll = self._read_poll(each)
            # A running batch does not list its ids: they are checked when its results are read.
            if not poll.ended or not job.ids or set(await self.read(poll)) & set(job.ids):
                return str(each["id"])
        return None

    async def poll(self, batch: str) -> Poll:
        said = await self._poll(f"{self._base}/messages/batches/{batch}")
        if said is None:
            return _GONE
        return self._read_poll(said)

    @staticmethod
    def _read_poll(said: Mapping[str, Any]) -> Poll:
        state = str(said.get("processing_status"))
        return Poll(state, state == "ended", said)

    async def read(self, poll: Poll) -> dict[str, Line]:
        url = str(poll.said.get("results_url") or "")
        # Where its own host is not, the key does not go
        if urlsplit(url).hostname != urlsplit(self._base).hostname:
            return {}
        response = await self._ask("GET", url)
        lines = _read_lines(response.content)
        return {str(line.get("custom_id")): self._read_result(line.get("result") or {}) for line in lines}

    def _read_result(self, result: Mapping[str, Any]) -> Line:
        kind = result.get("type")
        if kind == "succeeded":
            message = result.get("message") or {}
            return Line(200, to_bytes(message if self._is_native else from_anthropic(message)))
        if kind == "errored":
            error = result.get("error") or {}
            named = (error.get("error") or error).get("type") if isinstance(error, Mapping) else None
            return Line(ENDPOINT_APIS["messages"].statuses.get(str(named), 500), _encode(error))
        words: Mapping[object, Lost] = {"expired": "expired", "canceled": "cancelled"}
        return Line(lost=words.get(kind, "not run"))

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
        url, named = f"{self._root}/upload/v1beta/files", {"file": {"display_name": job.job}}
        begun = await self._ask("POST", url, headers=begin, json=named)
        place = begun.headers.get("x-goog-upload-url", "")
        if urlsplit(place).hostname != urlsplit(self._root).hostname:
            raise RequestFailed("invalid_response", "no place for the file was named", "Run again.", retryable=True)
        end = {"x-goog-upload-command": "upload, finalize", "x-goog-upload-offset": "0"}
        said = await self._ask_json("POST", place, headers=end, content=content)
        return str((said.get("file") or {}).get("name"))

    async def create(self, job: Job, lines: Sequence[bytes]) -> str:
        asked = {"batch": {"display_name": job.job, "input_config": {"file_name": job.file}}}
        url = f"{self._root}/v1beta/models/{job.model}:batchGenerateContent"
        return str((await self._ask_json("POST", url, json=asked)).get("name"))

    async def find(self, job: Job) -> str | None:
        said = await self._ask_json("GET", f"{self._root}/v1beta/batches", params={"pageSize": "100"})
        for each in _list_of(said.get("operations")):
            if (each.get("metadata") or {}).get("displayName") == job.job:
                return str(each["name"])
        return None

    async def poll(self, batch: str) -> Poll:
        said = await self._poll(f"{self._root}/v1beta/{batch}")
        if said is None:
            return _GONE
        state = str((said.get("metadata") or {}).get("state"))
        word = state.removeprefix("JOB_STATE_").removeprefix("BATCH_STATE_")
        ended = word in ("SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")
        return _make_poll(word, ended, said, str((said.get("error") or {}).get("message") or ""))

    async def read(self, poll: Poll) -> dict[str, Line]:
        response = poll.said.get("response") or {}
        if not (file := response.get("responsesFile")):
            return {}
        got = await self._ask("GET", f"{self._root}/download/v1beta/{file}:download", params={"alt": "media"})
        return {str(line.get("key")): self._read_line(line) for line in _read_lines(got.content)}

    @staticmethod
    def _read_line(line: Mapping[str, Any]) -> Line:
        if isinstance(response := line.get("response"), Mapping):
            return Line(200, to_bytes(from_gemini(response)))
        error = line.get("error") or {}
        code = error.get("code")
        if code == 1:
            return Line(lost="cancelled")
        status = _GRPC_STATUS.get(code, 500) if isinstance(code, int) else 500
        return Line(status, _encode({"error": {**error, "code": status}}))

    async def cancel(self, batch: str) -> None:
        await self._ask("POST", f"{self._root}/v1beta/{batch}:cancel")


_GRPC_STATUS = {3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 11: 400, 12: 501, 14: 503, 16: 401}


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _read_lines(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON lines. One that cannot be read is as one that is missing: its request is made again."""
    for line in content.splitlines():
        try:
            found = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _list_of(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, list):
        return [each for each in found if isinstance(each, dict)]
    return []
