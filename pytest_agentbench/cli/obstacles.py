"""Obstacles that keep every session from running a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from pytest_agentbench.cli.additions import AGENT, SERVERS
from pytest_agentbench.config.base import YAML_SUFFIXES, ConfigFile
from pytest_agentbench.config.case_file import refuses_tools
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.case_rules import CaseRules
from pytest_agentbench.engine.evaluation import require_decision
from pytest_agentbench.engine.run_plan import require_input
from pytest_agentbench.engine.servers import list_servers
from pytest_agentbench.engine.services import Registry
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case
from pytest_agentbench.sources.case_source import OpenedSource, SourceCase
from pytest_agentbench.workspaces.sandboxes.needs import refuse_floating_images
from pytest_agentbench.workspaces.template import template_digest

P = TypeVar("P", bound=ConfigFile)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason why no session runs a case. `unless`: additions of conftest files that could remove the obstacle."""

    message: str
    unless: frozenset[str] = frozenset()


class Obstacles:
    """The obstacles of a config root's cases, found by the functions that a session calls before it pays for a run.

    A case has an obstacle if no run profile, or no evaluation profile, of the root allows it; a named profile
    replaces all others.
    """

    def __init__(
        self, root: ConfigRoot, registry: Registry, rules: CaseRules, run_profile: str | None, evaluation: str | None
    ) -> None:
        self._root, self._registry, self._rules = root, registry, rules
        self._run_profile, self._evaluation = run_profile, evaluation

    def find(self, case: Case, opened: OpenedSource, row: SourceCase) -> Iterator[Obstacle]:
        """Yield the obstacles of a row's case."""
        runner = self._registry.runners.get(case.runner.type)
        takes_none = refuses_tools(runner)
        if any(part.is_answered for part in case.case_parts):
            runner = None  # nothing is run
        elif runner is not None:
            if problem := _refusal(lambda: require_input(runner, case.runner.type, case)):
                yield Obstacle(problem, frozenset({AGENT}))
            if (folder := case.workspace) is not None and (problem := _refusal(partial(template_digest, folder))):
                yield Obstacle(f"{case.path}:{case.line}:1: workspace: {problem}")
        offers_tools = runner is not None and not takes_none
        if offers_tools and (
            problem := _under_all(self.run_profiles, lambda profile: list_servers(self._root, profile, case))
        ):
            yield Obstacle(problem, frozenset({SERVERS}))
        if problem := _under_all(self.run_profiles, lambda profile: refuse_floating_images(case, profile)):
            yield Obstacle(problem)
        if problem := _under_all(self.evaluation_profiles, lambda profile: require_decision(case, profile)):
            yield Obstacle(problem, frozenset({"graders"}))
        if row.own_metrics and (
            problem := _under_all(
                self.evaluation_profiles, lambda profile: self._rules.check_row_metrics(opened, row, case, profile)
            )
        ):
            yield Obstacle(problem)

    def find_in_file(self, opened: OpenedSource) -> Iterator[Obstacle]:
        """Yield the obstacles that a file has for all its rows. Raises ConfigError for a missing named profile."""
        if opened.metrics and (
            problem := _under_all(
                self.evaluation_profiles, lambda profile: self._rules.check_file_metrics(opened, profile)
            )
        ):
            yield Obstacle(problem)

    @cached_property
    def run_profiles(self) -> Sequence[RunProfile]:
        """Return the named run profile, else the default one and all run profiles of the root."""
        return self._profiles("run_profiles", self._run_profile, RunProfile.default(), self._root.run_profile)

    @cached_property
    def evaluation_profiles(self) -> Sequence[EvaluationProfile]:
        """Return the named evaluation profile, else the default one and all evaluation profiles of the root."""
        default, load = EvaluationProfile.default(), self._root.evaluation_profile
        return self._profiles("evaluation_profiles", self._evaluation, default, load)

    def _profiles(self, folder: str, name: str | None, default: P, load: Callable[[str], P]) -> Sequence[P]:
        if name is not None:
            return [load(name)]
        profiles = [default]
        for path in sorted((self._root.path / folder).glob("*.*")):
            if path.suffix not in YAML_SUFFIXES:
                continue
            try:
                profiles.append(load(str(path)))
            except ConfigError:
                continue  # the checker reports it with the file
        return profiles


def _refusal(check: Callable[[], object]) -> str | None:
    """Return the text of the ConfigError that the check raises, None if it raises none."""
    try:
        check()
    except ConfigError as error:
        return str(error)
    return None


def _under_all(profiles: Sequence[P], check: Callable[[P], object]) -> str | None:
    """Return the problem under the first profile, None if the check passes under any profile."""
    first: str | None = None
    for profile in profiles:
        problem = _refusal(partial(check, profile))
        if problem is None:
            return None
        first = first or problem
    return first
