"""Everything a case may name, built in or added by a plugin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any, TypeVar

from pytest_agentbench.checks.base import CheckFunction
from pytest_agentbench.checks.run import BUILTIN_CHECKS
from pytest_agentbench.config.base import Known
from pytest_agentbench.engine.grading import Grader
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.judging.panel import JudgeBackend
from pytest_agentbench.metrics.builtin import METRICS
from pytest_agentbench.metrics.registry import Metric
from pytest_agentbench.models.client import Provider
from pytest_agentbench.runners.base import Runner
from pytest_agentbench.runners.registry import BUILTIN_RUNNERS
from pytest_agentbench.tools.base import Search, Tool
from pytest_agentbench.tools.toolbox import BUILTIN_TOOLS
from pytest_agentbench.tools.web_tools import configured_search

T = TypeVar("T")


@dataclass(frozen=True)
class Registry:
    """What there is by the names that YAML uses, and the web search, None where none is set up."""

    runners: Mapping[str, Runner]
    tools: Mapping[str, Tool]
    checks: Mapping[str, CheckFunction]
    metrics: Mapping[str, Metric]
    judges: Mapping[str, JudgeBackend]
    providers: Mapping[str, Provider]
    graders: Mapping[str, Grader]
    search: Search | None

    @cached_property
    def added(self) -> Mapping[str, Mapping[str, Any]]:
        """Of each kind, those that are not ours: a version of this package changes what ours mean by its schema."""
        kinds: dict[str, Mapping[str, Any]] = {
            "runner": self.runners,
            "check": self.checks,
            "metric": self.metrics,
            "judge": self.judges,
            "grader": self.graders,
            "model provider": self.providers,
        }
        return {
            kind: {name: thing for name, thing in things.items() if not is_ours(thing)}
            for kind, things in kinds.items()
        }

    @cached_property
    def known(self) -> Known:
        """The names, for the loader of case files."""
        return Known(
            runners=frozenset(self.runners),
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
        metrics=_merge("metric", METRICS, hook.pytest_agentbench_metrics() if hook else ()),
        judges=_merge("judge type", {}, hook.pytest_agentbench_judges() if hook else ()),
        providers=_merge("model provider", {}, hook.pytest_agentbench_model_providers() if hook else ()),
        graders=_merge("grader", {}, hook.pytest_agentbench_graders() if hook else ()),
        search=(hook.pytest_agentbench_web_search() if hook else None) or configured_search(os.environ),
    )


def is_ours(thing: Any) -> bool:
    """Whether it is this package's code, whatever it calls itself."""
    module = thing.__globals__.get("__name__") if isinstance(thing, FunctionType) else type(thing).__module__
    return str(module).partition(".")[0] == "pytest_agentbench"


def _merge(what: str, builtin: Mapping[str, T], added: Iterable[Mapping[str, T]]) -> dict[str, T]:
    merged = dict(builtin)
    for mapping in added:
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"a plugin's hook for {what}s returned {type(mapping).__name__}, expected a mapping")
        for name, thing in mapping.items():
            if name in merged:
                raise ConfigError(f"a plugin adds the {what} {name!r}, which exists already; choose another name")
            if thing is None:
                raise ConfigError(f"a plugin adds the {what} {name!r} as None")
            merged[name] = thing
    return merged
