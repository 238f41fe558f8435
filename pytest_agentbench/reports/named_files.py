"""Files that the options of a session name: opened or read before its first run, so that a mistake ends it at once.

What reads a file is imported only if an option names one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_agentbench.options import Settings
    from pytest_agentbench.reports.comparison.campaigns import Campaign
    from pytest_agentbench.reports.json_lines import JsonLines
    from pytest_agentbench.reports.policy import SessionPolicy


def open_json_lines(config: pytest.Config, settings: Settings, warn: Callable[[str], None]) -> JsonLines | None:
    """Return the writer of the records, None without the option or in a session that only looks."""
    if settings.json_lines is None or settings.dry_run or config.getoption("collectonly"):
        return None
    from pytest_agentbench.reports.json_lines import JsonLines

    return JsonLines(settings.json_lines, warn)


def read_baseline(config: pytest.Config, settings: Settings) -> Campaign | None:
    """Return the baseline report, read before the session's own report may replace it."""
    if settings.compare is None:
        return None
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.reports.comparison.campaigns import read_campaign

    try:
        return read_campaign(str(settings.compare), config.invocation_params.dir)[0]
    except ConfigError as error:
        raise pytest.UsageError(
            f"--agentbench-compare: {error}; leave the option out until there is a report to compare with"
        ) from None


def read_policy(settings: Settings) -> SessionPolicy | None:
    """Return the policy, None without the option. Raises UsageError."""
    if settings.policy is None:
        return None
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.reports.policy import SessionPolicy

    try:
        return SessionPolicy(settings.policy, settings.suite)
    except ConfigError as error:
        raise pytest.UsageError(f"--agentbench-policy: {error}") from None
