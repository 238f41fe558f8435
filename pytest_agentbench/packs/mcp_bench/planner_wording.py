"""The texts that a language has to give the planner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """All that `mcp_planner` says to its model (seed 004, A.2), in one language.

    Names in braces are filled in: `boundary` is the code of blocks, numbers are whole. Texts without any are said as
    they are, braces and all.
    """

    how_to_read: str
    """`{boundary}`. How data is told from instructions; after the system message of each request."""
    planning: str
    """The system message of a request for a plan, with its form."""
    tools: str
    task: str
    tools_label: str
    task_label: str
    round: str
    """`{round}`, `{max_rounds}`."""
    last_round: str
    information: str
    nothing_known: str
    round_heading: str
    """`{round}`."""
    reasoning_label: str
    result_label: str
    """`{number}`, `{round}`."""
    succeeded: str
    failed: str
    compressed: str
    compressed_label: str
    ask_plan: str
    invalid_plan: str
    """`{problems}`."""
    native_calls: str
    """One more problem of a reply that calls tools natively."""
    cut_plan: str
    """`{tokens}`. One more problem of a reply that was cut off."""
    answering: str
    """The system message of the request for the final answer."""
    executed: str
    """`{calls}`, `{servers}`."""
    ask_answer: str
    summarising: str
    """The system message of a request for a summary."""
    ask_summary: str
    """`{tokens}`."""
    content_label: str
    ask_compression: str
    """`{tokens}`."""
    left_out: str
    """`{tokens}`. Stands where a text was cut."""
