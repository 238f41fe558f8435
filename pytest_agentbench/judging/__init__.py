"""Judging: ask LLM judges about a run, validate their replies and aggregate their verdicts.

`judge` asks about a run, `ask_vote` whether an answer is correct. An invalid reply is never used: the judge is asked
again. `aggregate` is the arithmetic alone.

Others use: asking, correctness, prompt, verdicts
"""
