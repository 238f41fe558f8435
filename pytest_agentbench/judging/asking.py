"""Asks the judges of a profile about one run, and puts their verdicts together."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pytest_agentbench.errors import JudgeError, ProviderError
from pytest_agentbench.judging.aggregation import aggregate, total_usage
from pytest_agentbench.judging.contract import InvalidReply, parse_verdict, response_format
from pytest_agentbench.judging.prompt import clipped, judge_messages
from pytest_agentbench.records import Case, CheckResult, JudgeIteration, JudgeResult, JudgeVerdict, RunArtifact, Usage
from pytest_agentbench.store import Redactor

if TYPE_CHECKING:
    from pytest_agentbench.config import EvaluationProfile, JudgeConfig, JudgeRunConfig
    from pytest_agentbench.models import ChatClient, ChatReply

MAX_ATTEMPTS = 3
"""How often one iteration asks before it is `invalid_output`."""
REQUEST_SECONDS = 120.0
MAX_QUOTED_REPLY = 20_000

_without_schemas: set[tuple[str | None, str]] = set()
"""The endpoints and models that have refused a response schema in this process: asked for plain JSON from then on."""


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What a judge answered: its text, and what that used."""

    content: str | None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None


JudgeBackend = Callable[[Sequence[Mapping[str, str]], "JudgeConfig", Case], Awaitable[JudgeReply]]
"""A judge that is no chat model: gets the conversation so far, its own configuration, and the case."""

_Ask = Callable[[Sequence[dict[str, str]]], Awaitable["JudgeReply | ChatReply"]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judges said. `prompts` are the messages that every iteration began with."""

    result: JudgeResult
    prompts: tuple[dict[str, str], ...]


class NoVerdictError(JudgeError):
    """No iteration of any judge run gave a verdict; `iterations` says how each one failed, `usage` what all used."""

    def __init__(self, iterations: Sequence[JudgeIteration]) -> None:
        self.iterations = tuple(iterations)
        self.usage = total_usage(iterations)
        super().__init__(_failure_text(self.iterations))


async def judge(
    case: Case,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    profile: EvaluationProfile,
    client: Callable[[JudgeConfig], ChatClient],
    *,
    backends: Mapping[str, JudgeBackend] | None = None,
    redactor: Redactor | None = None,
    backoff_seconds: float = 0.25,
) -> Judgement:
    """Every judge run of the profile, all iterations at once, aggregated as the profile says.

    `client` gives the client for a judge that is a chat model; `backends` answer for the other types. `redactor`
    (default: of this process's environment) removes secrets from what is sent, where the profile's policy asks for it.
    `backoff_seconds` is the wait before the first re-asking. Iterations that failed are kept beside
    those that succeeded; raises NoVerdictError where none did.
    """
    messages = judge_messages(case, artifact, checks, profile)
    if profile.security_policy.redact_secrets:
        messages = (redactor or Redactor()).value(messages)
    used = {run.judge_id for run in profile.judge_runs}
    judges = {config.judge_id: config for config in profile.judges if config.judge_id in used}
    askers = {name: _asker(config, client, backends or {}, case) for name, config in judges.items()}
    iterations = await asyncio.gather(
        *(
            _iterate(
                run,
                repetition,
                judges[run.judge_id],
                askers[run.judge_id],
                case,
                messages,
                backoff_seconds,
            )
            for run in profile.judge_runs
            for repetition in range(1, run.repetitions + 1)
        )
    )
    if not any(iteration.status == "success" for iteration in iterations):
        raise NoVerdictError(iterations)
    result = aggregate(
        iterations,
        method=profile.aggregation.method,
        pass_threshold=profile.aggregation.pass_threshold,
        sample_sizes={run.judge_run_id: run.sample_size for run in profile.judge_runs if run.sample_size is not None},
        seed=artifact.fingerprint or f"{artifact.case_id}:{artifact.repetition}",
        expectations=case.expectations,
    )
    return Judgement(result, tuple(messages))


async def _iterate(
    run: JudgeRunConfig,
    repetition: int,
    config: JudgeConfig,
    asker: tuple[str, _Ask],
    case: Case,
    messages: Sequence[dict[str, str]],
    backoff_seconds: float,
) -> JudgeIteration:
    """One iteration: asks, and asks again with what was wrong, until there is a verdict or no more to try."""
    began = time.monotonic()
    usage: Usage | None = None
    name, ask = asker
    conversation, attempt = list(messages), 0

    def ended(
        status: Literal["success", "invalid_output", "provider_error"],
        verdict: JudgeVerdict | None = None,
        error: str | None = None,
    ) -> JudgeIteration:
        return JudgeIteration(
            judge_run_id=run.judge_run_id,
            judge_id=config.judge_id,
            model=name,
            repetition=repetition,
            status=status,
            verdict=verdict,
            error=error,
            attempts=attempt,
            usage=usage or Usage(),
            duration_seconds=time.monotonic() - began,
        )

    while True:
        attempt += 1
        try:
            reply = await ask(conversation)
        except ProviderError as error:
            return ended("provider_error", error=str(error))
        except Exception as error:  # noqa: BLE001 - a plugin's judge or client; the other iterations count all the same
            return ended("provider_error", error=f"{type(error).__name__}: {error}")
        usage = reply.usage if usage is None else usage + reply.usage
        try:
            return ended("success", parse_verdict(reply.content or "", case.expectations))
        except InvalidReply as error:
            cut = "\n- the reply was cut off at the token limit" if reply.finish_reason == "length" else ""
            problems = f"{error}{cut}"
        if attempt == MAX_ATTEMPTS:
            return ended("invalid_output", error=f"no verdict in {attempt} replies; the last one:\n{problems}")
        conversation = [*messages, *_reminder(reply, problems)]
        await asyncio.sleep(backoff_seconds * 2 ** (attempt - 1) * random.uniform(1, 1.5))


def _asker(
    config: JudgeConfig, client: Callable[[JudgeConfig], ChatClient], backends: Mapping[str, JudgeBackend], case: Case
) -> tuple[str, _Ask]:
    """The judge's name in results, and how it is asked."""
    backend = backends.get(config.type)
    if backend is not None:
        return config.model or config.type, lambda conversation: _from_plugin(backend, conversation, config, case)
    chat = client(config)
    return chat.model.requested_model, lambda conversation: _request(chat, config.options, conversation, case)


async def _from_plugin(
    backend: JudgeBackend, conversation: Sequence[dict[str, str]], config: JudgeConfig, case: Case
) -> JudgeReply:
    reply = await backend(conversation, config, case)
    if not isinstance(reply, JudgeReply):
        raise TypeError(f"the judge type {config.type!r} returned {type(reply).__name__}, expected JudgeReply")
    return reply


def _reminder(reply: JudgeReply | ChatReply, problems: str) -> tuple[dict[str, str], dict[str, str]]:
    """The refused reply and what is wrong with it."""
    quoted = clipped(reply.content or "(an empty reply)", MAX_QUOTED_REPLY)
    request = (
        f"Your reply does not keep the contract:\n{problems}\nReply again with the whole JSON object, nothing else."
    )
    return {"role": "assistant", "content": quoted}, {"role": "user", "content": request}


async def _request(
    client: ChatClient, options: dict[str, Any], messages: Sequence[dict[str, str]], case: Case
) -> ChatReply:
    """One reply, with structured output unless the endpoint refuses it or the judge's own options say otherwise."""
    endpoint = (client.model.base_url, client.model.requested_model)
    if "response_format" not in options and endpoint not in _without_schemas:
        try:
            return await client.complete(
                messages,
                parameters={"response_format": response_format(case.expectations), **options},
                timeout=REQUEST_SECONDS,
                case_id=case.case_id,
            )
        except ProviderError as error:
            if not _refuses_schemas(error):
                raise
            _without_schemas.add(endpoint)
    return await client.complete(messages, parameters=options, timeout=REQUEST_SECONDS, case_id=case.case_id)


def _refuses_schemas(error: ProviderError) -> bool:
    text = str(error).lower()
    return not error.retryable and any(word in text for word in ("response_format", "json_schema", "structured output"))


def _failure_text(iterations: Sequence[JudgeIteration]) -> str:
    """How many failed, why, and what to do."""
    counts = Counter(iteration.status for iteration in iterations)
    named = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    causes = Counter(f"{i.judge_id} ({i.model}): {i.error}" for i in iterations)
    shown = "\n".join(f"{cause} [{count} times]" if count > 1 else cause for cause, count in causes.most_common(3))
    return (
        f"no judge gave a verdict: {len(iterations)} of {len(iterations)} iterations failed ({named}).\n{shown}\n"
        "The run itself is stored; check the judge's model and request_options in the evaluation profile."
    )
