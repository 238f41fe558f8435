"""From a case file to how its cases run: config root, profiles, suite, models, judges."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_agentbench.collection.roots import session_roots
from pytest_agentbench.collection.variants import (
    ChosenVariants,
    VariantOptionError,
    choose_variants,
    find_unknown_variant,
    require_columns,
)
from pytest_agentbench.config.base import ConfigFile, suggest
from pytest_agentbench.config.documents import make_located_error
from pytest_agentbench.config.profiles import EvaluationProfile, JudgeConfig, RunProfile, SuiteFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.engine.case_rules import CaseRules
from pytest_agentbench.engine.driver import overrides_runner
from pytest_agentbench.engine.job import OWN_AGENT, FixtureParameters, Plan, judge_of, name_place, name_subject
from pytest_agentbench.engine.services import Registry, build_registry
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import check_own_names, list_problems
from pytest_agentbench.metrics.registry import Metric, asks_model, metric_problems
from pytest_agentbench.options import Settings
from pytest_agentbench.records.case import Case, MetricSpec, Model
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    IndexedCase,
    OpenedSource,
    SourceCase,
    SourceRequest,
    StoredAnswers,
)
from pytest_agentbench.sources.discovery import index_cases
from pytest_agentbench.store.artifacts import Store
from pytest_agentbench.store.documents import Signer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_agentbench.collection.predicted import Predicted
    from pytest_agentbench.engine.variants import Variant

NO_MODEL = "none"


class _Session(NamedTuple):
    """The suite, profiles, models (`ids`) and variants that the session's options name below one config root."""

    suite: SuiteFile | None
    run_profile: RunProfile
    evaluation: EvaluationProfile
    ids: tuple[str, ...]
    variants: ChosenVariants


@dataclass(eq=False, repr=False)
class Planner:
    """Makes each config root's plans once.

    `problem` is the reason why no case of the session can run. `predicted` are the session's predictions, if they are
    graded in place of runs. `doubts` are warnings about request fields that no known endpoint accepts. `left_out` names
    models without stored answers, `unasked` the plugins of guests that are ignored. `decides_rows` is True once the
    command line's metric decides rows of a file. `subjects` are the files that sources could have graded together,
    selected or not.
    """

    settings: Settings
    registry: Registry
    store: Store
    rootdir: Path
    roots: SessionRoots
    plugins: pytest.PytestPluginManager
    problem: str | None = None
    predicted: Predicted | None = None
    unasked: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    decides_rows: bool = False
    subjects: list[Path] = field(default_factory=list)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _cases: dict[ConfigRoot, dict[str, IndexedCase]] = field(default_factory=dict)
    _plans: dict[tuple[ConfigRoot, bool], list[Plan] | None] = field(default_factory=dict)
    _sessions: dict[ConfigRoot, _Session] = field(default_factory=dict)
    _stored: dict[ConfigRoot, _Session | None] = field(default_factory=dict)
    _of_variants: dict[tuple[object, ...], list[Plan]] = field(default_factory=dict)
    _declared: set[str] = field(default_factory=set)
    _own_variants: dict[str, Variant] = field(default_factory=dict)
    _own_agents: dict[Path, bool] = field(default_factory=dict)
    _arms: dict[tuple[Plan, FixtureParameters], Plan] = field(default_factory=dict)

    @cached_property
    def rules(self) -> CaseRules:
        """Return the rules of the session's cases, with the ids that are claimed so far."""
        return CaseRules(self.registry.metrics)

    def root(self, file: Path) -> ConfigRoot:
        """Return the config root of a case file."""
        return self.roots.of(file)

    def has_own_agent(self, file: Path) -> bool:
        """Return whether a conftest above the file, or a plugin, overrides `agentbench_runner`.

        To be asked when the file is collected: pytest loads the conftests above it right before, and no earlier.
        """
        return self._is_overridden(file.parent)

    def _is_overridden(self, folder: Path) -> bool:
        if folder not in self._own_agents:
            here = overrides_runner(self.plugins.get_plugin(str(folder / "conftest.py")))
            if folder == folder.parent:
                above = _some_plugin_overrides(self.plugins)
            else:
                above = self._is_overridden(folder.parent)
            self._own_agents[folder] = here or above
        return self._own_agents[folder]

    def plans(self, root: ConfigRoot, *, own_agent: bool) -> list[Plan]:
        """Return one plan per model. Raises ConfigError once per root; later calls return []."""
        own_agent = own_agent and self.predicted is None
        key = (root, own_agent)
        if key not in self._plans:
            self._plans[key] = None  # an error is said with the first file and not with each of thousands
            try:
                session = self._sessions[root] = self._read_options(root)
                self._plans[key] = self._make_plans(root, session, own_agent)
            except VariantOptionError as error:
                self.problem = str(error)
        return self._plans[key] or []

    def plans_of(self, opened: OpenedSource, plans: list[Plan], *, own_agent: bool) -> list[Plan]:
        """Return the plans of an opened file: the session's `plans`, or those of the variants that the file declares.

        Raises ConfigError for variants in two places, and for two variants of one name.
        """
        session = self._sessions.get(self.root(opened.path))
        if session is None or self.predicted is not None:
            return plans
        declaring = opened.declaring
        if declaring is None and not own_agent and not self._declares_variants(session):
            declaring = opened.default_variants
        if declaring is None:
            return plans
        if not plans and not session.variants.is_empty:
            return plans  # the error of the session's profiles was reported
        self._declared |= declaring.variants.keys()
        chosen = choose_variants([session.suite, session.run_profile, declaring], self.settings.variants)
        self._require_one_meaning(chosen)
        # Files that declare the same share their plans, as the files of a session do
        key = (self.root(opened.path), own_agent, chosen.reference, *(each.name for each in chosen.variants))
        if key not in self._of_variants:
            session = session._replace(variants=chosen)
            self._of_variants[key] = self._make_plans(self.root(opened.path), session, own_agent)
        return self._of_variants[key]

    def _declares_variants(self, session: _Session) -> bool:
        """Return whether the suite, the run profile or the command line declares variants."""
        files = (session.suite, session.run_profile)
        added = any(option.overrides is not None for option in self.settings.variants)
        return added or any(file is not None and file.variants for file in files)

    def _require_one_meaning(self, chosen: ChosenVariants) -> None:
        """Raise ConfigError for a variant if another file declares a different one of its name."""
        for variant in chosen.variants:
            other = self._own_variants.setdefault(variant.name, variant)
            if other.digest != variant.digest:
                text = f"found another variant of this name in {other.path}, which would share its column; rename one"
                raise ConfigError(variant.locate((), text))

    def find_unknown_variant(self) -> str | None:
        """Return the message about a selected variant that no collected file declares, or None."""
        if not self._sessions:  # no file has cases
            return None
        return find_unknown_variant(self.settings.variants, self._declared)

    def arm(self, plan: Plan, parameters: FixtureParameters) -> Plan:
        """Return the plan for these parameters of the fixtures, the same object for all files."""
        key = plan, parameters
        if key not in self._arms:
            place = name_place(plan.model_id, plan.variant, parameters)
            model_store = self.store.of_model(
                plan.suite_id, plan.run_profile, plan.evaluation_profile, place, tuple(plan.judges.values())
            )
            self._arms[key] = replace(plan, parameters=parameters, model_store=model_store)
        return self._arms[key]

    def own_plans(self, opened: OpenedSource, subjects: Sequence[StoredAnswers]) -> list[Plan]:
        """Return a plan for each of a file's own subjects, limited to the models that the session names.

        Return [] if the session grades predictions, which are its only subject. Raises ConfigError once per root.
        """
        root = self.root(opened.path)
        if self.predicted is not None:
            return []
        if root not in self._stored:
            self._stored[root] = None
            self._stored[root] = self._read_options(root)
        session = self._stored[root]
        if session is None:
            return []
        wanted = [subject for subject in subjects if not session.ids or subject.model_id in session.ids]
        known = [subject.model_id for subject in subjects]
        if missing := [name for name in session.ids if name not in known]:
            self.left_out.append(
                f"{opened.path}: found no stored report of {', '.join(missing)}; its files are of {', '.join(known)}"
            )
        return [self._make_plan(root, None, False, session, subject, is_own=True) for subject in wanted]

    def open(self, source: CaseSource, path: Path, plans: Sequence[Plan]) -> OpenedSource:
        """Return the opened file; code that reads it is trusted like a conftest.py. Raises ConfigError.

        Its paths are limited by the run profile, or not allowed outside of the root if the profile is invalid.
        """
        opened = source.open(path, self._make_request(path, plans, may_lack_plans=source.brings_subjects))
        self.doubts += (placed for placed, _ in opened.field_doubts())
        self.subjects += opened.subjects
        return opened

    def _make_request(self, path: Path, plans: Sequence[Plan], *, may_lack_plans: bool = False) -> SourceRequest:
        root = self.root(path)
        profile = None
        if plans:
            profile = plans[0].run_profile
        elif root in self._sessions:
            profile = self._sessions[root].run_profile
        if may_lack_plans:
            name = self.settings.run_profile
            profile = root.run_profile(name) if name else RunProfile.default()
        return SourceRequest(
            root,
            self.registry.known,
            self._metrics,
            run_code=True,
            allow_outside=profile is None or profile.allow_outside_paths,
            run_profile=profile,
        )

    @cached_property
    def _metrics(self) -> tuple[MetricSpec, ...] | None:
        """Return the command line's metric, which replaces the metrics of files."""
        if self.settings.metric is None:
            return None
        name, threshold = self.settings.metric
        return (MetricSpec(name=name, threshold=threshold),)

    def judges(self, opened: OpenedSource, plans: Sequence[Plan]) -> list[tuple[Model, ...]]:
        """Return for each plan the models that grading a file's cases asks: its judge, and the models of metrics.

        Raises ConfigError if a needed model is missing.
        """
        asked = self.metric_judges(plans, opened.metrics, str(opened.path))
        if not opened.asks_judge:
            return asked
        try:
            return [(plan.first_judge(), *models) for plan, models in zip(plans, asked, strict=True)]
        except ConfigError as error:
            raise ConfigError(f"{opened.path}:1:1: {error}") from None

    def case_of(self, source: CaseSource, path: Path, case_id: str | None, plans: list[Plan]) -> Case:
        """Return the case of that id in a file, None: its only one. The session's predictions find it.

        Raises ConfigError.
        """
        opened = self.open(source, path, plans)
        [row] = [
            row
            for row in self.rows(opened, plans)
            if isinstance(row, SourceCase) and (case_id is None or row.case_id == case_id)
        ]
        if row.own_metrics:
            self.own_judges(opened, row, plans)
        return row.make()

    def own_judges(self, opened: OpenedSource, row: SourceCase, plans: list[Plan]) -> list[tuple[Model, ...]]:
        """Return for each plan the models that a row's own metrics ask.

        Raises ConfigError for metrics that cannot be computed.
        """
        case = row.make()
        for plan in plans[:1]:  # all plans have the session's evaluation profile
            self.rules.check_row_metrics(opened, row, case, plan.evaluation_profile)
        return self.metric_judges(plans, case.metrics, f"{row.path}:{row.line}:1")

    def rows(
        self, opened: OpenedSource, plans: Sequence[Plan], subject: StoredAnswers | None = None
    ) -> Iterator[SourceCase | BadRow]:
        """Yield a file's rows, to be read to the end; the session's predictions find theirs. Raises ConfigError."""
        for plan in plans[:1]:
            self.rules.check_file_metrics(opened, plan.evaluation_profile)
        self.decides_rows = self.decides_rows or (bool(opened.metrics) and opened.metrics == self._metrics)
        rows = opened.rows(subject)
        if self.predicted is not None:
            rows = self.predicted.rows(opened, rows)
        return self._noted(opened, rows)

    def _noted(self, opened: OpenedSource, rows: Iterator[SourceCase | BadRow]) -> Iterator[SourceCase | BadRow]:
        """Yield the rows, and add the notes on them to the doubts."""
        yield from rows
        self.doubts += (note for note in opened.row_notes() if note not in self.doubts)

    def cases(self, root: ConfigRoot) -> dict[str, IndexedCase]:
        """Return every case below the root by its id, looked up once. A guest's takes no id of the root's own."""
        if root not in self._cases:
            found = [*index_cases(root, self.roots, run_code=True)]
            # The root's own last, for of equal ids the last stays
            found.sort(key=lambda case: self.root(case.path) is root)
            self._cases[root] = {case.case_id: case for case in found}
        return self._cases[root]

    def repetitions(self, plan: Plan, own: int = 1) -> int:
        """Return how often a case runs on the plan's model: as often as asked, else as there are predictions for.

        `own` is the case's own number, which a run profile may exceed.
        """
        policy = plan.run_profile.execution_policy
        if plan.stored is not None and plan.predictions is not None:
            return plan.predictions.samples
        if plan.predictions is not None and "run_repetitions" not in policy.model_fields_set:
            return self.settings.repetitions or plan.predictions.samples
        return self.settings.repetitions or max(policy.run_repetitions, own)

    def _read_options(self, root: ConfigRoot) -> _Session:
        settings = self.settings
        suite = root.suite(settings.suite) if settings.suite else None
        run_profile = root.run_profile(settings.run_profile) if settings.run_profile else RunProfile.default()
        ids = settings.models or tuple(model.model_id for model in (suite.models if suite else ()))
        models = root.models()
        self.store.redactor.know(name for entry in models.models for name in entry.variables)
        if run_profile.model_overrides:
            from pytest_agentbench.models.routes import find_unknown_overrides

            if problems := find_unknown_overrides(run_profile, root, {OWN_AGENT, *ids}):
                raise make_located_error(root.find("run_profiles", settings.run_profile or ""), problems)
        evaluation = self._evaluation_profile(root)
        self.doubts += _list_doubts(file for file in (suite, run_profile, evaluation, models) if file is not None)
        if self.predicted is not None:
            return _Session(suite, run_profile, evaluation, (), ChosenVariants())
        self._declared |= {name for file in (suite, run_profile) if file is not None for name in file.variants}
        return _Session(suite, run_profile, evaluation, ids, choose_variants([suite, run_profile], settings.variants))

    def _make_plans(self, root: ConfigRoot, session: _Session, own_agent: bool) -> list[Plan]:
        settings = self.settings
        if session.variants.is_empty:
            return []
        if session.ids:
            from pytest_agentbench.models.routes import list_near_models

            self.left_out += list_near_models(session.ids, root.models(), session.suite)
        models: list[Model | None] = [self._resolve_model(model_id, root, session.suite) for model_id in session.ids]
        # a suite may name others
        self.store.redactor.know(name for model in models if model is not None for name in model.variables)
        predictions = self.predicted.predictions if self.predicted is not None else None
        agents = [] if own_agent else self._agents(root)
        plans = [
            self._make_plan(root, model, own_agent, session, predictions, agent=agent, variant=variant)
            for agent in agents or [None]
            for model in models or [None]
            for variant in session.variants.variants or [None]
        ]
        require_columns(len(plans))
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
        if problems := metric_problems(profile.metrics, profile.compat, self.registry.metrics):
            raise make_located_error(root.find("evaluation_profiles", name), problems)
        return profile

    def _make_plan(
        self,
        root: ConfigRoot,
        model: Model | None,
        own_agent: bool,
        session: _Session,
        predictions: StoredAnswers | None,
        *,
        is_own: bool = False,
        agent: str | None = None,
        variant: Variant | None = None,
    ) -> Plan:
        if variant is not None:
            agent = self._find_agent(root, variant, agent, own_agent=own_agent)
            model = None if model is None else variant.adapt_model(model)
        suite, run_profile, evaluation = session.suite, session.run_profile, session.evaluation
        roles = self._resolve_roles(root, model, run_profile)
        if model is not None and agent is not None:
            model = model.model_copy(update={"model_id": name_subject(agent, model.model_id)})
        subject = predictions or model
        model_id = OWN_AGENT if own_agent else NO_MODEL
        if subject:
            model_id = subject.model_id
        suite_id = suite.suite_id if suite else None
        author = None
        if is_own:
            author = self._resolve_model(model_id, root, suite)
        judges = self._resolve_judges(root, model or author, evaluation)
        return Plan(
            root=root,
            model=model,
            model_id=model_id,
            run_profile=run_profile,
            evaluation_profile=evaluation,
            judges=judges,
            model_store=self.store.of_model(
                suite_id, run_profile, evaluation, name_place(model_id, variant), tuple(judges.values())
            ),
            suite_id=suite_id,
            own_agent=own_agent,
            predictions=predictions,
            author=author,
            suite=suite,
            agent=agent,
            variant=variant,
            variants=session.variants.variants,
            reference=None if variant is None else session.variants.reference,
            roles=roles,
        )

    def _find_agent(self, root: ConfigRoot, variant: Variant, named: str | None, *, own_agent: bool) -> str | None:
        """Return the agent of a column: the variant's, or the one that the session names. Raises ConfigError."""
        agent = variant.fields.agent
        if agent is None:
            return named
        if named is not None:
            raise ConfigError(variant.locate(("agent",), f"found {agent!r} together with --agentbench-agent {named}"))
        if own_agent:
            text = f"found {agent!r}, but the fixture agentbench_runner replaces the agents of all cases"
            raise ConfigError(variant.locate(("agent",), text))
        from pytest_agentbench.runners.agents.adapter import find_adapter

        try:
            find_adapter(agent, root)
        except ConfigError as error:
            raise ConfigError(variant.locate(("agent",), str(error))) from None
        return agent

    def _agents(self, root: ConfigRoot) -> list[str | None]:
        """Return the agents that the session names. Raises ConfigError for one that there is not."""
        if self.settings.agents:
            from pytest_agentbench.runners.agents.adapter import find_adapter

            for name in self.settings.agents:
                try:
                    find_adapter(name, root)
                except ConfigError as error:
                    raise ConfigError(f"--agentbench-agent: {error}") from None
        return [*self.settings.agents]

    def _resolve_model(self, name: str, root: ConfigRoot, suite: SuiteFile | None = None) -> Model:
        # Here, for where a user's own agent runs and no judge, nothing asks how models are reached
        from pytest_agentbench.models.routes import resolve_model

        return resolve_model(name, models=root.models(), suite=suite, environ=self.environ)

    def _resolve_roles(self, root: ConfigRoot, subject: Model | None, profile: RunProfile) -> dict[str, Model]:
        """Return the models of the profile's roles. Raises ConfigError for a model that models.yaml does not have."""
        # A scripted subject plays them itself: an offline session stays offline
        if subject is not None and subject.scripted:
            return dict.fromkeys(profile.roles, subject)
        if not profile.roles:
            return {}
        models, problems = root.models(), []
        for role, name in profile.roles.items():
            if models.get(name) is None:
                hint = suggest(name, [entry.model_id for entry in models.models])
                problems.append((("roles", role), f"found {name!r}, expected an id of models.yaml{hint}"))
        if problems:
            raise make_located_error(root.find("run_profiles", self.settings.run_profile or ""), problems)
        return {role: self._resolve_model(name, root) for role, name in profile.roles.items()}

    def _resolve_judges(
        self, root: ConfigRoot, subject: Model | None, evaluation: EvaluationProfile
    ) -> dict[str, Model]:
        judges = {}
        used = {run.judge_id for run in evaluation.judge_runs}
        for judge in evaluation.judges:
            if judge.judge_id not in used or judge.type in self.registry.judges:
                continue
            name = judge_of(subject, judge.model)
            if name is None:
                text = "found no model; name one of models.yaml, such as `model: gpt4o`"
                raise self._judge_error(root, evaluation, judge, "model", text)
            judges[judge.judge_id] = self._resolve_model(name, root)
        return judges

    def _judge_error(
        self, root: ConfigRoot, evaluation: EvaluationProfile, judge: JudgeConfig, field: str, text: str
    ) -> ConfigError:
        """Return the error at a judge's field in the session's evaluation profile."""
        path = root.find("evaluation_profiles", self.settings.evaluation_profile or "")
        return make_located_error(path, [(("judges", evaluation.judges.index(judge), field), text)])

    def metric_judges(
        self, plans: Sequence[Plan], metrics: Iterable[MetricSpec], place: str
    ) -> list[tuple[Model, ...]]:
        """Return for each plan the models of a case's metrics and of the evaluation profile's metrics.

        Raises ConfigError, which names `place`, for a metric that takes a `model` and has none.
        """
        own, known = list(metrics), self.registry.metrics
        return [
            tuple(_asked_models(plan, (*own, *plan.evaluation_profile.metrics), known, place).values())
            for plan in plans
        ]


def make_planner(config: pytest.Config, settings: Settings) -> Planner:
    """Return the session's planner. A name that a plugin adds though it is taken is its `problem`."""
    roots, problem = session_roots(config, settings), None
    unasked: list[str] = []
    if any(name.startswith("pytest_agentbench_") and hook.get_hookimpls() for name, hook in vars(config.hook).items()):
        from pytest_agentbench.collection.plugins import ask_plugins

        try:
            unasked = ask_plugins(config, roots)
        except ConfigError as error:
            problem = str(error)
    registry = build_registry(config.hook.pytest_agentbench_web_search())
    check_own_names()
    unasked = [*unasked, *list_problems()]
    predicted = None
    if settings.predictions is not None:
        from pytest_agentbench.collection.predicted import Predicted

        predicted = Predicted(settings.predictions)
    signer = Signer(os.environ[settings.store_key]) if settings.store_key is not None else None
    return Planner(
        settings,
        registry,
        Store(settings.output, remote=settings.store, signer=signer),
        config.rootpath,
        roots,
        config.pluginmanager,
        problem,
        predicted,
        unasked,
    )


def _list_doubts(files: Iterable[ConfigFile]) -> list[str]:
    """Return the doubts about request fields of files that were read; most sessions of one case read none."""
    read = [file for file in files if file.origin is not None and file.origin.path is not None]
    if not read:
        return []
    from pytest_agentbench.config.field_doubts import place_doubts

    return [text for file in read for text in place_doubts(file)]


def _some_plugin_overrides(plugins: pytest.PytestPluginManager) -> bool:
    """Return whether a plugin overrides the runner: of plugins' fixtures, pytest takes the one that was registered
    last.
    """
    others = (plugin for name, plugin in reversed(plugins.list_name_plugin()) if not name.endswith("conftest.py"))
    last = next(filter(overrides_runner, others))  # ours is one of them
    return getattr(last, "__name__", "") != "pytest_agentbench.plugin"


def _asked_models(
    plan: Plan, specs: Iterable[MetricSpec], metrics: Mapping[str, Metric], place: str
) -> dict[str, Model]:
    """Return the models that metrics ask, by their ids. Raises ConfigError for one that needs a model and has none."""
    found: dict[str, Model] = {}
    for spec in specs:
        function = metrics.get(spec.name)
        if function is None or not asks_model(function):
            continue
        name = spec.args.get("model")
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"{place}: metric {spec.name}: args.model: found {name!r}, expected a model's id or name")
        if plan.judged_by(name) is not None:
            model = plan.judge_model(name)
            found[model.model_id] = model
        elif "model" in inspect.signature(function).parameters:
            raise ConfigError(
                f"{place}: metric {spec.name} asks a model, and there is none to ask; name one in the metric's args "
                "(`args: {model: gpt4o}`), or a judge in the evaluation profile"
            )
    return found
