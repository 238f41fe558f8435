"""Run -> check results: deterministic checks, one small function a kind, and the case author's Python hooks.

Others use: base, hooks, run, turns, verifying.named_tests, verifying.run, verifying.staging
"""
