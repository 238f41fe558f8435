"""Error bodies and finish reasons of all providers, normalised to the end of a run or a request.

The reasons are those of `records.run.EndReason`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.records.run import EndReason


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. An error matches if it matches one item of every field that is set.

    `codes` are whole codes and types, `texts` patterns that are searched in the body's lower-cased JSON. The status
    must not be in `but_status`.
    """

    reason: EndReason
    status: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()
    but_status: frozenset[int] = frozenset()

    def holds(self, status: int, codes: frozenset[str], text: str) -> bool:
        """Return whether an error matches the rule."""
        if (self.status and status not in self.status) or status in self.but_status:
            return False
        if self.codes and codes.isdisjoint(self.codes):
            return False
        return not self.texts or _joined(self.texts).search(text) is not None


@cache
def _joined(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(texts))


RULES: Sequence[Rule] = (
    Rule("quota", status=frozenset({402})),
    Rule(
        "quota",
        codes=frozenset(
            {
                *("insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted", "billing_error"),
                *("organization_spend_limit_exceeded", "project_spend_limit_exceeded", "ServiceQuotaExceededException"),
                *("organization_usage_limit_exceeded", "exceeded_current_quota_error"),
            }
        ),
    ),
    Rule("quota", texts=("credit balance is too low", '"quotaid": *"[^"]*perday', "enable billing")),
    Rule(
        "context_exceeded",
        codes=frozenset({"context_length_exceeded", "exceed_context_size_error", "request_too_large", "3051"}),
    ),
    Rule(
        "context_exceeded",
        texts=(
            *("maximum context length", "maximum context limit", "maximum prompt length", "prompt is too long"),
            *(
                "reduce the length of the messages",
                "input is too long",
                "input token count",
                "number of tokens allowed",
            ),
            *("exceeds the available context size", "greater than the context length", "too many tokens"),
            *("when context the overflows", "context size has been exceeded", "input tokens exceed"),
            *(r"`inputs` tokens \+ `max_new_tokens` must be", "max_tokens must be at least 1, got -"),
            *("contextwindowexceedederror", "exceed context limit", r"current length is \d+ while limit is"),
            "request too large for model",
        ),
        # "Too many tokens, please wait": Bedrock's words for a rate
        but_status=frozenset({429}),
    ),
    Rule(
        "filtered",
        codes=frozenset(
            {
                *("content_filter", "content_policy_violation", "invalid_prompt", "bio_policy"),
                *("misalignment_policy_violation", "image_content_policy_violation"),
            }
        ),
    ),
    Rule(
        "filtered",
        texts=(
            *("responsibleaipolicyviolation", "content management policy", "contentpolicyviolationerror"),
            *("content filtering policy", "safety system", "violating our usage policy", "violates usage guidelines"),
            "safety_check_type",
        ),
    ),
    Rule("filtered", status=frozenset({403}), texts=('"flagged_input"', '"reasons"')),
    Rule("malformed_reply", codes=frozenset({"tool_use_failed", "json_validate_failed"})),
    Rule("unsupported", texts=("does not support tools", "no endpoints found that support (?:tool use|image input)")),
    Rule("authentication", status=frozenset({401, 403})),
    Rule("authentication", texts=("api_key_invalid", "invalid_api_key")),
)
"""In this order: an empty account may be reported as a rate limit, an overlong prompt as a server's error."""

_FINISHES: Mapping[EndReason, frozenset[str]] = {
    "answered": frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete"}),
    "length": frozenset({"length", "max_tokens", "max_output_tokens", "continuation", "reason_max_len"}),
    "context_exceeded": frozenset({"model_length", "model_context_window_exceeded", "reason_max_context"}),
    "filtered": frozenset(
        {
            *("content_filter", "content_filtered", "refusal", "safety", "recitation", "blocklist", "language"),
            *("prohibited_content", "spii", "image_safety", "image_prohibited_content", "image_recitation"),
            *("model_armor", "jailbreak", "guardrail_intervened", "sensitive", "error_toxic", "escalation"),
        }
    ),
    "malformed_reply": frozenset(
        {
            *("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls", "malformed_response"),
            *("missing_thought_signature", "malformed_tool_use", "malformed_model_output"),
        }
    ),
    "provider_error": frozenset({"error", "insufficient_system_resource", "network_error", "reason_time_limit"}),
    "aborted": frozenset({"abort", "aborted", "cancel", "cancelled", "canceled"}),
    "rejected": frozenset({"pause_turn", "compaction"}),
}
"""Finish reasons in lower case, without the prefixes."""
GIVEN_UP: frozenset[EndReason] = frozenset({"provider_error", "aborted", "rejected"})
"""Meanings of finish reasons by which the endpoint gave up the generation: its text is no answer."""
CALLS = frozenset({"tool_calls", "tool_use", "tool_call", "function_call"})
"""Finish reasons of a reply that calls tools."""
_UNTELLING = frozenset({"", "other", "finish_reason_unspecified"})
_PREFIXES = re.compile(r"^(?:function_call_filter: |content_filter: |finishreason\.)+")
_FINISH_REASONS = {finish: reason for reason, finishes in _FINISHES.items() for finish in finishes}


def read_finish(finish: str | None) -> tuple[str, EndReason | None]:
    """Return a finish reason's normalised name and end; None for calls and for unknown reasons."""
    plain = _PREFIXES.sub("", (finish or "").lower())
    return plain, _FINISH_REASONS.get(plain)


def is_known_finish(plain: str) -> bool:
    """Return whether `read_finish` knows the reason, or it is empty."""
    return plain in _FINISH_REASONS or plain in CALLS or plain in _UNTELLING


@dataclass(frozen=True, slots=True)
class ErrorSignal:
    """Content of an error body: `reason` is None if only its status is known.

    `categories` are a filter's categories, `partial` is the model's text so far, `wait` the requested wait in seconds.
    """

    reason: EndReason | None
    said: str
    code: str | None = None
    categories: tuple[str, ...] = ()
    partial: str | None = None
    wait: float | None = None


def read_error(status: int, body: bytes) -> ErrorSignal:
    """Parse the body of an HTTP error in any of the known forms."""
    text = body.decode("utf-8", "replace")
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorSignal(_find_reason(status, frozenset(), text.lower()), text)
    if isinstance(data, list) and data:  # Gemini
        data = data[0]
    # Older vLLM has no `error` object around it. In Ollama's own API and in xAI's it is a text.
    error = as_object(data).get("error", data)
    codes = _list_codes(as_object(data))
    if not isinstance(error, Mapping):
        error_text = error if isinstance(error, str) else json.dumps(error)
        return ErrorSignal(_find_reason(status, codes, text.lower()), error_text, categories=_read_checks(text))
    codes |= _list_codes(error)
    # If `code` is a number (at OpenRouter the status), `type` has more information.
    code = next((c for c in (error.get("code"), error.get("type")) if isinstance(c, str) and c), None)
    message, partial = error.get("message"), error.get("failed_generation")
    return ErrorSignal(
        _find_reason(status, codes, text.lower()),
        message if isinstance(message, str) else json.dumps(dict(error)),
        code,
        tuple(dict.fromkeys((*_read_categories(error), *_read_checks(text)))),
        partial if isinstance(partial, str) and partial else None,
        _read_delay(error),
    )


def _find_reason(status: int, codes: frozenset[str], text: str) -> EndReason | None:
    return next((rule.reason for rule in RULES if rule.holds(status, codes, text)), None)


def _list_codes(error: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(value) for name in ("code", "type") if isinstance(value := error.get(name), str | int))


def _read_categories(error: Mapping[str, Any]) -> Iterator[str]:
    """Yield a filter's categories, in Azure's form and in OpenRouter's."""
    yield from read_filter_results(as_object(error.get("innererror")).get("content_filter_result"))
    reasons = as_list(as_object(error.get("metadata")).get("reasons"))
    yield from (reason for reason in reasons if isinstance(reason, str))


def read_filter_results(results: object) -> tuple[str, ...]:
    """Return the categories that a filter's results name as filtered."""
    return tuple(str(name) for name, result in as_object(results).items() if as_object(result).get("filtered") is True)


def _read_checks(text: str) -> tuple[str, ...]:
    """Return the safety checks that xAI names."""
    return tuple(name.lower() for name in re.findall(r"SAFETY_CHECK_TYPE_(\w+)", text))


def _read_delay(error: Mapping[str, Any]) -> float | None:
    """Return the seconds in Gemini's RetryInfo, its only place for them."""
    for detail in map(as_object, as_list(error.get("details"))):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)s", delay)):
            return float(match[1])
    return None


_FITS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"maximum context length is (?P<window>\d+) .*?\((?P<prompt>\d+) (?:in the messages|of text input)",
        r"maximum context length is (?P<window>\d+) .*?(?P<prompt>\d+) input tokens",
        r"exceed context limit: (?P<prompt>\d+) \+ \d+ > (?P<window>\d+)",
        r"must be <= (?P<window>\d+)\. Given: (?P<prompt>\d+) `inputs`",
    )
)
"""Messages of OpenAI, OpenRouter, vLLM, Anthropic and Together on the window and the prompt's length."""


def messages_fit(said: str) -> bool:
    """Return whether an overflow's own numbers show that only the tokens to generate are too many."""
    match = next(filter(None, (pattern.search(said) for pattern in _FITS)), None)
    return match is not None and int(match["prompt"]) < int(match["window"])
