"""What agents raise, as pytest can raise it again in the item's setup."""

from __future__ import annotations

from types import TracebackType


def as_raised(error: BaseException) -> BaseException:
    """The error with the agent's frames only; what would end the loop or pytest is the cause of a RuntimeError."""
    error = error.with_traceback(_agent_frames(error.__traceback__))
    if not isinstance(error, StopIteration | KeyboardInterrupt | SystemExit | GeneratorExit):
        return error
    wrapped = RuntimeError(f"the agent raised {error!r}")
    wrapped.__cause__ = error
    return wrapped


def _agent_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is neither ours nor asyncio's; the whole one where all are."""
    kept = trace
    while kept is not None and kept.tb_frame.f_globals.get("__name__", "").startswith(
        ("pytest_agentbench.", "asyncio.")
    ):
        kept = kept.tb_next
    return kept or trace
