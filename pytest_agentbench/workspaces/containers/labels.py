"""The labels of all that a session makes at the daemon, by which the next one knows what a dead one left there."""

from __future__ import annotations

from pytest_agentbench.workspaces.sessions import host_mark

SESSION = "pytest-agentbench.session"
HOST = "pytest-agentbench.host"
RUN = "pytest-agentbench.run"
SERVICE = "pytest-agentbench.service"

MADE_HERE = {"pytest-agentbench": "1"}
"""What is kept for later sessions."""


def labels(session: str, run: str) -> dict[str, str]:
    """Of what ends with a run. `session` is the session's folder, by which it is known to live."""
    return {SESSION: session, HOST: host_mark(), RUN: run}
