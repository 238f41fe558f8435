"""Judging: what LLM judges say of a run, asked, validated and aggregated.

`judge` asks; a reply outside the contract is asked for again, never trusted. `aggregate` is the arithmetic alone.
"""

from pytest_agentbench.judging.aggregation import DEFAULT_THRESHOLD, aggregate
from pytest_agentbench.judging.asking import JudgeBackend, Judgement, JudgeReply, NoVerdictError, judge
from pytest_agentbench.judging.contract import InvalidReply, parse_verdict, response_format
from pytest_agentbench.judging.prompt import judge_messages

__all__ = [
    "DEFAULT_THRESHOLD",
    "InvalidReply",
    "JudgeBackend",
    "JudgeReply",
    "Judgement",
    "NoVerdictError",
    "aggregate",
    "judge",
    "judge_messages",
    "parse_verdict",
    "response_format",
]
