"""Run -> check results: deterministic checks, one small function a kind, and the case author's Python hooks."""

from pytest_agentbench.checks.base import CheckContext, CheckFunction, Unmet, Verdict, excerpt, verdict
from pytest_agentbench.checks.hooks import require_hooks
from pytest_agentbench.checks.run import BUILTIN_CHECKS, DEFAULT_DIMENSIONS, run_checks

__all__ = [
    "BUILTIN_CHECKS",
    "DEFAULT_DIMENSIONS",
    "CheckContext",
    "CheckFunction",
    "Unmet",
    "Verdict",
    "excerpt",
    "require_hooks",
    "run_checks",
    "verdict",
]
