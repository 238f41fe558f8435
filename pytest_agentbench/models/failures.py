"""What can go wrong with one request, whether to repeat it, and a message that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.pricing import DEFAULT_BASE_URL
from pytest_agentbench.records import Model
from pytest_agentbench.store import without_credentials

RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_OUTAGES = frozenset({502, 503, 504, 529})
"""What stands before the model says that nothing is behind it. A 500 may be this very request's."""
UNREACHABLE = "unreachable"
"""The code of an endpoint that is dead: nothing that asks it is worth starting."""
_CLIP = 300


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
        """The error that ends the call after `attempts` requests over `seconds`."""
        tried = f" ({attempts} attempts in {seconds:.1f} s)" if attempts > 1 else ""
        who = (
            f"scripted model {model.model_id!r}"
            if model.scripted
            else f"model {model.model_id!r} at {_base_url(model)}"
        )
        message = f"{who}: {self.summary}{tried}. {self.advice}".rstrip()
        return ProviderError(message, code=self.code, retryable=self.retryable)


def status_failed(status: int, body: bytes, model: Model, *, retry_after: float | None = None) -> RequestFailed:
    """An HTTP error status, or the same as an `error` object in a reply with status 200."""
    said, provider_code = _error_text(body)
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
    code, advice = _refusal(status, model)
    return RequestFailed(code, summary, advice, retryable=False)


def redirected(place: str, model: Model) -> RequestFailed:
    """A redirect, which is not followed."""
    summary = f"it redirects to {clip(without_credentials(place))}, where the request and its key are not sent"
    advice = "Where that is the endpoint, write its address into base_url."
    return RequestFailed("redirected", summary, advice, retryable=False)


def invalid_reply(what: str, body: bytes, model: Model) -> RequestFailed:
    """A reply that is no chat completion."""
    begins = clip(body.decode("utf-8", "replace"))
    summary = f"the reply is no chat completion: {what}" + (f"; it begins {begins!r}" if begins else "")
    advice = f"Check that base_url ({_base_url(model)}) is the API's root; it usually ends with /v1."
    return RequestFailed("invalid_response", summary, advice, retryable=True)


def refused_reply(why: str) -> RequestFailed:
    """A reply that is not read to its end: it would be the same again."""
    advice = "No model writes as much: check what answers at its base_url."
    return RequestFailed("reply_too_large", why, advice, retryable=False)


def timed_out(seconds: float) -> RequestFailed:
    """No complete reply in time."""
    advice = (
        "Raise timeout_seconds (runner_defaults of the run profile; system_settings of poet_algorithm_config.json for "
        "judges of research reports), or lower the concurrency."
    )
    return RequestFailed("timeout", f"no complete reply within {seconds:g} s", advice, retryable=True)


def not_connected(error: BaseException, model: Model) -> RequestFailed:
    """Refused, reset, cut off, unknown host, bad certificate."""
    cause: BaseException = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        cause = cause.__cause__ or cause.__context__ or cause
    said = clip(str(cause)) or type(cause).__name__
    advice = f"Check that base_url ({_base_url(model)}) is right and that its server runs and can be reached from here."
    return RequestFailed("connection", f"the connection failed: {said}", advice, retryable=True, outage=True)


def unreachable(dead: str, last: RequestFailed) -> RequestFailed:
    """A request that is not sent any more: `dead` says why, `last` is what the endpoint did last."""
    summary = f"{last.summary}; {dead}, so it is not asked any more"
    return RequestFailed(UNREACHABLE, summary, last.advice, retryable=False)


def clip(text: str) -> str:
    """`text` on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _CLIP else line[: _CLIP - 1] + "…"


_SLOWER = (
    "The endpoint limits the rate: lower limits.max_concurrency, or set limits.rpm or limits.tpm, of the model's entry "
    "in models.yaml, or raise retries in the run profile's runner_defaults."
)
_LATER = "The endpoint has trouble: run again later; what is finished is kept."


def _refusal(status: int, model: Model) -> tuple[str, str]:
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


def _error_text(body: bytes) -> tuple[str, str | None]:
    """What an error body says, and its code or type."""
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
