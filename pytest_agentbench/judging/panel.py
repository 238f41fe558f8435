"""Asks the judges of a profile about one run, and puts their verdicts together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_agentbench.errors import JudgeError
from pytest_agentbench.judging.aggregation import aggregate, total_usage
from pytest_agentbench.judging.asking import BACKOFF_SECONDS, JudgeReply, Send, ask, chat_sender, failures_text
from pytest_agentbench.judging.contract import parse_verdict, response_format
from pytest_agentbench.judging.prompt import judge_messages
from pytest_agentbench.records import Case, CheckResult, JudgeIteration, JudgeResult, RunArtifact, Usage
from pytest_agentbench.store import Redactor

if TYPE_CHECKING:
    from pytest_agentbench.config import EvaluationProfile, JudgeConfig, JudgeRunConfig
    from pytest_agentbench.models import ChatClient

_ADVICE = "The run itself is stored; check the judge's model and request_options in the evaluation profile."

JudgeBackend = Callable[[Sequence[Mapping[str, str]], "JudgeConfig", Case], Awaitable[JudgeReply]]
"""A judge that is no chat model: gets the conversation so far, its own configuration, and the case."""


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
    backoff_seconds: float = BACKOFF_SECONDS,
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
    asker: tuple[str, Send],
    case: Case,
    messages: Sequence[dict[str, str]],
    backoff_seconds: float,
) -> JudgeIteration:
    name, send = asker
    asked = await ask(send, messages, lambda text: parse_verdict(text, case.expectations), backoff_seconds)
    return JudgeIteration(
        judge_run_id=run.judge_run_id,
        judge_id=config.judge_id,
        model=name,
        repetition=repetition,
        status=asked.status,
        verdict=asked.verdict,
        error=asked.error,
        attempts=asked.attempts,
        usage=asked.usage or Usage(),
        duration_seconds=asked.seconds,
    )


def _asker(
    config: JudgeConfig, client: Callable[[JudgeConfig], ChatClient], backends: Mapping[str, JudgeBackend], case: Case
) -> tuple[str, Send]:
    """The judge's name in results, and how it is asked."""
    backend = backends.get(config.type)
    if backend is not None:
        return config.model or config.type, lambda conversation: _from_plugin(backend, conversation, config, case)
    chat = client(config)
    send = chat_sender(chat, case.case_id, response_format(case.expectations), config.options)
    return chat.model.requested_model, send


async def _from_plugin(
    backend: JudgeBackend, conversation: Sequence[dict[str, str]], config: JudgeConfig, case: Case
) -> JudgeReply:
    reply = await backend(conversation, config, case)
    if not isinstance(reply, JudgeReply):
        raise TypeError(f"the judge type {config.type!r} returned {type(reply).__name__}, expected JudgeReply")
    return reply
