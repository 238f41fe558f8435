"""Ask the judges of a profile about one run, directly or by its cassette, until their replies are valid."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pytest_agentbench.errors import BatchWaitsError, JudgeError, ProviderError
from pytest_agentbench.identity.fingerprints import endpoint_input, fingerprint
from pytest_agentbench.judging.prompt import NO_TEXTS, Assessment, Redact, Texts, assessment
from pytest_agentbench.judging.verdicts import total_usage
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.learning import LIMITS, PLAIN_REPLIES
from pytest_agentbench.models.metering import METER, metered
from pytest_agentbench.models.prompts import REPETITION_FIELD, clip_middle
from pytest_agentbench.models.replies import InvalidReply
from pytest_agentbench.models.routes import Draw
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import CheckResult, JudgeIteration, JudgeResult
from pytest_agentbench.records.run import RunArtifact, Usage
from pytest_agentbench.secrets.redaction import Redactor

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile, JudgeConfig, JudgeRunConfig
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.messages import ChatReply
    from pytest_agentbench.models.spelling import Spelling

MAX_ATTEMPTS = 3
"""Number of requests to a judge before its status is `invalid_output`."""
REQUEST_SECONDS = 120.0
RETRIES = 5
BACKOFF_SECONDS = 0.25
"""Seconds before the first repetition. They double with each."""
MAX_QUOTED_REPLY = 20_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """Reply of a judge: its text and usage."""

    content: str | None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None


Send = Callable[[Sequence[dict[str, str]]], Awaitable["JudgeReply | ChatReply"]]
"""One request with the conversation so far."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """Result of asking: `verdict` if `status` is success, else `error` is the reason.

    `usage` sums all replies, or is None without replies. `attempts` counts the requests that were answered or failed.
    """

    status: Literal["success", "invalid_output", "provider_error"]
    verdict: T | None
    error: str | None
    attempts: int
    usage: Usage | None
    seconds: float


async def ask(
    send: Send, messages: Sequence[dict[str, str]], parse: Callable[[str], T], backoff_seconds: float = BACKOFF_SECONDS
) -> Asked[T]:
    """Ask, and ask again with the mistake, until `parse` accepts the reply; `parse` raises InvalidReply for a mistake.

    An exception of `send` is a `provider_error`. If asking is cancelled, the usage so far is booked on the caller's
    meter.
    """
    spent: list[Usage] = []
    payer = METER.get()
    try:
        async with metered(spent.append):
            return await _ask(send, messages, parse, backoff_seconds, spent)
    except BaseException:
        if payer is not None:
            for usage in spent:
                payer.book(usage)
        raise


async def _ask(
    send: Send,
    messages: Sequence[dict[str, str]],
    parse: Callable[[str], T],
    backoff_seconds: float,
    spent: list[Usage],
) -> Asked[T]:
    began, attempt = time.monotonic(), 0
    conversation = list(messages)

    def ended(
        status: Literal["success", "invalid_output", "provider_error"],
        verdict: T | None = None,
        error: str | None = None,
    ) -> Asked[T]:
        usage = reduce(add, spent) if spent else None
        return Asked(status, verdict, error, attempt, usage, time.monotonic() - began)

    was_cut_off = False
    while True:
        attempt += 1
        try:
            reply = await send(conversation)
        except ProviderError as error:
            if error.reason == "filtered":
                return ended("invalid_output", error=f"filtered: {error}")
            return ended("provider_error", error=str(error))
        except BatchWaitsError:  # a later session has the answer
            raise
        except Exception as error:  # noqa: BLE001 - a plugin's judge or client may raise anything; other iterations count
            return ended("provider_error", error=f"{type(error).__name__}: {error}")
        spent.append(reply.usage)
        try:
            return ended("success", parse(reply.content or ""))
        except InvalidReply as error:
            problems, end = str(error), getattr(reply, "end", None)
        if reply.finish_reason == "length":
            # The judge must know that its reply was too long, or it would repeat the length.
            problems, end = f"{problems}\n- the reply was cut off at the token limit", "length"
        summary, is_cut_off = "no verdict", end == "length"
        # An equal text would be withheld or refused again, and a reply that was cut off twice will not be shorter.
        is_hopeless = end in ("filtered", "refused") or (is_cut_off and was_cut_off)
        if is_hopeless:
            summary = f"{end}: no verdict"
        if attempt == MAX_ATTEMPTS or is_hopeless:
            return ended("invalid_output", error=f"{summary} in {attempt} replies; the last one:\n{problems}")
        was_cut_off = is_cut_off
        # Only the first messages and the last reply: earlier refused replies would influence the next one.
        conversation = [*messages, *_reminder(reply, problems)]
        # With a random spread, because all iterations of a judge fail at the same moment.
        await asyncio.sleep(backoff_seconds * 2 ** (attempt - 1) * random.uniform(1, 1.5))


def chat_sender(
    client: ChatClient,
    case_id: str,
    response_format: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    request_seconds: float = REQUEST_SECONDS,
    retries: int = RETRIES,
) -> Send:
    """Return a sender that asks a chat model with structured output, unless the endpoint refuses it or `options`
    disable it.

    `options` are further fields of the request; `response_format: None` asks for plain text. `request_seconds` limits
    each request, `retries` the repetitions after a transient failure. After a truncated reply the next one may have
    twice the tokens that the options or the model's entry allow. The content of a cassette does not depend on earlier
    requests of others.
    """
    # None if a tape compares whole requests: adaptations learned from an endpoint would change the request in a
    # replay.
    spelling: Spelling | None = getattr(client, "spelling", None)
    structured_reply = response_format is not None and "response_format" not in options
    parameters = dict(options)

    # Repeated requests are not batched: they are sent at once.
    numbers = itertools.count()

    async def send(conversation: Sequence[dict[str, str]]) -> ChatReply:
        alone = next(numbers) == 0 and getattr(client, "takes_alone", False)
        reply = await ask_in_form(conversation, {"alone": True} if alone else {})
        if reply.finish_reason == "length":
            parameters.update(_double_limit(options, client.model.parameters))
        return reply

    async def ask_in_form(conversation: Sequence[dict[str, str]], alone: dict[str, Any]) -> ChatReply:
        repeats: dict[str, Any] = {"timeout": request_seconds, "retries": retries, **alone}
        ask = partial(client.complete, conversation, case_id=case_id, **repeats)
        if not structured_reply or (spelling is not None and not spelling.takes_forms):
            return await ask(parameters=parameters)
        form = response_format
        if spelling is not None and not spelling.dialect.json_schema:
            form = _ANY_OBJECT
        try:
            return await ask(parameters={"response_format": form, **parameters})
        except ProviderError as error:
            if error.code not in _FORM_REFUSED:
                raise
            refused = error
        # Outside of `except`: exceptions from here on have other causes.
        try:
            reply = await ask(parameters=parameters)
        except ProviderError as again:
            if again.code not in _FORM_REFUSED:
                raise
            raise refused from None  # the form was not the cause, so the first refusal is the better error
        # The form was the cause. Each further refusal would cost a request.
        if spelling is not None and refused.reason == "rejected":
            spelling.note(PLAIN_REPLIES)
        return reply

    return send


def _double_limit(*sources: Mapping[str, Any]) -> dict[str, int]:
    """Return twice the limit of tokens that was sent, the first in the sources under either name; {} without one."""
    limits = ((name, fields.get(name)) for fields in sources for name in LIMITS)
    return next(({name: 2 * limit} for name, limit in limits if isinstance(limit, int)), {})


_ANY_OBJECT = {"type": "json_object"}
_FORM_REFUSED = frozenset({"bad_request", "not_found", "malformed_reply"})
"""Codes of refusals that may concern the form of the reply. Each endpoint words such refusals differently."""


def request_key(
    contract: int | str, model: Model, messages: Sequence[dict[str, str]], repetition: int, **further: Any
) -> str:
    """Return the identity of the answer to one of several equal requests: everything that can change it, and the draw.

    64 hex digits. `contract` names the version of the reply's parser.
    """
    # Without label, key, price and limits: they change a request's cost or duration, not its answer.
    identity = {"requested_model", "base_url", "provider", "scripted", "parameters", "options"}
    model_input = model.model_dump(include=identity) | endpoint_input(model)
    identity_input = {"contract": contract, "model": model_input, "messages": messages}
    return fingerprint({**identity_input, "repetition": repetition, **further})


def numbered_options(client: ChatClient, options: Mapping[str, Any], repetition: int) -> Mapping[str, Any]:
    """Return the options of one of several requests. Only a scripted model gets its number, from 1."""
    # Real models get the same bytes in each iteration, so that providers can reuse their prompt cache.
    if not client.model.scripted:
        return options
    return {**options, "metadata": {REPETITION_FIELD: str(repetition)}}


def failures_text(noun: str, failed: Sequence[tuple[str, str]]) -> str:
    """Return the number of failed requests and their main causes, from their statuses and causes. `noun` names them."""
    counts = Counter(status for status, _ in failed)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    lines = [f"no judge gave a verdict: {len(failed)} of {len(failed)} {noun} failed ({statuses})."]
    for cause, count in Counter(cause for _, cause in failed).most_common(3):
        lines.append(f"{cause} [{count} times]" if count > 1 else cause)
    return "\n".join(lines)


def _reminder(reply: JudgeReply | ChatReply, problems: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the refused reply and its mistake as messages."""
    quoted = clip_middle(reply.content or "(an empty reply)", MAX_QUOTED_REPLY)
    request = (
        f"Your reply does not keep the contract:\n{problems}\n"
        "Reply again, whole and in the form that was asked for, with nothing else."
    )
    return {"role": "assistant", "content": quoted}, {"role": "user", "content": request}


_ADVICE = "The run itself is stored; check the judge's model and request_options in the evaluation profile."

JudgeBackend = Callable[[Sequence[Mapping[str, str]], "JudgeConfig", Case], Awaitable[JudgeReply]]
"""A judge that is no chat model: gets the conversation so far, its own configuration, and the case."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of all judges together. `prompts` are the first messages of every iteration.

    If iterations differ, each of `prompts` has the `iteration` (from 1) and its `messages`, which all judges got.
    """

    result: JudgeResult
    prompts: tuple[dict[str, Any], ...]


class NoVerdictError(JudgeError):
    """No iteration of any judge run gave a verdict; `iterations` contains each failure, `usage` the sum of all."""

    def __init__(self, iterations: Sequence[JudgeIteration]) -> None:
        self.iterations = tuple(iterations)
        self.usage = total_usage(iterations)
        failed = [(i.status, f"{i.judge_id} ({i.model}): {i.error}") for i in self.iterations]
        super().__init__(f"{failures_text('iterations', failed)}\n{_ADVICE}")


async def judge(
    case: Case,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    profile: EvaluationProfile,
    client: Callable[[JudgeConfig], ChatClient],
    *,
    backends: Mapping[str, JudgeBackend] | None = None,
    redactor: Redactor | None = None,
    texts: Texts = NO_TEXTS,
    asked: Assessment | None = None,
    backoff_seconds: float = BACKOFF_SECONDS,
) -> Judgement:
    """Ask every judge run of the profile, all iterations concurrently, and aggregate the verdicts by the profile's
    method.

    `client` returns the client of a judge that is a chat model; `backends` answer for other types. `redactor`
    (default: of this process's environment) removes secrets from requests, if the profile's policy demands it.
    `texts` are those of the run's key outputs. `backoff_seconds` is the wait before the first repetition. Failed
    iterations are stored with the successful ones; raises NoVerdictError if all failed. `asked` defines the questions;
    None: the case's rubric and expectations.
    """
    if asked is None:
        asked = assessment(case, artifact, checks, profile, redaction_of(profile, redactor), texts)
    used = {run.judge_id for run in profile.judge_runs}
    judges = {config.judge_id: config for config in profile.judges if config.judge_id in used}
    askers = {name: _asker(config, client, backends or {}, case, asked) for name, config in judges.items()}
    prompts = [asked.messages(n + 1) for n in range(max(map(asked.repetitions, profile.judge_runs), default=0))]
    iterations = await asyncio.gather(
        *(
            _iterate(run, number, judges[run.judge_id], askers[run.judge_id], asked, messages, backoff_seconds)
            for run in profile.judge_runs
            for number, messages in enumerate(prompts[: asked.repetitions(run)], start=1)
        )
    )
    # Some verdicts suffice. A failed iteration is stored with them and does not count as 0.
    if not any(iteration.status == "success" for iteration in iterations):
        raise NoVerdictError(iterations)
    return Judgement(asked.aggregate(iterations), _stored(prompts))


def redaction_of(profile: EvaluationProfile, redactor: Redactor | None) -> Redact:
    """Return the function that removes secrets from requests to judges, if the profile's policy demands it."""
    if profile.security_policy.redact_secrets:
        return (redactor or Redactor()).value
    return _unchanged


def _unchanged(value: Any) -> Any:
    return value


def _stored(prompts: Sequence[list[dict[str, str]]]) -> tuple[dict[str, Any], ...]:
    """Return the messages to store: once if they are equal in every iteration."""
    if all(messages == prompts[0] for messages in prompts):
        return tuple(prompts[0])
    return tuple({"iteration": number, "messages": messages} for number, messages in enumerate(prompts, start=1))


async def _iterate(
    run: JudgeRunConfig,
    repetition: int,
    config: JudgeConfig,
    asker: _Asker,
    assessment: Assessment,
    messages: Sequence[dict[str, str]],
    backoff_seconds: float,
) -> JudgeIteration:
    Draw.mark(f"{run.judge_run_id} {repetition}")
    outcome = await ask(asker.sender(repetition), messages, assessment.parse, backoff_seconds)
    return JudgeIteration(
        judge_run_id=run.judge_run_id,
        judge_id=config.judge_id,
        model=asker.name,
        scripted=asker.scripted,
        repetition=repetition,
        shuffled=assessment.shuffled,
        status=outcome.status,
        verdict=outcome.verdict,
        error=outcome.error,
        attempts=outcome.attempts,
        usage=outcome.usage or Usage(),
        duration_seconds=outcome.seconds,
    )


@dataclass(frozen=True, slots=True)
class _Asker:
    """The judge's name in results, and its sender for an iteration, by the iteration's number from 1."""

    name: str
    sender: Callable[[int], Send]
    scripted: bool = False


def _asker(
    config: JudgeConfig,
    client: Callable[[JudgeConfig], ChatClient],
    backends: Mapping[str, JudgeBackend],
    case: Case,
    asked: Assessment,
) -> _Asker:
    backend = backends.get(config.type)
    if backend is not None:
        # The judge of a plugin may be no model.
        name = config.model or config.type
        return _Asker(name, lambda repetition: partial(_from_plugin, backend, config=config, case=case))
    chat = client(config)

    def sender(repetition: int) -> Send:
        options = numbered_options(chat, config.options, repetition)
        return chat_sender(chat, case.case_id, asked.response_format, options, config.timeout_seconds, config.retries)

    return _Asker(chat.model.requested_model, sender, chat.model.scripted)


async def _from_plugin(
    backend: JudgeBackend, conversation: Sequence[dict[str, str]], config: JudgeConfig, case: Case
) -> JudgeReply:
    reply = await backend(conversation, config, case)
    if not isinstance(reply, JudgeReply):
        raise TypeError(f"the judge type {config.type!r} returned {type(reply).__name__}, expected JudgeReply")
    return reply


def taped_judges(backends: Mapping[str, JudgeBackend], tape: Tape) -> dict[str, JudgeBackend]:
    """Return the judges by type, through a tape. Their errors are not recorded."""
    return {kind: _taped(kind, backend, tape) for kind, backend in backends.items()}


def _taped(kind: str, backend: JudgeBackend, tape: Tape) -> JudgeBackend:
    async def judge(messages: Sequence[Mapping[str, str]], config: JudgeConfig, case: Case) -> JudgeReply:
        request = {"judge": config.model_dump(mode="json"), "messages": [dict(message) for message in messages]}
        return await tape.play(f"judge:{kind}", request, lambda: backend(messages, config, case), _FORM)

    return judge


def _write(reply: JudgeReply) -> Answer:
    if not isinstance(reply, JudgeReply):
        raise TypeError(f"the judge returned {type(reply).__name__}, expected JudgeReply")
    return Answer(content=reply.content, finish_reason=reply.finish_reason, usage=reply.usage)


def _read(answer: Answer, seconds: float) -> JudgeReply:
    return JudgeReply(answer.content, answer.usage, answer.finish_reason)


def _unkept(error: Exception) -> Refusal | None:
    return None


_FORM: Form[JudgeReply] = Form(_write, _read, _unkept, lambda refusal: ValueError(refusal.message))
