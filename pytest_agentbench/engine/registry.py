"""Everything a case may name, built in or added by a plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_agentbench.checks import BUILTIN_CHECKS, CheckFunction
from pytest_agentbench.config import Known
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics import BUILTIN_METRICS, Metric
from pytest_agentbench.runners import BUILTIN_RUNNERS, Runner
from pytest_agentbench.tools import BUILTIN_TOOLS, Tool

T = TypeVar("T")

PLANNED_RUNNERS = frozenset({"openclaw"})
"""Runners of the reference that are valid in a case file but cannot run here: such a case is skipped."""


@dataclass(frozen=True)
class Registry:
    """Runners, tools, checks and metrics by the names that YAML uses."""

    runners: Mapping[str, Runner]
    tools: Mapping[str, Tool]
    checks: Mapping[str, CheckFunction]
    metrics: Mapping[str, Metric]

    @property
    def known(self) -> Known:
        """The names, for the loader of case files."""
        return Known(
            runners=frozenset(self.runners) | PLANNED_RUNNERS,
            tools=frozenset(self.tools),
            checks=frozenset(self.checks),
            metrics=frozenset(self.metrics),
        )


def build_registry(hook: Any = None) -> Registry:
    """The built-in names and those of `hook` (pluggy's, None: built-ins only). Raises ConfigError for a taken name."""
    return Registry(
        runners=_merge("runner", BUILTIN_RUNNERS, hook.pytest_agentbench_runners() if hook else ()),
        tools=_merge("tool", BUILTIN_TOOLS, hook.pytest_agentbench_tools() if hook else ()),
        checks=_merge("check kind", BUILTIN_CHECKS, hook.pytest_agentbench_checks() if hook else ()),
        metrics=_merge("metric", BUILTIN_METRICS, hook.pytest_agentbench_metrics() if hook else ()),
    )


def _merge(what: str, builtin: Mapping[str, T], added: Iterable[Mapping[str, T]]) -> dict[str, T]:
    merged = dict(builtin)
    for mapping in added:
        for name, thing in mapping.items():
            if name in merged:
                raise ConfigError(f"a plugin adds the {what} {name!r}, which exists already; choose another name")
            merged[name] = thing
    return merged
