"""Judging: what LLM judges say of a run, asked, validated and aggregated.

`judge` asks about a run, `ask_vote` whether an answer is correct; a reply outside the contract is asked for again,
never trusted. `aggregate` is the arithmetic alone.
"""

from pytest_agentbench.judging.aggregation import DEFAULT_THRESHOLD, aggregate
from pytest_agentbench.judging.asking import Asked, JudgeReply
from pytest_agentbench.judging.contract import InvalidReply, parse_verdict, response_format
from pytest_agentbench.judging.correctness import VoteError, answer_messages, ask_vote, vote_key
from pytest_agentbench.judging.panel import JudgeBackend, Judgement, NoVerdictError, judge
from pytest_agentbench.judging.prompt import judge_messages
from pytest_agentbench.judging.taped import taped_judges

__all__ = [
    "DEFAULT_THRESHOLD",
    "Asked",
    "InvalidReply",
    "JudgeBackend",
    "JudgeReply",
    "Judgement",
    "NoVerdictError",
    "VoteError",
    "aggregate",
    "answer_messages",
    "ask_vote",
    "judge",
    "judge_messages",
    "parse_verdict",
    "response_format",
    "taped_judges",
    "vote_key",
]
