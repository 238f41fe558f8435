"""The requests that a runner sends to its model, and the marks that each leaves in the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config import RunnerSettings
from pytest_agentbench.models import TapedClient
from pytest_agentbench.runners.base import RunOutput
from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.tools import Toolbox

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient, ChatReply


class Requests:
    """Sends one run's requests with the run's settings.

    Every request, retry and reply is a runner event of the trace (`request`, `retry`, `reply`); usage is added up.
    """

    def __init__(self, case_id: str, client: ChatClient, settings: RunnerSettings, trace: Recorder) -> None:
        self._case_id = case_id
        self._client = client
        self._settings = settings
        self._trace = trace
        self._sent = 0

    def describe(self, messages: Sequence[Mapping[str, Any]], toolbox: Toolbox, **limits: Any) -> None:
        """Note what is asked of whom with which tools and limits, and the messages that the agent is given."""
        settings = self._settings
        parameters = {**self._client.model.parameters, **settings.request_parameters}
        self._trace.request.update(
            model=self._client.model.requested_model,
            parameters={name: value for name, value in parameters.items() if value is not None},
            tools=[tool.name for tool in toolbox.tools],
            timeout_seconds=settings.timeout_seconds,
            retries=settings.retries,
            **limits,
        )
        for message in messages:
            self._trace.message(message["role"], message["content"], message.get("name"))

    def compare_by(self, alike: Callable[[str], str]) -> None:
        """Where a cassette is in use, requests are the same to it whose texts `alike` makes the same."""
        if isinstance(self._client, TapedClient):
            self._client = self._client.comparing(alike)

    async def send(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
        **note: Any,
    ) -> ChatReply:
        """One request. `parameters` win over the settings' own; `note` is added to its event. Raises ProviderError."""
        self._sent += 1
        number = self._sent
        self._trace.event("request", number=number, messages=len(messages), tools=len(tools), **note)
        reply = await self._client.complete(
            messages,
            tools=tools,
            parameters={**self._settings.request_parameters, **(parameters or {})},
            timeout=self._settings.timeout_seconds,
            retries=self._settings.retries,
            case_id=self._case_id,
            on_retry=lambda reason, delay: self._trace.event(
                "retry", number=number, reason=reason, delay_seconds=delay
            ),
        )
        self._note(reply, number)
        return reply

    def _note(self, reply: ChatReply, number: int) -> None:
        self._trace.add_usage(reply.usage)
        self._trace.event(
            "reply",
            number=number,
            finish_reason=reply.finish_reason,
            attempts=reply.attempts,
            seconds=reply.seconds,
            response_id=reply.response_id,
        )
        provider = self._trace.provider
        provider["model"] = reply.model
        provider["finish_reason"] = reply.finish_reason
        provider["requests"] = provider.get("requests", 0) + 1
        provider["attempts"] = provider.get("attempts", 0) + reply.attempts
        provider["seconds"] = provider.get("seconds", 0.0) + reply.seconds
        provider.setdefault("response_ids", []).append(reply.response_id)


def answered(reply: ChatReply, **metadata: Any) -> RunOutput:
    """A run that ends with this reply: the text as it came, empty where there is none.

    An answer that the provider's content filter withheld is a failed run.
    """
    text = reply.content or ""
    metadata = {"finish_reason": reply.finish_reason, **metadata}
    if reply.finish_reason == "content_filter":
        return RunOutput(output=text, status="failed", error=WITHHELD.format("answer"), metadata=metadata)
    return RunOutput(output=text, metadata=metadata)


WITHHELD = "the provider's content filter withheld the {} (finish_reason: content_filter)"
