"""Folders of `claude plugin eval` as cases: `evals/CASE/` with a prompt, and graders that decide the run.

Others use: nothing
"""
