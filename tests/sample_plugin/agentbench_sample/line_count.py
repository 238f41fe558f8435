"""Check: how many lines an answer has. Its fields are validated where a case is loaded, and editors complete them.

deterministic_checks:
  - {check_id: short, declarative: {kind: line_count, lines: 3, or_fewer: true}}
"""

from __future__ import annotations

from typing import Literal

from pytest_agentbench import CheckContext, CheckSpec, Unmet, Verdict, excerpt


class LineCount(CheckSpec):
    """The answer has so many lines."""

    kind: Literal["line_count"]
    lines: int
    """How many lines it is to have."""
    or_fewer: bool = False
    """Fewer are as good."""

    def check(self, context: CheckContext) -> Verdict:
        """Return whether the final answer has that many lines; without an answer the check failed."""
        answer = context.artifact.final_output
        if answer is None:
            raise Unmet("the run gave no answer")
        found = len(answer.splitlines())
        passed = found <= self.lines if self.or_fewer else found == self.lines
        return Verdict(
            "passed" if passed else "failed",
            f"the answer has {found} lines",
            expected=f"at most {self.lines}" if self.or_fewer else str(self.lines),
            actual=excerpt(answer),
        )
