"""Failures of requests: their causes, when to repeat, and when to wait for an endpoint or give it up."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.pricing import DEFAULT_BASE_URL
from pytest_agentbench.records.case import Model
from pytest_agentbench.store.remote import strip_credentials

RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_OUTAGES = frozenset({502, 503, 504, 529})
"""What stands before the model says that nothing is behind it. A 500 may be this very request's."""
UNREACHABLE = "unreachable"
"""The code of an endpoint that is dead: nothing that asks it is worth starting."""
_MAX_MESSAGE = 300


class RequestFailed(Exception):
    """One attempt failed. `code` is the ProviderError code; `advice` says what to do if it stays so.

    `outage` says that nothing answered for the model, whatever was asked.
    """

    def __init__(
        self,
        code: str,
        summary: str,
        advice: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        outage: bool = False,
    ) -> None:
        super().__init__(summary)
        self.code = code
        self.summary = summary
        self.advice = advice
        self.retryable = retryable
        self.retry_after = retry_after
        self.outage = outage

    def to_error(self, model: Model, attempts: int, seconds: float) -> ProviderError:
        """Return the error that ends the call after `attempts` requests over `seconds`."""
        tried = f" ({attempts} attempts in {seconds:.1f} s)" if attempts > 1 else ""
        who = (
            f"scripted model {model.model_id!r}"
            if model.scripted
            else f"model {model.model_id!r} at {_base_url(model)}"
        )
        message = f"{who}: {self.summary}{tried}. {self.advice}".rstrip()
        return ProviderError(message, code=self.code, retryable=self.retryable)


def status_failed(status: int, body: bytes, model: Model, *, retry_after: float | None = None) -> RequestFailed:
    """Return the failure of an HTTP error status, or of an `error` object in a reply with status 200."""
    said, provider_code = _read_error(body)
    summary = f"HTTP {status}: {said}" if said else f"HTTP {status}"
    if status == 402 or (status == 429 and provider_code == "insufficient_quota"):
        return RequestFailed("quota", summary, "The account has no credit left: check its billing.", retryable=False)
    if status == 429:
        return RequestFailed("rate_limited", summary, _SLOWER, retryable=True, retry_after=retry_after)
    if status in RETRYABLE_STATUS or status >= 500:
        code = "timeout" if status == 408 else "server_error"
        outage = status in _OUTAGES
        return RequestFailed(code, summary, _LATER, retryable=True, retry_after=retry_after, outage=outage)
    if model.scripted:  # the scripted endpoint says itself what to do
        return RequestFailed(provider_code or "bad_request", summary, "", retryable=False)
    code, advice = _advise_on_refusal(status, model)
    return RequestFailed(code, summary, advice, retryable=False)


def redirected(place: str, model: Model) -> RequestFailed:
    """Return the failure of a redirect, which is not followed."""
    summary = f"it redirects to {clip(strip_credentials(place))}, where the request and its key are not sent"
    advice = "Where that is the endpoint, write its address into base_url."
    return RequestFailed("redirected", summary, advice, retryable=False)


def invalid_reply(what: str, body: bytes, model: Model) -> RequestFailed:
    """Return the failure of a reply that is no chat completion."""
    begins = clip(body.decode("utf-8", "replace"))
    summary = f"the reply is no chat completion: {what}" + (f"; it begins {begins!r}" if begins else "")
    advice = f"Check that base_url ({_base_url(model)}) is the API's root; it usually ends with /v1."
    return RequestFailed("invalid_response", summary, advice, retryable=True)


def refused_reply(why: str) -> RequestFailed:
    """Return the failure of a reply that is not read to its end: it would be the same again."""
    advice = "No model writes as much: check what answers at its base_url."
    return RequestFailed("reply_too_large", why, advice, retryable=False)


def timed_out(seconds: float) -> RequestFailed:
    """Return the failure of a request without a complete reply in time."""
    advice = (
        "Raise timeout_seconds (runner_defaults of the run profile; for judges where their own settings stand), or "
        "lower the concurrency."
    )
    return RequestFailed("timeout", f"no complete reply within {seconds:g} s", advice, retryable=True)


def not_connected(error: BaseException, model: Model) -> RequestFailed:
    """Return the failure of a connection: refused, reset, cut off, unknown host, bad certificate."""
    cause: BaseException = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        # The clients wrap the socket's error in errors of their own; only the innermost one says what happened.
        cause = cause.__cause__ or cause.__context__ or cause
    said = clip(str(cause)) or type(cause).__name__
    advice = f"Check that base_url ({_base_url(model)}) is right and that its server runs and can be reached from here."
    return RequestFailed("connection", f"the connection failed: {said}", advice, retryable=True, outage=True)


def unreachable(dead: str, last: RequestFailed) -> RequestFailed:
    """Return the failure of a request that is not sent any more.

    `dead` says why, `last` is what the endpoint did last.
    """
    summary = f"{last.summary}; {dead}, so it is not asked any more"
    return RequestFailed(UNREACHABLE, summary, last.advice, retryable=False)


def clip(text: str) -> str:
    """Return `text` on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "…"


_SLOWER = (
    "The endpoint limits the rate: lower limits.max_concurrency, or set limits.rpm or limits.tpm, of the model's entry "
    "in models.yaml, or raise retries in the run profile's runner_defaults."
)
_LATER = "The endpoint has trouble: run again later; what is finished is kept."


def _advise_on_refusal(status: int, model: Model) -> tuple[str, str]:
    variable = model.api_key_env
    if status == 401:
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
        given = ", ".join(model.parameters) or "none of the model's own"
        return "bad_request", f"Check the request parameters ({given}; the run profile's runner_defaults add to them)."
    return "refused", "Check the model's entry in models.yaml and the run profile."


def _base_url(model: Model) -> str:
    return model.base_url or DEFAULT_BASE_URL


def _read_error(body: bytes) -> tuple[str, str | None]:
    """Return the message of an error body, and its code or type."""
    try:
        data: Any = json.loads(body)
    except (ValueError, RecursionError):
        return clip(body.decode("utf-8", "replace")), None
    error = data.get("error", data) if isinstance(data, Mapping) else data
    if not isinstance(error, Mapping):
        return clip(error if isinstance(error, str) else json.dumps(error)), None
    code = next((c for c in (error.get("code"), error.get("type")) if isinstance(c, str) and c), None)
    said = error.get("message")
    return clip(said if isinstance(said, str) else json.dumps(dict(error))), code


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter, in seconds: `first`, doubled each time up to `longest`.

    An endpoint's own Retry-After is honoured up to `longest_retry_after`.
    """

    first: float = 0.5
    longest: float = 30.0
    longest_retry_after: float = 120.0

    def seconds(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after attempt number `attempt` (from 1) failed."""
        # Without jitter all requests that one outage broke come back at the same moment, and break it again.
        jitter = random.random()
        if retry_after is not None:  # never earlier than asked, and not all at the same moment
            return min(max(retry_after, 0.0), self.longest_retry_after) + jitter * self.first
        ceiling = min(self.longest, self.first * 2.0 ** min(attempt - 1, 60))
        return ceiling * (0.5 + jitter / 2)


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the seconds that `retry-after-ms` or `Retry-After` (RFC 9110 section 10.2.3) asks to wait.

    `Retry-After` holds seconds or an HTTP date, which counts from `now` (Unix time). None where there is neither
    header, or it cannot be read.
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
        return max(date.timestamp() - (time.time() if now is None else now), 0.0)
    except (ValueError, OverflowError, OSError):
        return None


RUN_LIMIT: ContextVar[asyncio.Timeout | None] = ContextVar("RUN_LIMIT", default=None)
"""The time limit of the run that a request belongs to: it stands still during a pause, which is no slow agent."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait for an endpoint that has stopped answering.

    `notice`: so long at least nothing was answered when requests begin to wait. `never`: so long for one that has not
    answered at all. `outage`: so long for one that has. `first` and `longest` bound the time between two probes.
    """

    notice: float = 2.0
    never: float = 8.0
    outage: float = 300.0
    first: float = 1.0
    longest: float = 10.0
    failures: int = 3
    """So many requests in a row have failed at least."""


class Breaker:
    """A watch on the requests to one endpoint. For one event loop.

    It pauses them once several in a row met an outage (no connection, or 502, 503, 504, 529), lets one through at a
    time as a probe, and all of them when that one is answered: any other status is an answer. `tell` gets a sentence
    then. An endpoint out of patience is dead for good: each further request raises RequestFailed before it is sent. A
    reply that took too long says nothing of the endpoint.
    """

    def __init__(self, where: str, tell: Callable[[str], None], patience: Patience) -> None:
        self._where, self._tell, self._patience = where, tell, patience
        self._answered_ever = False
        self._failures = 0
        self._since = 0.0
        self._paused_at: float | None = None
        self._probing = False
        self._next_probe = self._interval = 0.0
        self._last: RequestFailed | None = None
        self._dead: str | None = None
        self._changed = asyncio.Event()

    @property
    def paused(self) -> bool:
        """Return whether requests wait."""
        return self._paused_at is not None

    def describe_pause(self) -> str | None:
        """Return what the status line says while requests wait."""
        if self._paused_at is None or self._dead is not None:
            return None
        return f"{self._where} does not answer ({time.monotonic() - self._since:.0f} s)"

    async def admit(self) -> bool:
        """Wait until a request may be sent. Return whether it is a probe; raise RequestFailed once all is lost."""
        if self._paused_at is not None:
            with _stop_run_limit(self._patience.outage):
                while self._paused_at is not None and self._dead is None:
                    if not self._probing and time.monotonic() >= self._next_probe:
                        self._probing = True
                        return True
                    await self._wait_for_change()
        if self._dead is not None and self._last is not None:
            raise unreachable(self._dead, self._last)
        return False

    async def _wait_for_change(self) -> None:
        left = None if self._probing else max(0.0, self._next_probe - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()

    def answered(self, began: float) -> None:
        """Note an answer to a request that began at `began` (monotonic). One from before a pause does not end it."""
        self._answered_ever = True
        if self._paused_at is not None:
            # A slow answer that was under way before the outage says nothing of the endpoint now.
            if began < self._paused_at:
                return
            lasted = time.monotonic() - self._since
            said = self._last.summary if self._last is not None else "no answer"
            self._tell(f"{self._where} did not answer for {lasted:.0f} s ({said}); runs waited and went on")
            self._paused_at = None
            self._wake()
        self._failures = 0

    def failed(self, failure: RequestFailed, began: float) -> None:
        """Note an outage that a request met which began at `began` (monotonic)."""
        now, patience = time.monotonic(), self._patience
        self._since = self._since if self._failures else began
        self._failures += 1
        self._last = failure
        lasted = now - self._since
        if self._failures < patience.failures or lasted < patience.notice or self._dead is not None:
            return
        if lasted >= (patience.outage if self._answered_ever else patience.never):
            self._dead = f"nothing was answered for {lasted:.0f} s"
        if self._paused_at is None:
            self._paused_at, self._interval = now, patience.first
        elif now >= self._next_probe:
            self._interval = min(2 * self._interval, patience.longest)
        self._next_probe = now + self._interval
        self._wake()

    def end_probe(self) -> None:
        """Let the next one probe."""
        self._probing = False
        self._wake()

    def _wake(self) -> None:
        # A new event for those who wait from now on: one that is set and cleared would be missed by late wakers.
        self._changed.set()
        self._changed = asyncio.Event()


class Passage:
    """One request past a breaker: `async with`, and `began` is set when it is sent."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self.began: float | None = None

    async def __aenter__(self) -> Self:
        self._probe = await self._breaker.admit()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.began is not None:
            if error is None or (isinstance(error, RequestFailed) and not error.outage and error.code != "timeout"):
                self._breaker.answered(self.began)
            elif isinstance(error, RequestFailed) and error.outage:
                self._breaker.failed(error, self.began)
        # Also after a cancelled probe: another request must get the chance, or all of them wait forever.
        if self._probe:
            self._breaker.end_probe()


@contextlib.contextmanager
def _stop_run_limit(longest: float) -> Iterator[None]:
    """Stop the run's time limit for the block; `longest` is how many seconds that can be."""
    timer, began = RUN_LIMIT.get(), time.monotonic()
    if timer is None or (due := timer.when()) is None or timer.expired():
        yield
        return
    # A Timeout cannot be stopped, so it moves beyond the longest pause, and back by what the pause took.
    timer.reschedule(due + longest + 1)
    try:
        yield
    finally:
        if (due := timer.when()) is not None and not timer.expired():
            timer.reschedule(due - longest - 1 + time.monotonic() - began)
