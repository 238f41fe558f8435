"""Failures of requests: their causes, remedies, and the wait before the next attempt."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.errors import UNREACHABLE, ProviderError
from pytest_agentbench.models.ends import ErrorSignal, read_error
from pytest_agentbench.models.routes import DEFAULT_BASE_URL
from pytest_agentbench.records.case import ApiName, Model
from pytest_agentbench.records.run import EndDetail, EndReason
from pytest_agentbench.secrets.redaction import strip_credentials
from pytest_agentbench.terminal_text import shorten_text

_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_OUTAGES = frozenset({502, 503, 504, 529})
"""Statuses of a proxy without a server behind it. A 500 may be caused by this very request."""
_RATE_LIMITED = "rate_limited"
_MAX_MESSAGE = 300


class RequestFailed(Exception):
    """One attempt failed. `code` is the ProviderError code; `advice` is the remedy if it persists.

    `outage` means that every request to the model would fail. `reason` is how a run ends by it, with details in
    `detail`; `partial` is the text that the model had written. `status` and `body` belong to an HTTP error.
    """

    sent = True
    """Whether the endpoint may have got the request."""

    def __init__(
        self,
        code: str,
        summary: str,
        advice: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        outage: bool = False,
        reason: EndReason = "provider_error",
        detail: EndDetail | None = None,
        partial: str | None = None,
        status: int | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(summary)
        self.reason = reason
        self.detail = detail
        self.partial = partial
        self.status = status
        self.body = body
        self.code = code
        self.summary = summary
        self.advice = advice
        self.retryable = retryable
        self.retry_after = retry_after
        self.outage = outage

    @property
    def is_rate_limit(self) -> bool:
        """Return whether it is a 429 that asks for patience."""
        return self.code == _RATE_LIMITED

    def to_error(self, model: Model, attempts: int, seconds: float) -> ProviderError:
        """Return the error that ends the call after `attempts` requests over `seconds`."""
        # For an endpoint that is gone the summary gives the time; the number of attempts would make equal
        # errors differ.
        summary = self.summary
        if attempts > 1 and self.code != UNREACHABLE:
            summary = f"{summary} ({attempts} attempts in {seconds:.1f} s)"
        if model.scripted:
            who = f"scripted model {model.model_id!r}"
        else:
            who = f"model {model.model_id!r} at {_base_url(model)}"
        return ProviderError(
            f"{who}: {summary}. {self.advice}".rstrip(),
            code=self.code,
            retryable=self.retryable,
            reason=self.reason,
            detail=self.detail,
            partial=self.partial,
        )


def status_failed(status: int, body: bytes, model: Model, *, retry_after: float | None = None) -> RequestFailed:
    """Return the failure of an HTTP error status, or of an `error` object in a reply with status 200."""
    signal = read_error(status, body)
    summary = f"HTTP {status}"
    if text := clip(signal.said):
        summary = f"{summary}: {text}"
    reason = signal.reason
    if model.scripted and status == 404:  # its text quotes the case, which may contain the words of any reason
        reason = None
    if retry_after is None:
        retry_after = signal.wait
    if reason is None and status == 429:
        return RequestFailed(_RATE_LIMITED, summary, _SLOWER, retryable=True, retry_after=retry_after, status=status)
    if reason is None and (status in _RETRYABLE_STATUS or status >= 500):
        return RequestFailed(
            "timeout" if status == 408 else "server_error",
            summary,
            _LATER,
            retryable=True,
            retry_after=retry_after,
            outage=status in _OUTAGES,
            status=status,
            body=body,
        )
    code, advice = _advise(reason, status, model)
    if model.scripted:  # the scripted endpoint has its own remedy
        code, advice = signal.code or "bad_request", ""
    return RequestFailed(
        code,
        summary,
        advice,
        retryable=False,
        reason=reason or "rejected",
        detail=_describe_end(reason, signal),
        partial=signal.partial,
        status=status,
        body=body,
    )


def _describe_end(reason: EndReason | None, signal: ErrorSignal) -> EndDetail:
    detail = EndDetail(categories=signal.categories, raw=signal.code or clip(signal.said) or None)
    if reason != "filtered":
        return detail
    # A filter of the output lets the reply begin, so an error in place of a reply is about the prompt.
    return detail.model_copy(update={"side": "input"})


def redirected(place: str, model: Model) -> RequestFailed:
    """Return the failure of a redirect, which is not followed."""
    summary = f"it redirects to {clip(strip_credentials(place))}, and the request and its key are not sent there"
    advice = "If that is the endpoint, write its address into base_url."
    return RequestFailed("redirected", summary, advice, retryable=False, reason="rejected")


def invalid_reply(problem: str, body: bytes, model: Model, *, retryable: bool = True) -> RequestFailed:
    """Return the failure of a reply that violates its API. A truncated reply may be complete the next time."""
    summary = f"the reply is no {_REPLIES[model.api]}: {problem}"
    if begins := clip(body.decode("utf-8", "replace")):
        summary = f"{summary}; it begins {begins!r}"
    advice = f"Check that base_url ({_base_url(model)}) is the API's root; it usually ends with /v1."
    reason: EndReason = "provider_error" if retryable else "rejected"
    return RequestFailed("invalid_response", summary, advice, retryable=retryable, reason=reason)


def is_page(content_type: str, body: bytes) -> bool:
    """Return whether a body is neither JSON nor declared as JSON: a page of a proxy in front of the API."""
    return "json" not in content_type and bool(body.strip()) and body.lstrip()[:1] not in (b"{", b"[")


def proxy_page(status: int, content_type: str, body: bytes) -> RequestFailed:
    """Return the failure of a page from an endpoint that has answered before: a proxy in front of it failed."""
    kind = content_type.partition(";")[0].strip() or "no content type"
    summary = (
        f"HTTP {status} with a page ({kind}) in place of an answer; it begins {clip(body.decode(errors='replace'))!r}"
    )
    return RequestFailed("server_error", summary, _LATER, retryable=True, outage=True, status=status)


_REPLIES: Mapping[ApiName, str] = {
    "chat": "chat completion",
    "responses": "response",
    "messages": "message of Anthropic's",
    "gemini": "response of generateContent",
}


def broken_off(finish: str, partial: str | None, reason: EndReason) -> RequestFailed:
    """Return the failure of a generation that the endpoint gave up, by its finish reason and the end of the run."""
    summary, advice = "the generation broke off", _LATER
    if reason == "aborted":
        summary = "the server stopped generating"
    elif reason == "rejected":
        advice = "The endpoint waits for something that no case offers, such as its own tools."
    return RequestFailed(
        "broken_off",
        f"{summary} (finish_reason: {clip(finish)})",
        advice,
        retryable=reason != "rejected",
        reason=reason,
        detail=EndDetail(raw=clip(finish)),
        partial=partial,
    )


def cut_off(how: str) -> RequestFailed:
    """Return the failure of a stream that ended before its reply did."""
    summary = f"the server stopped generating: {how}"
    return RequestFailed("broken_off", summary, _LATER, retryable=True, reason="aborted")


def refused_reply(problem: str) -> RequestFailed:
    """Return the failure of a reply that is too large to read. It would be as large again."""
    advice = "No model writes as much: check which server answers at its base_url."
    return RequestFailed("reply_too_large", problem, advice, retryable=False, reason="rejected")


def timed_out(seconds: float) -> RequestFailed:
    """Return the failure of a request without a complete reply in time."""
    advice = (
        "Raise timeout_seconds (runner_defaults of the run profile; for judges next to their other settings), or "
        "lower the concurrency."
    )
    return RequestFailed("timeout", f"no complete reply within {seconds:g} s", advice, retryable=True)


def stalled(seconds: float) -> RequestFailed:
    """Return the failure of a stream that sends nothing more."""
    advice = "Raise stall_seconds if the model may be silent for longer in the middle of an answer."
    return RequestFailed(
        "timeout", f"nothing came for {seconds:g} s in the middle of the reply", advice, retryable=True
    )


def not_connected(error: BaseException, model: Model) -> RequestFailed:
    """Return the failure of a connection: refused, reset, cut off, unknown host, bad certificate."""
    cause: BaseException = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        # The clients wrap the socket's error; only the innermost one names the cause.
        cause = cause.__cause__ or cause.__context__ or cause
    text = clip(str(cause)) or type(cause).__name__
    advice = f"Check that base_url ({_base_url(model)}) is right and that its server runs and can be reached from here."
    return RequestFailed("connection", f"the connection failed: {text}", advice, retryable=True, outage=True)


def request_refused(failed: RequestFailed, model: Model) -> RequestFailed:
    """Return the failure of a 401 or 403 from an endpoint that accepts the same key for other requests."""
    key = f"the key in {', '.join(model.variables)}" if model.variables else "no key"
    advice = (
        f"Only this request was refused: others get answers with {key}. A firewall or a filter in front of the "
        "endpoint may refuse its content."
    )
    return _explain_refusal(failed, "request_refused", advice, "request_refused")


def key_refused(failed: RequestFailed, model: Model, count: int) -> RequestFailed:
    """Return the failure of a 401 or 403 by which a key is refused that was accepted before.

    `count` different requests were refused in a row.
    """
    variable = ", ".join(model.variables) or "no variable"
    advice = (
        f"Key refused: the key in {variable} was accepted before, and then {count} different requests in a row were "
        "refused. It may have been revoked, or may not use this model any more."
    )
    return _explain_refusal(failed, failed.code, advice, "authentication")


def _explain_refusal(failed: RequestFailed, code: str, advice: str, reason: EndReason) -> RequestFailed:
    facts: dict[str, Any] = {"detail": failed.detail, "status": failed.status, "body": failed.body}
    return RequestFailed(code, failed.summary, advice, retryable=False, reason=reason, **facts)


def unreachable(dead: str, last: RequestFailed) -> RequestFailed:
    """Return the failure of a request that is not sent any more.

    `dead` is the reason, `last` the endpoint's last failure.
    """
    summary = f"{last.summary}; {dead}, so it is not asked any more"
    return RequestFailed(UNREACHABLE, summary, last.advice, retryable=False)


def clip(text: str) -> str:
    """Return `text` on one line, shortened."""
    return shorten_text(" ".join(text.split()), _MAX_MESSAGE)


_SLOWER = (
    "The endpoint limits the rate: lower limits.max_concurrency, or set limits.rpm or limits.tpm, of the model's entry "
    "in models.yaml, or raise outage_seconds in the run profile's runner_defaults."
)
_LATER = "The endpoint has trouble: run again later; finished runs are kept."


_ADVICE: Mapping[EndReason, str] = {
    "quota": "The account has no credit or quota left: check its billing and limits.",
    "context_exceeded": "",
    "filtered": "",
    "malformed_reply": "",
    "unsupported": "",
}


def _advise(reason: EndReason | None, status: int, model: Model) -> tuple[str, str]:
    """Return the code of a refusal, and its remedy."""
    if reason is not None and reason in _ADVICE:
        return reason, _ADVICE[reason]
    variable = ", ".join(model.variables) or None
    if status == 401 or (reason == "authentication" and status != 403):
        if variable is None:
            return "authentication", "It wants a key: name the variable that holds it in the entry's api_key_env."
        return "authentication", f"Check the key in {variable}, or name another variable in the entry's api_key_env."
    if status == 403:
        return "permission", f"The key in {variable or 'no variable'} may not use {model.requested_model!r} there."
    if status == 404:
        return "not_found", (
            f"Check requested_model ({model.requested_model!r}) and base_url ({_base_url(model)}; it usually ends with "
            "/v1) of the model's entry in models.yaml."
        )
    if status in (400, 422):
        names = ", ".join(model.parameters) or "the model has none"
        return "bad_request", f"Check the request parameters ({names}; the run profile's runner_defaults add to them)."
    return "refused", "Check the model's entry in models.yaml and the run profile."


def _base_url(model: Model) -> str:
    return strip_credentials(model.base_url or DEFAULT_BASE_URL)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter, in seconds: `first`, doubled each time up to `longest`.

    An endpoint's own Retry-After is honoured up to `longest_retry_after`.
    """

    first: float = 0.5
    longest: float = 30.0
    longest_retry_after: float = 3600.0

    def seconds(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after attempt number `attempt` (from 1) failed."""
        # Without jitter all requests that one outage broke come back at the same moment, and break it again.
        jitter = random.random()
        if retry_after is not None:  # never earlier than asked, and not all at the same moment
            return min(max(retry_after, 0.0), self.longest_retry_after) + jitter * self.first
        # At most 60, because 2.0 ** 1024 overflows.
        ceiling = min(self.longest, self.first * 2.0 ** min(attempt - 1, 60))
        return ceiling * (0.5 + jitter / 2)


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the seconds to wait by `retry-after-ms` or `Retry-After` (RFC 9110 section 10.2.3).

    `Retry-After` contains seconds or an HTTP date, which counts from `now` (Unix time). None if neither header exists
    or is readable.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        now = time.time() if now is None else now
        return max(date.timestamp() - now, 0.0)
    except (ValueError, OverflowError, OSError):
        return None
