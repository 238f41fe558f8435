"""A plugin's judge whose replies a cassette has or keeps. Judges that are chat models are taped by their client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.judging.asking import JudgeReply
from pytest_agentbench.judging.panel import JudgeBackend
from pytest_agentbench.models import Answer, Form, Refusal, Tape
from pytest_agentbench.records import Case

if TYPE_CHECKING:
    from pytest_agentbench.config import JudgeConfig


def taped_judges(backends: Mapping[str, JudgeBackend], tape: Tape) -> dict[str, JudgeBackend]:
    """The judges by type, through a tape. Their own errors are not kept."""
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
