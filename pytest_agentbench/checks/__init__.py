"""Run -> check results: deterministic checks, one small function a kind, and the case author's Python hooks.

Others use: base, hooks, run, verifying.run, verifying.staging, verifying.named_tests
"""
