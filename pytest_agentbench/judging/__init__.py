"""Judging: what LLM judges say of a run, asked, validated and aggregated.

`judge` asks about a run, `ask_vote` whether an answer is correct; a reply outside the contract is asked for again,
never trusted. `aggregate` is the arithmetic alone.

Others use: asking, correctness, prompt, verdicts
"""
