"""From a case file to how its cases run: config root, profiles, suite, models, judges."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_agentbench.config import ConfigRoot, EvaluationProfile, RunProfile, SuiteFile, find_root
from pytest_agentbench.engine import Plan, Registry, build_registry, overrides_runner
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models import missing_key, resolve_model
from pytest_agentbench.options import Settings
from pytest_agentbench.records import Case, Model
from pytest_agentbench.sources import IndexedCase, index_cases, load_case
from pytest_agentbench.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN_AGENT = "agent"
"""The model id in item ids where the user's own agent runs and no model is named."""
NO_MODEL = "none"
CHAT_JUDGE = "llm_probe"
"""The type of judges that are chat models."""


@dataclass
class Planner:
    """Works out each config root's plans once, and where the user's own agent runs.

    `problem` is why no case of the session can run.
    """

    settings: Settings
    registry: Registry
    store: Store
    rootdir: Path
    plugins: pytest.PytestPluginManager
    problem: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _cases: dict[Path, dict[str, IndexedCase]] = field(default_factory=dict)
    _plans: dict[tuple[Path, bool], list[Plan] | None] = field(default_factory=dict)
    _files: dict[Path, dict[str, Path]] = field(default_factory=dict)
    _own_agents: dict[Path, bool] = field(default_factory=dict)

    def root(self, file: Path) -> ConfigRoot:
        """The config root of a case file."""
        return find_root(file, self.rootdir, self.settings.configs)

    def has_own_agent(self, file: Path) -> bool:
        """Whether a conftest above the file, or a plugin, overrides `agentbench_runner`.

        To be asked when the file is collected: pytest loads the conftests above it right before, and no earlier.
        """
        return self._overridden(file.parent)

    def _overridden(self, folder: Path) -> bool:
        if folder not in self._own_agents:
            here = overrides_runner(self.plugins.get_plugin(str(folder / "conftest.py")))
            above = _everywhere(self.plugins) if folder == folder.parent else self._overridden(folder.parent)
            self._own_agents[folder] = here or above
        return self._own_agents[folder]

    def plans(self, root: ConfigRoot, *, own_agent: bool) -> list[Plan]:
        """One plan per model. Raises ConfigError at the first call and gives none at the next: it is said once."""
        key = (root.path, own_agent)
        if key not in self._plans:
            self._plans[key] = None
            self._plans[key] = self._make(root, own_agent)
        return self._plans[key] or []

    def load(self, path: Path, plans: list[Plan]) -> Case:
        """The case of a `test.yaml`, whose paths may go where the plans' run profile allows. Raises ConfigError.

        Without plans the profile has failed already, so nobody knows what it allows.
        """
        outside = not plans or plans[0].run_profile.allow_outside_paths
        return load_case(path, self.root(path), self.registry.known, allow_outside=outside)

    def cases(self, root: ConfigRoot) -> dict[str, IndexedCase]:
        """Every case below the root by its id, looked up once."""
        if root.path not in self._cases:
            self._cases[root.path] = {case.case_id: case for case in index_cases(root)}
        return self._cases[root.path]

    def files(self, root: ConfigRoot) -> dict[str, Path]:
        """Which test.yaml has the case of an id, of those collected so far: ids are unique below a root."""
        return self._files.setdefault(root.path, {})

    def repetitions(self, plan: Plan) -> int:
        """How often each case runs on the plan's model."""
        return self.settings.repetitions or plan.run_profile.execution_policy.run_repetitions

    def _make(self, root: ConfigRoot, own_agent: bool) -> list[Plan]:
        settings = self.settings
        suite = root.suite(settings.suite) if settings.suite else None
        run_profile = root.run_profile(settings.run_profile) if settings.run_profile else RunProfile.default()
        evaluation = (
            root.evaluation_profile(settings.evaluation_profile, self.registry.known)
            if settings.evaluation_profile
            else EvaluationProfile.default()
        )
        _refuse_idle(run_profile, _IDLE_RUN_FIELDS)
        _refuse_idle(evaluation, _IDLE_EVALUATION_FIELDS)
        ids = settings.models or tuple(model.model_id for model in (suite.models if suite else ()))
        models: list[Model | None] = [
            resolve_model(model_id, models=root.models(), suite=suite, environ=self.environ) for model_id in ids
        ]
        return [self._plan(root, model, own_agent, suite, run_profile, evaluation) for model in models or [None]]

    def _plan(
        self,
        root: ConfigRoot,
        model: Model | None,
        own_agent: bool,
        suite: SuiteFile | None,
        run_profile: RunProfile,
        evaluation: EvaluationProfile,
    ) -> Plan:
        model_id = model.model_id if model else OWN_AGENT if own_agent else NO_MODEL
        suite_id = suite.suite_id if suite else None
        judges = self._judges(root, model, evaluation)
        return Plan(
            root=root,
            model=model,
            model_id=model_id,
            run_profile=run_profile,
            evaluation_profile=evaluation,
            judges=judges,
            lane=self.store.lane(suite_id, run_profile, evaluation, model_id, tuple(judges.values())),
            suite_id=suite_id,
            own_agent=own_agent,
        )

    def _judges(self, root: ConfigRoot, subject: Model | None, evaluation: EvaluationProfile) -> dict[str, Model]:
        """A subject that names its own judge (`demo` does) is never judged by another, paid one."""
        judges = {}
        used = {run.judge_id for run in evaluation.judge_runs}
        for judge in evaluation.judges:
            if judge.judge_id not in used or judge.type in self.registry.judges:
                continue
            if judge.type != CHAT_JUDGE:
                known = ", ".join(sorted({CHAT_JUDGE, *self.registry.judges}))
                raise ConfigError(
                    f"{evaluation.evaluation_profile_id}: judge {judge.judge_id!r}: found type "
                    f"{judge.type!r}, expected one of {known}"
                )
            name = (subject.judge if subject else None) or judge.model
            if name is None:
                raise ConfigError(
                    f"{evaluation.evaluation_profile_id}: judge {judge.judge_id!r}: found no model, expected `model:`"
                )
            judges[judge.judge_id] = resolve_model(name, models=root.models(), environ=self.environ)
        return judges

    def missing_keys(self, plans: Iterable[Plan]) -> list[str]:
        """A sentence for each model that the plans ask and whose key is not set."""
        models: dict[str, Model] = {}
        for plan in plans:
            if plan.model is not None and not plan.own_agent:
                models[plan.model.model_id] = plan.model
            models.update({model.model_id: model for model in plan.judges.values()})
        sentences = (missing_key(model, self.environ) for model in models.values())
        return [sentence for sentence in sentences if sentence]


_IDLE_RUN_FIELDS = frozenset({"mcp_servers", "planner", "task_text", "reuse_unsuccessful"})
_IDLE_EVALUATION_FIELDS = frozenset({"compat"})


def _refuse_idle(profile: RunProfile | EvaluationProfile, fields: frozenset[str]) -> None:
    """What this version would read and ignore is an error: nobody should rely on it."""
    if idle := sorted(fields & profile.model_fields_set):
        raise ConfigError(
            f"{profile.title!r}: {', '.join(idle)} is not supported yet: it would have no effect; remove it"
        )


def prepare(config: pytest.Config, settings: Settings) -> Planner:
    """The session's planner. A name that a plugin adds though it is taken is its `problem`."""
    try:
        registry, problem = build_registry(config.hook), None
    except ConfigError as error:
        registry, problem = build_registry(), str(error)
    return Planner(
        settings,
        registry,
        Store(settings.output),
        config.rootpath,
        config.pluginmanager,
        problem,
    )


def _everywhere(plugins: pytest.PytestPluginManager) -> bool:
    """Whether a plugin overrides the runner: of plugins' fixtures, pytest takes the one that was registered last."""
    others = (plugin for name, plugin in plugins.list_name_plugin() if not name.endswith("conftest.py"))
    *_, last = filter(overrides_runner, others)  # ours is one of them
    return getattr(last, "__name__", "") != "pytest_agentbench.plugin"
