"""What the rounds have found, as the planner sees it: long results summarised, and all of it kept within a length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.config import PlannerSettings
from pytest_agentbench.models import Block
from pytest_agentbench.runners.calling import together
from pytest_agentbench.runners.planner.asking import Asker
from pytest_agentbench.runners.planner.executing import call_id
from pytest_agentbench.runners.planner.plan import Plan, PlannedCall
from pytest_agentbench.runners.planner.prompting import Parts, Prompts
from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.tools import ToolOutput

if TYPE_CHECKING:
    from pytest_agentbench.models import TokenCounter


class Information:
    """Grows with each round. What the model condensed of it stands for what it was before.

    The trace keeps each result whole; its runner events `summary` and `compression` hold what became of it here.
    """

    def __init__(
        self, asker: Asker, prompts: Prompts, counter: TokenCounter, settings: PlannerSettings, trace: Recorder
    ) -> None:
        self._asker = asker
        self._prompts = prompts
        self._counter = counter
        self._settings = settings
        self._trace = trace
        self._rounds: list[list[str | Block]] = []

    @property
    def parts(self) -> Parts:
        """All that is known, for a request; empty before the first round."""
        return [part for parts in self._rounds for part in parts]

    async def add(self, number: int, plan: Plan, outputs: Sequence[ToolOutput]) -> None:
        """Add a round: its reasoning, its calls, and what they came to. Raises ProviderError."""
        said, limit = self._prompts.wording, self._settings.summarise_over_tokens
        results = list(dict.fromkeys(output.content for output in outputs))  # equal ones are summarised once
        shortened = dict(zip(results, await together(map(self._shortened, results)), strict=True))
        parts: list[str | Block] = [said.round_heading.format(round=number)]
        if plan.reasoning:
            parts.append(Block(said.reasoning_label, self._cut(plan.reasoning, limit)))
        for nth, (call, output) in enumerate(zip(plan.calls, outputs, strict=True), start=1):
            content = shortened[output.content]
            if content != output.content:
                self._trace.event("summary", call_id=call_id(number, nth), content=content)
            how = said.failed if output.is_error else said.succeeded
            label = said.result_label.format(number=nth, round=number)
            parts.append(Block(label, f"{self._cut(_call_line(call), limit)}\n-> {how}\n{content}"))
        self._rounds.append(parts)
        if self._counter.count(self._prompts.plain(self.parts)) > self._settings.information_tokens:
            await self._compress()

    async def _shortened(self, result: str) -> str:
        """The result as it is, or the model's summary of it, not longer than it was asked to be."""
        limit = self._settings.summarise_over_tokens
        if self._counter.count(result) <= limit:
            return result
        return await self._condensed("summary", self._prompts.summary(result, limit), result, limit)

    async def _compress(self) -> None:
        """All that is known is condensed to half of what it may be."""
        target = min(self._settings.information_tokens // 2, self._settings.summary_tokens)
        pieces = self._pieces()
        share = max(target // len(pieces), 1)
        texts = await together(
            self._condensed("compression", self._prompts.compression(piece, share), piece, share) for piece in pieces
        )
        text, said = "\n\n".join(texts), self._prompts.wording
        self._trace.event("compression", pieces=len(pieces), content=text)
        self._rounds = [[said.compressed, Block(said.compressed_label, text)]]

    def _pieces(self) -> list[str]:
        """The parts as texts to condense, each at most twice as long as the whole may be: a round may bring more."""
        pieces, length, limit = [""], 0, 2 * self._settings.information_tokens
        for part in self.parts:
            text = part if isinstance(part, str) else f"{part.label}:\n{part.text}"
            tokens = self._counter.count(text)
            if pieces[-1] and length + tokens > limit:
                pieces.append("")
                length = 0
            pieces[-1] += f"{text}\n\n"
            length += tokens
        return pieces

    async def _condensed(self, purpose: str, messages: list[dict[str, str]], original: str, tokens: int) -> str:
        """What the model made of `original`, cut to the length it was asked for; else the beginning of `original`."""
        reply = await self._asker.ask(purpose, messages, self._settings.summary_tokens)
        return self._cut((reply.content or "").strip() or original, tokens)

    def _cut(self, text: str, tokens: int) -> str:
        kept = self._counter.cut(text, tokens)
        if kept == text:
            return text
        return f"{kept}\n{self._prompts.wording.left_out.format(tokens=self._counter.count(text[len(kept) :]))}"


def _call_line(call: PlannedCall) -> str:
    return f"{call.tool} {json.dumps(call.parameters, ensure_ascii=False)}"
