"""Judging: what LLM judges say of a run, asked, validated and aggregated.

`judge` asks about a run, `ask_vote` whether an answer is correct; a reply outside the contract is asked for again,
never trusted. `aggregate` is the arithmetic alone.
"""

from pytest_agentbench.judging.aggregation import DEFAULT_THRESHOLD, aggregate, bar_of
from pytest_agentbench.judging.asking import Asked, JudgeReply, Send, ask, chat_sender, numbered_options, request_key
from pytest_agentbench.judging.contract import parse_verdict, response_format, structured
from pytest_agentbench.judging.correctness import VoteError, answer_messages, ask_vote, vote_key
from pytest_agentbench.judging.key_outputs import key_outputs
from pytest_agentbench.judging.panel import JudgeBackend, Judgement, NoVerdictError, judge
from pytest_agentbench.judging.prompt import judge_messages
from pytest_agentbench.judging.taped import taped_judges
from pytest_agentbench.judging.tool_use import (
    TOOL_USE_REPETITIONS,
    Completions,
    Pipeline,
    ask_verdict,
    cv_over_judges,
    cv_over_shuffles,
    cv_percent,
    task_completion,
    tool_use_identity,
    tool_use_messages,
    tools_shown,
    verdict_key,
)
from pytest_agentbench.models import InvalidReply

__all__ = [
    "DEFAULT_THRESHOLD",
    "TOOL_USE_REPETITIONS",
    "Asked",
    "Completions",
    "InvalidReply",
    "JudgeBackend",
    "JudgeReply",
    "Judgement",
    "NoVerdictError",
    "Pipeline",
    "Send",
    "VoteError",
    "aggregate",
    "answer_messages",
    "ask",
    "ask_verdict",
    "ask_vote",
    "bar_of",
    "chat_sender",
    "cv_over_judges",
    "cv_over_shuffles",
    "cv_percent",
    "judge",
    "judge_messages",
    "key_outputs",
    "numbered_options",
    "parse_verdict",
    "request_key",
    "response_format",
    "structured",
    "taped_judges",
    "task_completion",
    "tool_use_identity",
    "tool_use_messages",
    "tools_shown",
    "verdict_key",
    "vote_key",
]
