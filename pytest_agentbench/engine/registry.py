"""Everything a case may name, built in or added by a plugin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any, TypeVar

from pytest_agentbench.checks.base import CheckKind
from pytest_agentbench.checks.run import BUILTIN_CHECKS
from pytest_agentbench.config.base import Known
from pytest_agentbench.engine.grading import Grader
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import WithExtensions, extension_names
from pytest_agentbench.judging.panel import JudgeBackend
from pytest_agentbench.metrics.builtin import METRICS
from pytest_agentbench.metrics.registry import Metric
from pytest_agentbench.models.client import Provider
from pytest_agentbench.runners.base import Runner
from pytest_agentbench.runners.registry import BUILTIN_RUNNERS
from pytest_agentbench.tools.base import Search, Tool
from pytest_agentbench.tools.toolbox import BUILTIN_TOOLS
from pytest_agentbench.tools.web_tools import find_search

T = TypeVar("T")


@dataclass(frozen=True)
class Registry:
    """What there is by the names that YAML uses, and the web search, None where none is set up."""

    runners: Mapping[str, Runner]
    tools: Mapping[str, Tool]
    checks: Mapping[str, CheckKind]
    metrics: Mapping[str, Metric]
    judges: Mapping[str, JudgeBackend]
    providers: Mapping[str, Provider]
    graders: Mapping[str, Grader]
    search: Search | None

    def added(self, kind: str, names: Iterable[str | None]) -> dict[str, Any]:
        """Return those of these names that are not ours, whose schema version does not tell that they changed.

        `kind` is `runner`, `check`, `metric`, `judge`, `grader` or `model provider`.
        """
        things = self._kinds[kind]
        found = {name: things[name] for name in names if name is not None and name in things}
        return {name: thing for name, thing in found.items() if not is_ours(thing)}

    @cached_property
    def _kinds(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "runner": self.runners,
            "check": self.checks,
            "metric": self.metrics,
            "judge": self.judges,
            "grader": self.graders,
            "model provider": self.providers,
        }

    @cached_property
    def known(self) -> Known:
        """Return the names, for the loader of case files."""
        return Known(
            runners=frozenset(self.runners),
            find_runner=self.runners.get,
            find_check=self.checks.get,
            tools=frozenset(self.tools),
            checks=frozenset(self.checks),
            metrics=frozenset(self.metrics),
        )


def build_registry(hook: Any = None) -> Registry:
    """Return the built-in names and those of `hook` (pluggy's, None: built-ins only). Raises ConfigError for a taken
    name.
    """
    return Registry(
        runners=_merge("runner", "runner", BUILTIN_RUNNERS, hook.pytest_agentbench_runners() if hook else ()),
        tools=_merge("tool", "tool", BUILTIN_TOOLS, hook.pytest_agentbench_tools() if hook else ()),
        checks=_merge("check kind", "check", BUILTIN_CHECKS, hook.pytest_agentbench_checks() if hook else ()),
        metrics=_merge("metric", "metric", METRICS, hook.pytest_agentbench_metrics() if hook else ()),
        judges=_merge("judge type", "judge", {}, hook.pytest_agentbench_judges() if hook else ()),
        providers=_merge(
            "model provider", "model_provider", {}, hook.pytest_agentbench_model_providers() if hook else ()
        ),
        # only the session's: a pack's grader is found by the part that a case carries (grading.graders_of)
        graders=_named("grader", "grader", {}, hook.pytest_agentbench_graders() if hook else ()),
        search=(hook.pytest_agentbench_web_search() if hook else None) or find_search(os.environ),
    )


def is_ours(thing: Any) -> bool:
    """Return whether it is this package's code, whatever it calls itself."""
    if isinstance(thing, FunctionType):
        module = thing.__globals__.get("__name__")
    else:
        module = thing.__module__ if isinstance(thing, type) else type(thing).__module__
    return str(module).partition(".")[0] == "pytest_agentbench"


def _merge(what: str, seam: str, builtin: Mapping[str, T], added: Iterable[Mapping[str, T]]) -> Mapping[str, T]:
    """Return the built-in things, those of packs and those that a session's plugins add; none replaces another."""
    return WithExtensions(seam, _named(what, seam, builtin, added))


def _named(what: str, seam: str, builtin: Mapping[str, T], added: Iterable[Mapping[str, T]]) -> dict[str, T]:
    if taken := builtin.keys() & extension_names(seam):
        raise ConfigError(f"a pack adds the {what} {min(taken)!r}, which exists already; choose another name")
    merged, packs = dict(builtin), extension_names(seam)
    for mapping in added:
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"a plugin's hook for {what}s returned {type(mapping).__name__}, expected a mapping")
        for name, thing in mapping.items():
            if name in merged or name in packs:
                raise ConfigError(f"a plugin adds the {what} {name!r}, which exists already; choose another name")
            if thing is None:
                raise ConfigError(f"a plugin adds the {what} {name!r} as None")
            merged[name] = thing
    return merged
