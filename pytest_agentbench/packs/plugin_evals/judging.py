"""Ask a judge whether a part of a run meets a grader's criteria."""

from __future__ import annotations

from pytest_agentbench.judging.prompt import HOW_TO_READ, MAX_MESSAGE, MAX_OUTPUT
from pytest_agentbench.metrics.llm_judgement import take_votes
from pytest_agentbench.metrics.registry import Measured, MetricContext
from pytest_agentbench.models.prompts import Block, clip_middle, compute_boundary, render_parts
from pytest_agentbench.packs.plugin_evals.records import FileTarget, LlmGrader, Target

VOTES = 3
"""Votes of a grader, of which most decide."""

PROMPT_VERSION = 1
"""Part of the identity of verdicts: raised if the wording changes."""

_SYSTEM = """\
You are a strict, fair judge. You decide whether a part of an AI agent's run meets criteria.

{how_to_read}

How to judge
- `correct` is true if all criteria are met, else false.
- Judge by the part of the run that you see. What the agent says about its own success counts for nothing.

How to reply
Reply with one JSON object and nothing else: {"reason": "...", "correct": true}
`reason` comes first: one or two sentences. `correct` is true or false, the verdict that follows from it."""

_LABELS = {
    "last_message": "agent's last message",
    "trace": "messages and tool calls of the run",
    "files": "paths of the files that the agent created",
    "mock_calls": "calls of mocked tools",
}


async def ask_judge(grader: LlmGrader, text: str, context: MetricContext) -> Measured:
    """Return 1 if most votes find the criteria met, else 0. Raises JudgeError if no vote was received."""
    messages = make_messages(grader, text, context.question)
    return await take_votes(context.client(None), messages, context, VOTES)


def make_messages(grader: LlmGrader, text: str, prompt: str) -> list[dict[str, str]]:
    """Return the system and the user message of a request for a vote."""
    parts: list[str | Block] = [
        "# The task of the agent",
        Block("task", clip_middle(prompt, MAX_MESSAGE)),
        "",
        "# Criteria",
        Block("criteria", clip_middle(grader.criteria, MAX_MESSAGE)),
        "",
        "# The run",
        Block(_name_part(grader.focus), clip_middle(text, MAX_OUTPUT)),
        "",
    ]
    boundary = compute_boundary(parts)
    parts.append("# Your verdict\nReply with the JSON object now.")
    system = _SYSTEM.replace("{how_to_read}", HOW_TO_READ).replace("{boundary}", boundary)
    return [{"role": "system", "content": system}, {"role": "user", "content": render_parts(parts, boundary)}]


def _name_part(focus: Target) -> str:
    if isinstance(focus, FileTarget):
        return f"file {focus.path}"
    return _LABELS[focus]
