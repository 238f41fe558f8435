"""From a case file to how its cases run: config root, profiles, suite, models, judges."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_agentbench.collection.scoring import (
    Predicted,
    metric_judges,
    require_for_case,
    require_for_dataset,
    require_for_profile,
    require_for_row,
)
from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots, Trust, decide_roots, trust_of
from pytest_agentbench.config.suite import SuiteFile
from pytest_agentbench.engine.driver import overrides_runner
from pytest_agentbench.engine.job import CHAT_JUDGE, Plan, judge_of
from pytest_agentbench.engine.registry import Registry, build_registry
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.routes import missing_key, resolve_model
from pytest_agentbench.options import Settings
from pytest_agentbench.packs.research.cases import Reports, open_reports
from pytest_agentbench.packs.research.records import JUDGED
from pytest_agentbench.packs.research.session import StoredReports
from pytest_agentbench.records.case import Case, MetricSpec, Model
from pytest_agentbench.sources.dataset import Dataset, open_dataset
from pytest_agentbench.sources.discovery import IndexedCase, has_cases, index_cases
from pytest_agentbench.sources.rows import BadRow, Row, read_rows
from pytest_agentbench.sources.test_yaml import load_case
from pytest_agentbench.store.artifacts import Store
from pytest_agentbench.store.documents import Signer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_agentbench.runners.predictions import Predictions

TRUST = "agentbench_trust"
"""What an xdist worker is told of the folders that its session trusts."""
TRUSTED = pytest.StashKey[Trust]()
OWN_AGENT = "agent"
"""The model id in item ids where the user's own agent runs and no model is named."""
NO_MODEL = "none"


@dataclass(frozen=True)
class _Session:
    """What the session's options name below one config root; `ids` are models."""

    suite: SuiteFile | None
    run_profile: RunProfile
    evaluation: EvaluationProfile
    ids: tuple[str, ...]


@dataclass
class Planner:
    """Works out each config root's plans once, and where the user's own agent runs.

    `problem` is why no case of the session can run. `predicted` are the predictions that are the session's subject.
    `left_out` says which of the session's models have no stored reports. `research_subjects` are the files of reports,
    or of the queries that they are written on, selected or not.
    """

    settings: Settings
    registry: Registry
    store: Store
    rootdir: Path
    roots: SessionRoots
    plugins: pytest.PytestPluginManager
    problem: str | None = None
    predicted: Predicted | None = None
    left_out: list[str] = field(default_factory=list)
    research_subjects: list[Path] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _cases: dict[ConfigRoot, dict[str, IndexedCase]] = field(default_factory=dict)
    _plans: dict[tuple[ConfigRoot, bool], list[Plan] | None] = field(default_factory=dict)
    _stored: dict[ConfigRoot, _Session | None] = field(default_factory=dict)
    _files: dict[ConfigRoot, dict[str, Path]] = field(default_factory=dict)
    _own_agents: dict[Path, bool] = field(default_factory=dict)

    def root(self, file: Path) -> ConfigRoot:
        """The config root of a case file."""
        return self.roots.of(file)

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
        own_agent = own_agent and self.predicted is None
        key = (root, own_agent)
        if key not in self._plans:
            self._plans[key] = None
            self._plans[key] = self._make(root, own_agent)
        return self._plans[key] or []

    def stored_plans(self, reports: Reports) -> list[Plan]:
        """One plan for each file of stored reports, of the models that the session names, or all. Raises like `plans`.

        Predictions are a session's only subject, so none where there are some.
        """
        root = self.root(reports.path)
        if self.predicted is not None:
            return []
        if root not in self._stored:
            self._stored[root] = None
            self._stored[root] = self._session(root)
        session = self._stored[root]
        if session is None:
            return []
        wanted = [path for path in reports.stored if not session.ids or path.stem in session.ids]
        stems = [path.stem for path in reports.stored]
        if missing := [name for name in session.ids if name not in stems]:
            self.left_out.append(
                f"{reports.path}: found no stored report of {', '.join(missing)}; its files are of {', '.join(stems)}"
            )
        return [self._plan(root, None, False, session, StoredReports(path)) for path in wanted]

    def open_reports(self, path: Path) -> Reports:
        """The reports.yaml at `path`. Raises ConfigError."""
        root = self.root(path)
        outside = False
        if self.settings.run_profile:
            outside = root.run_profile(self.settings.run_profile).allow_outside_paths
        reports = open_reports(path, root, self.registry.known, allow_outside=outside)
        self.research_subjects += reports.subjects
        return reports

    def research_judges(self, reports: Reports, plans: Sequence[Plan]) -> list[tuple[Model, ...]]:
        """For each plan the model that judges the reports, and those that the profile's metrics ask.

        Raises ConfigError where a part asks a judge and there is none.
        """
        asked = self.metric_judges(plans, (), str(reports.path))
        if not any(part in JUDGED for part in reports.scoring.parts):
            return asked
        try:
            return [(plan.research_judge(), *models) for plan, models in zip(plans, asked, strict=True)]
        except ConfigError as error:
            raise ConfigError(f"{reports.path}:1:1: {error}") from None

    def load(self, path: Path, plans: list[Plan]) -> Case:
        """The case of a `test.yaml`, whose paths may go where the plans' run profile allows. Raises ConfigError.

        Without plans the profile has failed already, so nobody knows what it allows.
        """
        outside = not plans or plans[0].run_profile.allow_outside_paths
        case = load_case(path, self.root(path), self.registry.known, allow_outside=outside)
        for plan in plans[:1]:
            require_for_case(case, plan.evaluation_profile, self.registry.metrics)
        return case

    def open_dataset(self, path: Path, plans: list[Plan], metrics: tuple[MetricSpec, ...] | None = None) -> Dataset:
        """The dataset of a file; code that reads it is trusted like a conftest.py. Raises ConfigError."""
        root, known = self.root(path), self.registry.known
        profile = plans[0].run_profile if plans else None
        outside = profile is None or profile.allow_outside_paths
        return open_dataset(path, root, known, metrics, run_code=True, allow_outside=outside, run_profile=profile)

    def own_judges(self, row: Row, case: Callable[[], Case], plans: list[Plan]) -> list[tuple[Model, ...]] | None:
        """For each plan the models that a row's own metrics ask; None for a row whose evaluator names no metric.

        Raises ConfigError for metrics that cannot be computed.
        """
        if b"evaluator" not in row.raw or not any(name in row.raw for name in self._metric_names):
            return None
        own = case()
        for plan in plans[:1]:
            require_for_row(own, plan.evaluation_profile, self.registry.metrics)
        return self.metric_judges(plans, own.metrics, f"{row.path}:{row.line}:1")

    @cached_property
    def _metric_names(self) -> tuple[bytes, ...]:
        return tuple(name.encode() for name in self.registry.metrics)

    def rows(self, dataset: Dataset, plans: list[Plan]) -> Iterator[Row | BadRow]:
        """The rows of a dataset, to be read to the end; the session's predictions find theirs. Raises ConfigError."""
        for plan in plans[:1]:
            require_for_dataset(dataset, plan.evaluation_profile, self.registry.metrics)
        rows = read_rows(dataset)
        return rows if self.predicted is None else self.predicted.rows(dataset, rows)

    def answer(self, case: Case) -> None:
        """Lets the session's predictions find the case of a test.yaml. Raises ConfigError."""
        if self.predicted is not None and case.dataset is None:
            self.predicted.case(case.case_id, case.path)

    def cases(self, root: ConfigRoot) -> dict[str, IndexedCase]:
        """Every case below the root by its id, looked up once. A guest's takes no id of the root's own."""
        if root not in self._cases:
            found = [*index_cases(root, self.roots, run_code=True)]
            found.sort(key=lambda case: self.root(case.path) is root)
            self._cases[root] = {case.case_id: case for case in found}
        return self._cases[root]

    def files(self, root: ConfigRoot) -> dict[str, Path]:
        """Which test.yaml has the case of an id, of those collected so far: ids are unique in a root, guests apart."""
        return self._files.setdefault(root, {})

    def claim_name(self, name: str, file: Path, root: ConfigRoot) -> None:
        """Case ids of a dataset or of reports begin with its name, so no other may have it. Raises ConfigError."""
        first = self.files(root).setdefault(f"{name}.", file)  # no case id ends in a dot
        if first != file:
            raise ConfigError(f"{file}:1:1: name: found {name!r}, which {first} has too; give it another name")

    def repetitions(self, plan: Plan) -> int:
        """How often each case runs on the plan's model: as often as asked, else as there are predictions for."""
        policy = plan.run_profile.execution_policy
        if isinstance(plan.predictions, StoredReports):
            return plan.predictions.samples
        if plan.predictions is not None and "run_repetitions" not in policy.model_fields_set:
            return self.settings.repetitions or plan.predictions.samples
        return self.settings.repetitions or policy.run_repetitions

    def _session(self, root: ConfigRoot) -> _Session:
        settings = self.settings
        suite = root.suite(settings.suite) if settings.suite else None
        run_profile = root.run_profile(settings.run_profile) if settings.run_profile else RunProfile.default()
        ids = settings.models or tuple(model.model_id for model in (suite.models if suite else ()))
        self.store.redactor.know(filter(None, (entry.api_key_env for entry in root.models().models)))
        return _Session(suite, run_profile, self._evaluation_profile(root), () if self.predicted is not None else ids)

    def _make(self, root: ConfigRoot, own_agent: bool) -> list[Plan]:
        settings, session = self.settings, self._session(root)
        models: list[Model | None] = [
            resolve_model(model_id, models=root.models(), suite=session.suite, environ=self.environ)
            for model_id in session.ids
        ]
        keys = [model.api_key_env for model in models if model is not None]  # a suite may name others
        self.store.redactor.know(filter(None, keys))
        predictions = self.predicted.predictions if self.predicted is not None else None
        plans = [self._plan(root, model, own_agent, session, predictions) for model in models or [None]]
        self.metric_judges(plans, (), session.evaluation.evaluation_profile_id)
        if settings.metric is not None:
            asked = MetricSpec(name=settings.metric[0], threshold=settings.metric[1])
            if asked.name not in self.registry.metrics:
                hint = suggest(asked.name, self.registry.metrics)
                raise ConfigError(f"--agentbench-metric: unknown metric {asked.name!r}{hint}")
            self.metric_judges(plans, [asked], "--agentbench-metric")
        return plans

    def _evaluation_profile(self, root: ConfigRoot) -> EvaluationProfile:
        name = self.settings.evaluation_profile
        if name is None:
            return EvaluationProfile.default()
        profile = root.evaluation_profile(name, self.registry.known)
        require_for_profile(profile, root.find("evaluation_profiles", name), self.registry.metrics)
        return profile

    def _plan(
        self,
        root: ConfigRoot,
        model: Model | None,
        own_agent: bool,
        session: _Session,
        predictions: Predictions | StoredReports | None,
    ) -> Plan:
        suite, run_profile, evaluation = session.suite, session.run_profile, session.evaluation
        subject = predictions or model
        model_id = subject.model_id if subject else OWN_AGENT if own_agent else NO_MODEL
        suite_id = suite.suite_id if suite else None
        author = None
        if isinstance(predictions, StoredReports):
            author = resolve_model(model_id, models=root.models(), suite=suite, environ=self.environ)
        judges = self._judges(root, model or author, evaluation)
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
            predictions=predictions,
            author=author,
            suite=suite,
        )

    def _judges(self, root: ConfigRoot, subject: Model | None, evaluation: EvaluationProfile) -> dict[str, Model]:
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
            name = judge_of(subject, judge.model)
            if name is None:
                raise ConfigError(
                    f"{evaluation.evaluation_profile_id}: judge {judge.judge_id!r}: found no model, expected `model:`"
                )
            judges[judge.judge_id] = resolve_model(name, models=root.models(), environ=self.environ)
        return judges

    def metric_judges(
        self, plans: Sequence[Plan], metrics: Iterable[MetricSpec], place: str
    ) -> list[tuple[Model, ...]]:
        """For each plan the models that the metrics of a case ask. Raises ConfigError that names `place`."""
        return metric_judges(plans, metrics, self.registry.metrics, place)

    def missing_keys(self, plans: Iterable[Plan], judges: Iterable[Model] = ()) -> list[str]:
        """A sentence for each model that the plans ask, or metrics as `judges`, and whose key is not set.

        A replay asks nobody.
        """
        models = {model.model_id: model for model in judges}
        for plan in plans:
            if plan.model is not None and not plan.own_agent:
                models[plan.model.model_id] = plan.model
            models.update({model.model_id: model for model in plan.judges.values()})
        asked = (model for model in models.values() if (model.cassettes or self.settings.cassettes) != "replay")
        sentences = (missing_key(model, self.environ) for model in asked)
        return [sentence for sentence in sentences if sentence]


def prepare(config: pytest.Config, settings: Settings) -> Planner:
    """The session's planner. A name that a plugin adds though it is taken is its `problem`."""
    try:
        registry, problem = build_registry(config.hook), None
    except ConfigError as error:
        registry, problem = build_registry(), str(error)
    signer = Signer(os.environ[settings.store_key]) if settings.store_key is not None else None
    return Planner(
        settings,
        registry,
        Store(settings.output, remote=settings.store, signer=signer),
        config.rootpath,
        session_roots(config, settings),
        config.pluginmanager,
        problem,
        Predicted(settings.predictions) if settings.predictions is not None else None,
    )


def session_roots(config: pytest.Config, settings: Settings) -> SessionRoots:
    """Return whose the session's config roots are; a worker trusts what its controller does.

    Raises like session_trust.
    """
    here = config.invocation_params.dir
    asked = [here / argument.partition("::")[0] for argument in config.args]
    told = getattr(config, "workerinput", {}).get(TRUST)
    trust = session_trust(config, settings) if told is None else Trust(*told)
    return decide_roots(asked, config.rootpath, settings.configs, trust=trust, here=here, has_cases=has_cases)


def session_trust(config: pytest.Config, settings: Settings) -> Trust:
    """Return which folders the session trusts. Raises `pytest.UsageError` where the user's grants cannot be read."""
    if TRUSTED not in config.stash:
        try:
            config.stash[TRUSTED] = trust_of(config.rootpath, settings.trust)
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[TRUSTED]


def _everywhere(plugins: pytest.PytestPluginManager) -> bool:
    """Whether a plugin overrides the runner: of plugins' fixtures, pytest takes the one that was registered last."""
    others = (plugin for name, plugin in plugins.list_name_plugin() if not name.endswith("conftest.py"))
    *_, last = filter(overrides_runner, others)  # ours is one of them
    return getattr(last, "__name__", "") != "pytest_agentbench.plugin"
