"""Build the planner's requests from its texts, with data in delimited blocks, and send them with a limit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_agentbench.config.prompt_files import PromptTexts
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.prompts import Block, compute_boundary, fill_prompt, render_parts
from pytest_agentbench.packs.mcp_bench.wording import read_planner_wording
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.tools.base import Tool

Parts = Sequence[str | Block]


class Prompts:
    """Requests of one run. Their beginnings are the same in every round, so that providers can cache them."""

    def __init__(
        self,
        language: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Iterable[Tool],
        replaced: PromptTexts | None = None,
    ) -> None:
        self.wording = read_planner_wording(language)
        self._language, self._replaced = language, replaced
        self._task: Parts = [self.wording.task, Block(self.wording.task_label, _render_task(messages))]
        self._tools: Parts = [self.wording.tools, Block(self.wording.tools_label, "\n".join(map(_format_tool, tools)))]
        # The prefix is common to all requests: a boundary that changed with each round's results would
        # prevent caching.
        self._boundary = compute_boundary([*self._tools, *self._task])

    def plan(self, number: int, max_rounds: int, information: Parts) -> list[dict[str, str]]:
        """Return the request for the plan of round `number`."""
        wording = self.wording
        material = {"task": self._task[1:], "tools": self._tools[1:], "information": self._known(information)}
        if replaced := self._fill("plan", {"round": number, "max_rounds": max_rounds}, material):
            return replaced
        now = wording.round.format(round=number, max_rounds=max_rounds)
        if number == max_rounds:
            now += f" {wording.last_round}"
        return self._request(
            wording.planning, [*self._tools, *self._task, *self._information_parts(information), now, wording.ask_plan]
        )

    def answer(self, calls: int, servers: int, information: Parts) -> list[dict[str, str]]:
        """Return the request for the final answer, after so many calls on so many servers."""
        wording = self.wording
        material = {"task": self._task[1:], "information": self._known(information)}
        if replaced := self._fill("answer", {"calls": calls, "servers": servers}, material):
            return replaced
        executed = wording.executed.format(calls=calls, servers=servers)
        # Without the tools, which are most of a request: there are no more calls.
        return self._request(
            wording.answering, [*self._task, executed, *self._information_parts(information), wording.ask_answer]
        )

    def summary(self, content: str, tokens: int) -> list[dict[str, str]]:
        """Return the request to summarise the result of one call."""
        wording, block = self.wording, Block(self.wording.content_label, content)
        if replaced := self._fill("summary", {"tokens": tokens}, {"content": [block]}):
            return replaced
        return self._request(wording.summarising, [wording.ask_summary.format(tokens=tokens), block])

    def compression(self, information: str, tokens: int) -> list[dict[str, str]]:
        """Return the request to condense the findings of rounds."""
        wording, block = self.wording, Block(self.wording.compressed_label, information)
        if replaced := self._fill("compression", {"tokens": tokens}, {"information": [block]}):
            return replaced
        return self._request(wording.summarising, [wording.ask_compression.format(tokens=tokens), block])

    def plain(self, parts: Parts) -> str:
        """Return the parts as the text of a request."""
        return render_parts(parts, self._boundary)

    def _information_parts(self, information: Parts) -> Parts:
        return [self.wording.information, *self._known(information)]

    def _known(self, information: Parts) -> Parts:
        return information or [self.wording.nothing_known]

    def _fill(
        self, prompt: str, values: Mapping[str, object], material: Mapping[str, Parts]
    ) -> list[dict[str, str]] | None:
        """Return the request from the prompt's file, or None without such a file."""
        if self._replaced is None or (text := self._replaced.find(prompt, self._language)) is None:
            return None
        # A replaced prompt contains its own instructions. The explanation of blocks is always added.
        how_to_read = self.wording.how_to_read.format(boundary=self._boundary).strip()
        user = fill_prompt(text, values, material, self._boundary)
        return [{"role": "system", "content": how_to_read}, {"role": "user", "content": user}]

    def _request(self, system: str, parts: Parts) -> list[dict[str, str]]:
        how_to_read = self.wording.how_to_read.format(boundary=self._boundary)
        return [
            {"role": "system", "content": f"{system}\n\n{how_to_read}"},
            {"role": "user", "content": self.plain(parts)},
        ]


def _render_task(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a single message, or all messages with their roles above them."""
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)


def _format_tool(tool: Tool) -> str:
    return json.dumps(
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}, ensure_ascii=False
    )


_LIMIT, _NEWER_LIMIT = "max_tokens", "max_completion_tokens"


class Asker:
    """Send requests with a limit of the reply's tokens.

    If the `parameters` of the model and the run have a limit, the lower one is sent. If they remove it with null, none
    is sent.
    """

    def __init__(self, requests: Requests, parameters: Mapping[str, Any]) -> None:
        self._requests = requests
        self._own_limits = [parameters[name] for name in (_LIMIT, _NEWER_LIMIT) if name in parameters]
        self._newer = parameters.get(_NEWER_LIMIT) is not None

    async def ask(self, purpose: str, messages: Sequence[Mapping[str, Any]], tokens: int) -> ChatReply:
        """Return the reply to one request. Raises ProviderError."""
        return await self._requests.send(messages, parameters=self._limit_parameters(tokens), purpose=purpose)

    def _limit_parameters(self, tokens: int) -> dict[str, int | None]:
        """Return the parameters of a request that limit its reply."""
        numbers = [limit for limit in self._own_limits if isinstance(limit, int)]
        if self._own_limits and not numbers:
            return {}
        limit = min([tokens, *numbers])
        if self._newer:
            return {_LIMIT: None, _NEWER_LIMIT: limit}
        return {_LIMIT: limit}
