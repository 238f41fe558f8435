"""The planner's requests, put together. Whatever a tool or a server said stands in delimited blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_agentbench.models.prompts import Block, compute_boundary, render_parts
from pytest_agentbench.packs.mcp_bench.wording import planner_wording
from pytest_agentbench.tools.base import Tool

Parts = Sequence[str | Block]


class Prompts:
    """All requests of one run. Their beginnings are the same in every round, so that providers can cache them."""

    def __init__(self, language: str, messages: Sequence[Mapping[str, Any]], tools: Iterable[Tool]) -> None:
        self.wording = planner_wording(language)
        self._task: Parts = [self.wording.task, Block(self.wording.task_label, _task_text(messages))]
        self._tools: Parts = [self.wording.tools, Block(self.wording.tools_label, "\n".join(map(_tool_line, tools)))]
        self._boundary = compute_boundary([*self._tools, *self._task])

    def plan(self, number: int, max_rounds: int, information: Parts) -> list[dict[str, str]]:
        """Return the request for the plan of round `number`."""
        said = self.wording
        now = said.round.format(round=number, max_rounds=max_rounds)
        if number == max_rounds:
            now += f" {said.last_round}"
        return self._request(said.planning, [*self._tools, *self._task, *self._known(information), now, said.ask_plan])

    def answer(self, calls: int, servers: int, information: Parts) -> list[dict[str, str]]:
        """Return the request for the final answer, after so many calls on so many servers."""
        said = self.wording
        executed = said.executed.format(calls=calls, servers=servers)
        return self._request(said.answering, [*self._task, executed, *self._known(information), said.ask_answer])

    def summary(self, content: str, tokens: int) -> list[dict[str, str]]:
        """Return the request to summarise the result of one call."""
        said = self.wording
        return self._request(
            said.summarising, [said.ask_summary.format(tokens=tokens), Block(said.content_label, content)]
        )

    def compression(self, information: str, tokens: int) -> list[dict[str, str]]:
        """Return the request to condense what rounds have found."""
        said = self.wording
        asked = said.ask_compression.format(tokens=tokens)
        return self._request(said.summarising, [asked, Block(said.compressed_label, information)])

    def plain(self, parts: Parts) -> str:
        """Parts as the text that a request shows of them."""
        return render_parts(parts, self._boundary)

    def _known(self, information: Parts) -> Parts:
        return [self.wording.information, *(information or [self.wording.nothing_known])]

    def _request(self, system: str, parts: Parts) -> list[dict[str, str]]:
        how_to_read = self.wording.how_to_read.format(boundary=self._boundary)
        return [
            {"role": "system", "content": f"{system}\n\n{how_to_read}"},
            {"role": "user", "content": self.plain(parts)},
        ]


def _task_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the case's messages as one text: a single one as it is, several each under its role."""
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)


def _tool_line(tool: Tool) -> str:
    return json.dumps(
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}, ensure_ascii=False
    )
