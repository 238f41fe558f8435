"""Ask the judges of a profile about one run, or its cassette, and put their verdicts together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import JudgeError
from pytest_agentbench.judging.asking import (
    BACKOFF_SECONDS,
    JudgeReply,
    Send,
    ask,
    chat_sender,
    failures_text,
    numbered_options,
)
from pytest_agentbench.judging.prompt import NO_TEXTS, Assessment, Redact, Texts, assessment
from pytest_agentbench.judging.verdicts import total_usage
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import CheckResult, JudgeIteration, JudgeResult
from pytest_agentbench.records.run import RunArtifact, Usage
from pytest_agentbench.store.redaction import Redactor

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile, JudgeConfig, JudgeRunConfig
    from pytest_agentbench.models.client import ChatClient


_ADVICE = "The run itself is stored; check the judge's model and request_options in the evaluation profile."

JudgeBackend = Callable[[Sequence[Mapping[str, str]], "JudgeConfig", Case], Awaitable[JudgeReply]]
"""A judge that is no chat model: gets the conversation so far, its own configuration, and the case."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judges said. `prompts` are the messages that every iteration began with.

    Where these differ, each of `prompts` has the `iteration` (from 1) and its `messages`, the same for all judges.
    """

    result: JudgeResult
    prompts: tuple[dict[str, Any], ...]


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
    texts: Texts = NO_TEXTS,
    asked: Assessment | None = None,
    backoff_seconds: float = BACKOFF_SECONDS,
) -> Judgement:
    """Ask every judge run of the profile, all iterations at once, aggregated as the profile says.

    `client` gives the client for a judge that is a chat model; `backends` answer for the other types. `redactor`
    (default: of this process's environment) removes secrets from what is sent, where the profile's policy asks for it.
    `texts` are those of the run's key outputs.
    `backoff_seconds` is the wait before the first re-asking. Iterations that failed are kept beside
    those that succeeded; raises NoVerdictError where none did. `asked` says how they are asked; None: by the case's
    rubric and expectations.
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
    if not any(iteration.status == "success" for iteration in iterations):
        raise NoVerdictError(iterations)
    return Judgement(asked.aggregate(iterations), _stored(prompts))


def redaction_of(profile: EvaluationProfile, redactor: Redactor | None) -> Redact:
    """Return what removes secrets from what judges are sent, where the profile's policy asks for it."""
    return (redactor or Redactor()).value if profile.security_policy.redact_secrets else _unchanged


def _unchanged(value: Any) -> Any:
    return value


def _stored(prompts: Sequence[list[dict[str, str]]]) -> tuple[dict[str, Any], ...]:
    """Return the messages, once where they are the same in every iteration."""
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
    asked = await ask(asker.sender(repetition), messages, assessment.parse, backoff_seconds)
    return JudgeIteration(
        judge_run_id=run.judge_run_id,
        judge_id=config.judge_id,
        model=asker.name,
        scripted=asker.scripted,
        repetition=repetition,
        shuffled=assessment.shuffled,
        status=asked.status,
        verdict=asked.verdict,
        error=asked.error,
        attempts=asked.attempts,
        usage=asked.usage or Usage(),
        duration_seconds=asked.seconds,
    )


@dataclass(frozen=True, slots=True)
class _Asker:
    """The judge's name in results, and how it is asked in an iteration, by its number from 1."""

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
        name = config.model or config.type
        return _Asker(name, lambda repetition: partial(_from_plugin, backend, config=config, case=case))
    chat = client(config)

    def sender(repetition: int) -> Send:
        options = numbered_options(chat, config.options, repetition)
        return chat_sender(chat, case.case_id, asked.response_format, options)

    return _Asker(chat.model.requested_model, sender, chat.model.scripted)


async def _from_plugin(
    backend: JudgeBackend, conversation: Sequence[dict[str, str]], config: JudgeConfig, case: Case
) -> JudgeReply:
    reply = await backend(conversation, config, case)
    if not isinstance(reply, JudgeReply):
        raise TypeError(f"the judge type {config.type!r} returned {type(reply).__name__}, expected JudgeReply")
    return reply


def taped_judges(backends: Mapping[str, JudgeBackend], tape: Tape) -> dict[str, JudgeBackend]:
    """Return the judges by type, through a tape. Their own errors are not kept."""
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
