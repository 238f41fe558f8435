"""Evals of skills, as their authors write them: `evals/evals.json` and sets of queries that should trigger a skill.

Others use: nothing
"""
