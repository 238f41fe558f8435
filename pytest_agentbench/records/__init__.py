"""The frozen records every room speaks: Case, Model, RunArtifact, Evaluation and their parts.

Others use: base, case, check_specs, conversations, evaluation, forecast, gold, run, run_checks, skill_uses, skills,
text_checks
"""
