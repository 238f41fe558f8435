"""What keeps cases from being run, asked of the code that asks it in a session before anything is paid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

from pytest_agentbench.cli.additions import AGENT, SERVERS
from pytest_agentbench.config.base import YAML_SUFFIXES, ConfigFile
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.evaluation import require_decision
from pytest_agentbench.engine.servers import list_servers
from pytest_agentbench.engine.services import Registry
from pytest_agentbench.engine.subject import refuse_floating_images, require_input
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import case_metric_problems
from pytest_agentbench.records.case import Case
from pytest_agentbench.runners.kinds import RunnerKind
from pytest_agentbench.sources.case_source import OpenedSource, SourceCase
from pytest_agentbench.workspaces.template import template_digest

P = TypeVar("P", bound=ConfigFile)


class Obstacle(NamedTuple):
    """A reason why no session runs a case. `unless` names additions of conftest files that could take it away."""

    message: str
    unless: frozenset[str] = frozenset()


class Obstacles:
    """The obstacles of a config root's cases: what its sessions say against them under any profile there is.

    With a profile that is named, what they say under that one.
    """

    def __init__(self, root: ConfigRoot, registry: Registry, run_profile: str | None, evaluation: str | None) -> None:
        self._root, self._registry = root, registry
        self._run_profile, self._evaluation = run_profile, evaluation

    def find(self, case: Case, opened: OpenedSource, row: SourceCase) -> Iterator[Obstacle]:
        """Yield what keeps the case of a row from being run."""
        runner = self._registry.runners.get(case.runner.type)
        own_tools = isinstance(runner, RunnerKind) and runner.own_tools
        if any(part.is_answered for part in case.case_parts):
            runner = None  # nothing is run
        elif runner is not None:
            if said := _refusal(lambda: require_input(runner, case.runner.type, case)):
                yield Obstacle(said, frozenset({AGENT}))
            if (folder := case.workspace) is not None and (said := _refusal(partial(template_digest, folder))):
                yield Obstacle(f"{case.path}:{case.line}:1: workspace: {said}")
        offers = runner is not None and not own_tools
        if offers and (said := _under_all(self.run_profiles, lambda each: list_servers(self._root, each, case))):
            yield Obstacle(said, frozenset({SERVERS}))
        if said := _under_all(self.run_profiles, lambda profile: refuse_floating_images(case, profile)):
            yield Obstacle(said)
        if said := _under_all(self.evaluation_profiles, lambda profile: require_decision(case, profile)):
            yield Obstacle(said, frozenset({"graders"}))
        metrics = self._registry.metrics
        if row.own_metrics and (problems := case_metric_problems(case, None, metrics)):
            yield Obstacle(str(opened.explain(row, problems)))

    @cached_property
    def run_profiles(self) -> Sequence[RunProfile]:
        """Return the run profile that is named, else the default and all of the root's."""
        return self._profiles("run_profiles", self._run_profile, RunProfile.default(), self._root.run_profile)

    @cached_property
    def evaluation_profiles(self) -> Sequence[EvaluationProfile]:
        """Return the same of evaluation profiles."""
        default, load = EvaluationProfile.default(), self._root.evaluation_profile
        return self._profiles("evaluation_profiles", self._evaluation, default, load)

    def _profiles(self, folder: str, name: str | None, default: P, load: Callable[[str], P]) -> Sequence[P]:
        if name is not None:
            return [load(name)]
        found = [default]
        for path in sorted(each for each in (self._root.path / folder).glob("*.*") if each.suffix in YAML_SUFFIXES):
            try:
                found.append(load(str(path)))
            except ConfigError:
                continue  # it is checked as a file of its own
        return found


def _refusal(ask: Callable[[], object]) -> str | None:
    try:
        ask()
    except ConfigError as error:
        return str(error)
    return None


def _under_all(profiles: Sequence[P], ask: Callable[[P], object]) -> str | None:
    """Return what is said under the first profile, None where nothing is under any."""
    first: str | None = None
    for profile in profiles:
        said = _refusal(lambda profile=profile: ask(profile))  # type: ignore[misc]
        if said is None:
            return None
        first = first or said
    return first
