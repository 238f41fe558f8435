"""Replies of models: parsed chat completions, their cost, and validated JSON in them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.apis.choice import find_endpoint_api
from pytest_agentbench.models.ends import GIVEN_UP, read_filter_results
from pytest_agentbench.models.failures import RequestFailed, broken_off, invalid_reply, status_failed
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.models.messages import ChatReply, StreamTimes, read_message, read_text, take_string
from pytest_agentbench.models.routes import DEFAULT_BASE_URL
from pytest_agentbench.models.thoughts import split_thoughts
from pytest_agentbench.records.case import Model, Prices
from pytest_agentbench.records.run import Usage
from pytest_agentbench.terminal_text import shorten_text


@dataclass(frozen=True, slots=True)
class RawReply:
    """A raw reply, or its events joined to the form of a whole reply, with their times.

    Keys of `headers` are lower case or found in any case; `redirect` is the target of a redirect.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    redirect: str | None = None
    times: StreamTimes | None = None


SKIPPED_STEPS = "skipped_steps"
"""Field of a scripted completion: the steps with calls that a request without tools skips."""


def read_reply(body: bytes, content_type: str, model: Model, *, attempts: int, seconds: float) -> ChatReply:
    """Return the reply in a response with status 200. Raises RequestFailed if it violates the protocol."""
    data = _read_object(body, content_type, model)
    choice = _find_choice(data)
    for holder in (data, choice):  # OpenRouter reports a failing upstream so
        if isinstance(holder, Mapping) and isinstance(error := holder.get("error"), Mapping | str) and error:
            raise _read_inner_error(error, choice, model)
    try:
        data = find_endpoint_api(model).read(data)  # from here on it is a chat completion
    except ValueError as problem:
        raise invalid_reply(str(problem), body, model) from problem
    choice = _find_choice(data)
    if choice is None:
        raise invalid_reply("it has no choices", body, model)
    if not isinstance(choice, Mapping):
        raise invalid_reply("its first choice is no object", body, model)
    finish = take_string(choice.get("finish_reason"))
    message = choice.get("message")
    if not isinstance(message, Mapping):
        if finish is None:
            raise invalid_reply("its first choice has no message", body, model)
        message = {}  # Gemini leaves out the message that its filter withheld
    answered_by = take_string(data.get("model")) or model.requested_model
    usage = read_usage(data.get("usage"), model, answered_by)
    try:
        read = read_message(message, finish, take_string(choice.get("native_finish_reason")))
    except (TypeError, KeyError, AttributeError) as error:
        raise invalid_reply("its tool calls are malformed", body, model) from error
    if read.end in GIVEN_UP:
        raise broken_off(read.detail.raw or "", take_string(read.content), read.end)
    detail = read.detail
    if read.end == "filtered":
        categories = read_filter_results(choice.get("content_filter_results"))
        detail = detail.model_copy(update={"side": "output", "categories": categories})
    return ChatReply(
        content=read.content,
        tool_calls=read.tool_calls,
        finish_reason=read.finish,
        usage=usage,
        model=answered_by,
        response_id=take_string(data.get("id")),
        message=read.message,
        attempts=attempts,
        seconds=seconds,
        reasoning=read.reasoning,
        thoughts=read.thoughts,
        end=read.end,
        detail=detail,
        unfiltered=b"content_filter_error" in body,
        system_fingerprint=take_string(data.get("system_fingerprint")),
        skipped_steps=int(data.get(SKIPPED_STEPS, 0)) if model.scripted else 0,
    )


def _read_object(body: bytes, content_type: str, model: Model) -> dict[str, Any]:
    try:
        data = json.loads(body)
        if b"\\u" in body:
            # An escaped lone surrogate can be neither written to a file nor sent back to the model.
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        kind = content_type.partition(";")[0].strip()
        if kind == "application/json":
            raise invalid_reply("its JSON is malformed", body, model) from error
        # A page in place of an answer has a wrong address; an empty body is an outage, so it may be repeated.
        problem = f"its content type is {kind or 'missing'}"
        raise invalid_reply(problem, body, model, retryable=not body.strip()) from error
    if not isinstance(data, dict):
        raise invalid_reply("it is no JSON object", body, model)
    return data


def _find_choice(data: Mapping[str, Any]) -> Any:
    choices = data.get("choices")
    if isinstance(choices, list) and choices:
        return choices[0]
    return None


def _read_inner_error(error: Mapping[str, Any] | str, choice: object, model: Model) -> RequestFailed:
    fields, statuses = as_object(error), find_endpoint_api(model).statuses
    code, kind = fields.get("code"), fields.get("type")
    status = 502  # the server behind the router failed, so the request may be repeated
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    status = next((statuses[name] for name in (code, kind) if isinstance(name, str) and name in statuses), status)
    failed = status_failed(status, json.dumps({"error": error}).encode(), model)
    if failed.partial is None:  # the text that had been written before the failure
        failed.partial = read_text(as_object(as_object(choice).get("message")).get("content"))
    return failed


_CACHE_COUNTS = frozenset({"cache_creation_input_tokens", "cache_read_input_tokens"})


def read_usage(block: object, model: Model, answered_by: str) -> Usage:
    """Return the `usage` block of a chat completion as Usage; all fields are None if it is missing.

    The cost is the provider's own, else by `model.prices`, else by the price library, else None. `answered_by` is the
    model name of the reply. Scripted models cost nothing unless they have `prices`.
    """
    if not isinstance(block, Mapping):
        if model.scripted and model.prices is None:
            return Usage(cost_usd=0.0)
        return Usage()
    prompt = _find_count(block, "prompt_tokens", "input_tokens")
    completion = _find_count(block, "completion_tokens", "output_tokens")
    total = _find_count(block, "total_tokens")
    details = _find_mapping(block, "prompt_tokens_details", "input_tokens_details")
    # DeepSeek and Anthropic have other names for cache reads and writes, outside of the details.
    cached = _find_count(details, "cached_tokens")
    if cached is None:
        cached = _find_count(block, "prompt_cache_hit_tokens", "cache_read_input_tokens")
    written = _find_count(details, "cache_write_tokens")
    if written is None:
        written = _find_count(block, "cache_creation_input_tokens")
    if prompt is not None and "prompt_tokens" not in block and _CACHE_COUNTS & block.keys():
        prompt += (cached or 0) + (written or 0)  # Anthropic's own input_tokens leave both out
    reasoning = _find_count(
        _find_mapping(block, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens"
    )
    if total is not None and reasoning and total == (prompt or 0) + (completion or 0) + reasoning:
        completion = (completion or 0) + reasoning  # xAI's completion_tokens leave the thoughts out
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    # `raw` keeps the block as it came: providers count more kinds of tokens than there are fields for.
    # Without validation: every value was checked by `_find_count`, and this runs once per reply.
    usage = Usage.model_construct(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=total,
        reasoning_tokens=reasoning,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=_find_count(_find_mapping(block, "cache_creation"), "ephemeral_1h_input_tokens"),
        cost_usd=None,
        raw=(dict(block),),
    )
    cost = _find_cost(block, usage, model, answered_by)
    uncached = _price_uncached(usage, cost, model, answered_by)
    return usage.model_copy(update={"cost_usd": cost, "uncached_cost_usd": uncached})


def find_usage(body: bytes, model: Model) -> Usage | None:
    """Return the usage in the body of a reply that is unusable, None if it has no count of tokens."""
    try:
        data = find_endpoint_api(model).read(json.loads(body))
        usage = read_usage(data.get("usage"), model, take_string(data.get("model")) or model.requested_model)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage


def _find_cost(block: Mapping[str, Any], usage: Usage, model: Model, answered_by: str) -> float | None:
    reported = block.get("cost")
    # OpenRouter, for example, reports its charge, which is closer to the bill than a list of prices.
    if isinstance(reported, int | float) and not isinstance(reported, bool) and 0 <= reported < math.inf:
        return float(reported)
    return price_tokens(usage, model, answered_by)


def price_tokens(usage: Usage, model: Model, *answered_by: str) -> float | None:
    """Return USD by the prices of the model's entry, else by list prices of the first known name, or None if
    unknown.
    """
    if model.prices is not None:
        return price_by_table(usage, model.prices)
    if model.scripted:
        return 0.0
    return price_by_library(usage, model.base_url or DEFAULT_BASE_URL, *answered_by, model.requested_model)


def _price_uncached(usage: Usage, cost: float | None, model: Model, answered_by: str) -> float | None:
    """Return the cost of the tokens without a cache."""
    if not usage.cached_tokens and not usage.cache_write_tokens:
        return cost
    plain = {"cached_tokens": 0, "cache_write_tokens": 0, "cache_write_1h_tokens": 0}
    return price_tokens(usage.model_copy(update=plain), model, answered_by)


def price_by_table(usage: Usage, prices: Prices) -> float | None:
    """Return USD by prices per million tokens, with separate prices for cache reads and writes, if set.

    None if the tokens are unknown.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    for_an_hour = min(usage.cache_write_1h_tokens or 0, written)
    cached_price = _first_price(prices.cached_input_per_1m, prices.input_per_1m)
    write_price = _first_price(prices.cache_write_per_1m, prices.input_per_1m)
    hour_price = _first_price(prices.cache_write_1h_per_1m, write_price)
    cost = (usage.input_tokens - cached - written) * prices.input_per_1m + cached * cached_price
    cost += (written - for_an_hour) * write_price + for_an_hour * hour_price
    return (cost + usage.output_tokens * prices.output_per_1m) / 1_000_000


def _first_price(price: float | None, default: float) -> float:
    return default if price is None else price


def price_by_library(usage: Usage, base_url: str, *names: str) -> float | None:
    """Return USD by the list prices in genai-prices (no network), for the first of `names` that it knows.

    None if tokens are unknown, or the endpoint or the model is not in its list; a server on this machine never is.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    # Imported at the first reply without a price: its tables take 0.3 s of CPU.
    import genai_prices

    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    for_an_hour = min(usage.cache_write_1h_tokens or 0, written)
    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=written,
    )
    if for_an_hour:
        tokens.cache_write_1h_tokens = for_an_hour
    for name in names:
        try:
            return float(genai_prices.calc_price(tokens, name, provider_api_url=base_url).total_price)
        # It raises for a model that it does not know, and for an endpoint; the next name may be known.
        except LookupError:
            continue
    return None


def _find_count(block: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = block.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _find_mapping(block: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((value for name in names if isinstance(value := block.get(name), Mapping)), {})


_MAX_PROBLEMS = 12
_MAX_LEVELS = 64
"""Maximum levels of a reply. Documents that contain a much deeper reply cannot be written."""
# Fences are at the ends of lines, so a text inside of the JSON may quote code.
_FENCED = re.compile(r"^[ \t]*```[A-Za-z]*\s(.*?)```[ \t\r]*$", re.DOTALL | re.MULTILINE)
_MAX_BRACES = 1000
_NUMBER = re.compile(r"-?\d{1,9}(\.\d{1,20})?", re.ASCII)

P = TypeVar("P", bound="ReplyPart")


class InvalidReply(AgentbenchError):
    """A reply that violates its contract; the text lists the mistakes for the model, a line for each."""

    @property
    def problems(self) -> list[str]:
        """Return the lines without their marks."""
        return [line.removeprefix("- ") for line in str(self).splitlines()]


class ReplyPart(BaseModel):
    """A part of a reply's contract; other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def read_json(text: str, form: type[P]) -> P:
    """Return the JSON object in a reply as a `form`.

    It may be in prose, if only one object there has all keys of the form. Raises InvalidReply with all mistakes.
    """
    try:
        answer = read_json_object(text)
    except InvalidReply:
        required = {name for name, field in form.model_fields.items() if field.is_required()}
        if not required:
            raise
        answers = [value for value in _find_embedded(split_thoughts(text)[0]) if value.keys() >= required]
        if len(answers) != 1:
            raise
        [answer] = answers
    return validate_form(answer, form)


def _read_number(value: object) -> object:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return value


AsNumber = BeforeValidator(_read_number)
"""Validates a strict number that some models write as a text."""


def validate_form(answer: Mapping[str, Any], form: type[P]) -> P:
    """Return a JSON object as a `form`. Raises InvalidReply with all its mistakes."""
    try:
        return form.model_validate(answer)
    except ValidationError as error:
        raise make_invalid_reply([_describe_problem(item) for item in error.errors(include_url=False)]) from error


def read_json_object(text: str, embedded_keys: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON object in a reply, alone or in the reply's only code fence. Raises InvalidReply.

    With `embedded_keys` it may be in other text too, if only one object there has any of these keys.
    """
    body = split_thoughts(text)[0].strip()
    if not body:
        raise InvalidReply("- the reply is empty")
    try:
        return _read_only_object(body)
    except InvalidReply:
        if not embedded_keys:
            raise
        values = [value for value in _find_embedded(body) if not value.keys().isdisjoint(embedded_keys)]
        if not values:
            raise
    if len(values) > 1:
        raise InvalidReply(f"- the reply has {len(values)} JSON objects, so it is not clear which one counts")
    return values[0]


def make_invalid_reply(problems: Sequence[str]) -> InvalidReply:
    """Return the InvalidReply to raise for a reply with these problems."""
    lines = [f"- {problem}" for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"- and {len(problems) - _MAX_PROBLEMS} more")
    return InvalidReply("\n".join(lines))


def _read_only_object(body: str) -> dict[str, Any]:
    fenced = _FENCED.findall(body)
    if len(fenced) > 1:
        raise InvalidReply("- the reply has several code blocks, so it is not clear which one counts")
    if fenced and not body.startswith("{"):  # a JSON object may quote a fence in its texts
        body = fenced[0]
    try:
        value = _drop_surrogates(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise InvalidReply(f"- the reply is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidReply(f"- the reply is a JSON {type(value).__name__}, expected an object")
    if _count_levels(value) > _MAX_LEVELS:
        raise InvalidReply(f"- the reply nests deeper than {_MAX_LEVELS} levels")
    return value


def _find_embedded(body: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects in a text."""
    decoder, at = json.JSONDecoder(), body.find("{")
    # Bounded: each brace may be tried to the end of the text, which is quadratic in a reply of braces alone.
    for _ in range(_MAX_BRACES):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(body, at)
            value = _drop_surrogates(value)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if _count_levels(value) <= _MAX_LEVELS:
                yield value
        at = body.find("{", end)


def _drop_surrogates(value: Any) -> Any:
    """Return the value without escaped lone surrogates, which cannot be written to a file."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _count_levels(value: Any) -> int:
    """Return the depth of an object or a list: 1 if it contains neither."""
    # Level by level and not recursively: a reply may nest deeper than Python's stack.
    levels, holders = 0, [value]
    while holders:
        levels += 1
        values = [item for holder in holders for item in (holder.values() if isinstance(holder, dict) else holder)]
        holders = [item for item in values if isinstance(item, dict | list)]
    return levels


def _describe_problem(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"{where}: missing"
    value = json.dumps(error["input"], default=str)
    return f"{where}: found {shorten_text(value, 80)}; {error['msg'][:1].lower()}{error['msg'][1:]}"
