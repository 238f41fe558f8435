"""Research reports as cases: the rows of the files that a reports.yaml names, joined by their prompts (seed 003)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pytest_agentbench.config.base import UNVERIFIED, Known, Scope, load_in, resolve_path
from pytest_agentbench.config.data_files import match_files
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import map_servers
from pytest_agentbench.config.session_roots import naming_folder
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.records import (
    RESEARCH,
    DefaultField,
    Language,
    QueryRow,
    RaceCriteria,
    ReferenceRow,
    ReportRow,
    ResearchScoring,
    ResearchTask,
    RowId,
    RowPlace,
)
from pytest_agentbench.packs.research.reports_file import ReportsFile
from pytest_agentbench.packs.research.rows import (
    GoodRow,
    Joined,
    LostRow,
    criteria_content,
    language_of,
    mark_repeated,
    place_of_row,
    prompt_key,
    read_research_rows,
    reference_content,
    report_content,
)
from pytest_agentbench.packs.research.stages import ANNOTATED, JUDGED
from pytest_agentbench.records.case import Case, Message, RunnerSpec, legal_id
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    Claims,
    OpenedSource,
    SourceCase,
    SourceRequest,
    StoredAnswers,
    limit_bad,
)
from pytest_agentbench.sources.dataset import matching_files
from pytest_agentbench.sources.rows import short_title
from pytest_agentbench.sources.test_yaml import named_tools

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.annotations import Annotations, TaskDefaults
    from pytest_agentbench.packs.research.config import PoetConfig
    from pytest_agentbench.packs.research.grader import StoredReports


_STORED = RunnerSpec(type="predictions")

P = TypeVar("P", QueryRow, RaceCriteria, ReferenceRow)
B = TypeVar("B")


class ReportItem(NamedTuple):
    """A report as collection keeps it. `article` None: a runner writes it."""

    case_id: str
    tags: tuple[str, ...]
    row_id: RowId
    prompt: str
    language: Language
    topic: str | None
    domain: str | None
    complexity_level: int | None
    defaults: tuple[DefaultField, ...]
    article: RowPlace | None
    criteria: RowPlace | None
    reference: RowPlace | None


@dataclass(frozen=True)
class Reports:
    """An opened reports.yaml. `name` begins its case ids; `stored` are its files of reports, empty if runners write.

    `annotations` are None if no part needs them; `defaults` are for reports without domain or level.
    """

    path: Path
    name: str
    file: ReportsFile
    stored: tuple[Path, ...]
    annotations: Annotations | None
    defaults: TaskDefaults
    config: PoetConfig
    scoring: ResearchScoring

    def knows_domain(self, name: str) -> bool:
        """Return whether the annotations or the configuration have an expert of the domain."""
        # The configuration may have additional domains, with hours and rates.
        return name in self.config.domain_expert_times or (
            self.annotations is not None and self.annotations.knows_domain(name)
        )

    @property
    def subjects(self) -> tuple[Path, ...]:
        """Return the files with the scored reports, or else with the queries that a runner answers."""
        return self.stored or tuple(_path(self.path.parent, text) for text in filter(None, (self.file.queries,)))

    @cached_property
    def partners(self) -> Partners:
        """Return the rows that reports are joined with, read at the first need.

        Raises ConfigError if a file cannot be read.
        """
        return Partners(self)


class Partners:
    """Queries, criteria and references by their prompts, None for missing files. `lost` are unusable rows."""

    def __init__(self, reports: Reports) -> None:
        self.lost: list[BadRow] = []
        self._folder = reports.path.parent
        file = reports.file
        self.queries = self._joined(file.queries, QueryRow, _as_query)
        self.criteria = self.references = None
        # Without race their rows are not read: a missing partner is no problem of the report then.
        if "race" in reports.scoring.parts:
            self.criteria = self._joined(file.criteria, RaceCriteria, _as_criteria)
            self.references = self._joined(file.references, ReferenceRow, _as_reference)

    def _joined(
        self, text: str | None, record: type[P], make_partner: Callable[[Path, GoodRow[P]], _Partner]
    ) -> Joined[_Partner] | None:
        if text is None:
            return None
        path = _path(self._folder, text)
        good = []
        for row in mark_repeated(path, read_research_rows(path, record)):
            if isinstance(row, LostRow):
                self.lost.append(BadRow(row.line, row.message, path))
            else:
                good.append((row.line, make_partner(path, row)))
        return Joined(path, good)


class _Partner(NamedTuple):
    """A row that reports are joined with, without its texts; `query` has the fields of a query besides its prompt."""

    id: RowId
    prompt: str
    place: RowPlace
    query: QueryRow | None = None


def open_reports(path: Path, root: ConfigRoot, known: Known = UNVERIFIED, *, allow_outside: bool = False) -> Reports:
    """Return the reports.yaml at `path` below the config root `root`, with the configuration that it names.

    `allow_outside`: its paths may leave the root. Raises ConfigError with all that is wrong with them.
    """
    from pytest_agentbench.packs.research.annotations import TaskDefaults, read_annotations
    from pytest_agentbench.packs.research.config import read_poet_config

    scope = root.scope(path.parent, known, allow_outside=allow_outside)
    file = load_in(path, ReportsFile, scope)
    root.require_servers(path, map_servers(file.mcp_servers))
    annotations = _optional_path(path.parent, file.annotations)
    config = _optional_path(path.parent, file.config)
    defaults = TaskDefaults.choose(file.default_domain, file.default_complexity, compat=bool(file.compat))
    read_config = read_poet_config(config)
    return Reports(
        path=path,
        name=_name(file, path, naming_folder(path, root)),
        file=file,
        # Two patterns may match one file.
        stored=tuple(dict.fromkeys(match for text in file.reports or () for match in match_files(text, scope.folder))),
        annotations=defaults.complete(read_annotations(annotations)) if annotations and _compares(file) else None,
        defaults=defaults,
        config=read_config,
        scoring=ResearchScoring(
            parts=file.parts,
            thresholds=file.thresholds,
            cleaning=file.cleaning,
            position_swap=file.position_swap,
            samples=file.samples,
            compat=bool(file.compat),
            prompts=file.prompts,
            annotations=annotations,
            config=config,
            knowledge_base=_knowledge_base(file, config, read_config, scope),
        ),
    )


def read_reports(reports: Reports, stored: Path | None) -> Iterator[ReportItem | BadRow]:
    """Yield the reports of a file, or, without one, the reports that a runner writes on each query.

    Queries without a report in the file are bad, too; after 100 bad rows the rest are only counted. Raises
    ConfigError if a file cannot be read.
    """
    yield from _limited(_stored(reports, stored) if stored is not None else _asked(reports), stored or reports.path)


def lost_partners(reports: Reports) -> Iterator[BadRow]:
    """Return the rows of queries, criteria and references that no report can be joined with. Raises ConfigError."""
    return _limited(reports.partners.lost, reports.path)


def read_all_reports(reports: Reports) -> Iterator[ReportItem | BadRow]:
    """Yield every bad row, and each case once, for any number of models with a report on it. Raises ConfigError."""
    seen: set[str] = set()
    for stored in reports.stored or (None,):
        for item in read_reports(reports, stored):
            # Several files have one report each on the same query: to `validate` that is one case.
            if isinstance(item, BadRow) or item.case_id not in seen:
                yield item
            if isinstance(item, ReportItem):
                seen.add(item.case_id)


def report_case(reports: Reports, item: ReportItem) -> Case:
    """Return the case of a report. Its texts are read by `read_material`."""
    facts = {"language": item.language, "topic": item.topic, "domain": item.domain, "level": item.complexity_level}
    # A stored report needs nothing of a runner's input, so a change of it does not touch stored scores.
    file = reports.file
    runner: dict[str, Any] = {"runner": _STORED, "context": {}, "tools": (), "mcp_servers": {}}
    if item.article is None:
        runner = {
            "runner": file.runner,
            "context": file.context,
            "tools": named_tools(file.context),
            "mcp_servers": map_servers(file.mcp_servers),
        }
    return Case(
        case_id=item.case_id,
        title=short_title(item.prompt),
        path=reports.path,
        dataset=reports.name,
        tags=item.tags,
        messages=(Message(role="user", content=item.prompt),),
        **runner,
        metadata={name: value for name, value in facts.items() if value is not None},
        parts={
            RESEARCH: ResearchTask(
                row_id=item.row_id,
                prompt=item.prompt,
                language=item.language,
                domain=item.domain,
                complexity_level=item.complexity_level,
                defaults=item.defaults,
                article=item.article,
                criteria=item.criteria,
                reference=item.reference,
                scoring=reports.scoring,
            )
        },
    )


def _stored(reports: Reports, path: Path) -> Iterator[ReportItem | BadRow]:
    """Yield the rows of a file of reports, then the queries without a report in it.

    A row without a prompt may belong to one of them: if there are only such rows, they are not reported again.
    """
    queries = reports.partners.queries
    answered: set[str] = set()
    empty, unknown = True, 0
    for row in mark_repeated(path, read_research_rows(path, ReportRow)):
        empty = False
        if isinstance(row, LostRow):
            yield BadRow(row.line, row.message, path)
            if row.data is not None and isinstance(prompt := row.data.get("prompt"), str):
                # A lost row has answered its query too: it is reported once, as the row.
                answered.add(prompt_key(prompt))
            else:
                unknown += 1
            continue
        answered.add(prompt_key(row.value.prompt))
        try:
            query = queries.partner(row.value).query if queries is not None else None
            yield _item(reports, row.value, query, RowPlace(*place_of_row(path, row, report_content(row.value))))
        except ConfigError as error:
            yield BadRow(row.line, f"{path}:{row.line}:1: {error}", path)
    if empty:
        yield BadRow(1, f"{path}:1:1: found no report, expected a row for each", path)
    unanswered = [open_query for open_query in queries or () if prompt_key(open_query.prompt) not in answered]
    # As many rows without a readable prompt as open queries: these are probably theirs.
    for open_query in unanswered if len(unanswered) > unknown else ():
        message = (
            f"{open_query.place}: found no report on {open_query.id!r} ({short_title(open_query.prompt)}) in {path}"
        )
        yield BadRow(open_query.place.line, message, path, f"{path.name}, query {open_query.id}")


def _asked(reports: Reports) -> Iterator[ReportItem | BadRow]:
    """Yield a report to be written on each query."""
    queries = reports.partners.queries
    assert queries is not None
    if not len(queries):
        yield BadRow(1, f"{queries.path}:1:1: found no query, expected a row for each", queries.path)
    for query in queries:
        assert query.query is not None
        try:
            yield _item(reports, query.query, query.query, None)
        except ConfigError as error:
            yield BadRow(query.place.line, f"{query.place}: {error}", queries.path)


def _item(reports: Reports, row: ReportRow | QueryRow, query: QueryRow | None, article: RowPlace | None) -> ReportItem:
    """Return a row, joined. Raises ConfigError if it lacks a partner, or its annotations."""
    partners = reports.partners
    fields: dict[str, Any] = {
        name: next((value for source in (row, query) if (value := getattr(source, name, None)) is not None), None)
        for name in ("language", "topic", "domain", "complexity_level")
    }
    language: Language = fields["language"] or language_of(row.prompt)
    domain, level, defaults = _annotated(reports, fields["domain"], fields["topic"], fields["complexity_level"])
    # Tags, so that `-m` and `-k` choose reports by language, topic, domain and level.
    labels = [language, *filter(None, (fields["topic"], domain))]
    if level is not None:
        labels.append(f"level-{level}")
    return ReportItem(
        case_id=f"{reports.name}.{legal_id(str(row.id))}",
        tags=tuple(sorted({*reports.file.tags, *labels})),
        row_id=row.id,
        prompt=row.prompt,
        language=language,
        topic=fields["topic"],
        domain=domain,
        complexity_level=level,
        defaults=defaults,
        article=article,
        criteria=_place(partners.criteria, row),
        reference=_place(partners.references, row),
    )


def _place(partners: Joined[_Partner] | None, row: ReportRow | QueryRow) -> RowPlace | None:
    """Return the place of the row's partner. Raises ConfigError if it is missing."""
    return None if partners is None else partners.partner(row).place


def _annotated(
    reports: Reports, domain: str | None, topic: str | None, level: int | str | None
) -> tuple[str | None, int | None, tuple[DefaultField, ...]]:
    """Return the domain as the annotations call it, the number of the level, and which of both is a default.

    Raises ConfigError for unknown ones.
    """
    file, annotations = reports.file, reports.annotations
    if annotations is None:
        name = domain or topic
        mapped = file.domain_map.get(name, name) if name is not None else None
        return mapped, level if isinstance(level, int) else None, ()
    place = reports.defaults.place(domain, topic, level, file.domain_map, reports.knows_domain)
    # Found at collection, with the line of the row, and not by an error for each report once the session runs.
    if place.domain is None or place.level is None:
        missing, default = "complexity_level", "default_complexity"
        if place.domain is None:
            missing, default = "domain or topic", "default_domain"
        need = f"found no {missing}, which an expert's hours depend on"
        raise ConfigError(f"{need}; set it in the report or its query, or set {default}")
    if not reports.knows_domain(place.domain):
        try:
            annotations.domain(place.domain)
        except ConfigError as error:
            name = place.domain if "domain" in place.defaults else domain or topic
            raise ConfigError(f"{error}; {reports.path.name} may map it: domain_map: {{{name!r}: ...}}") from error
    return place.domain, annotations.level_number(place.level, reports.config.task_complexity_mapping), place.defaults


def _knowledge_base(file: ReportsFile, path: Path | None, config: PoetConfig, scope: Scope) -> Path | None:
    """Return the path of the units of knowledge, None if not configured.

    Raises ConfigError for an invalid place.
    """
    text = file.knowledge_base or config.knowledge_base
    try:
        if text is not None:
            return Path(resolve_path(text, scope))
        return None
    except ValueError as error:
        raise ConfigError(f"{path}:1:1: knowledge_base_path: {error}") from error


def _compares(file: ReportsFile) -> bool:
    return any(part in file.parts for part in ANNOTATED)


def _as_query(path: Path, row: GoodRow[QueryRow]) -> _Partner:
    # Further fields are dropped: 10,000 queries are kept until the session ends.
    own = {name: getattr(row.value, name) for name in QueryRow.model_fields}
    return _Partner(row.value.id, row.value.prompt, place_of_row(path, row, ""), QueryRow.model_construct(**own))


def _as_criteria(path: Path, row: GoodRow[RaceCriteria]) -> _Partner:
    return _Partner(row.value.id, row.value.prompt, place_of_row(path, row, criteria_content(row.value)))


def _as_reference(path: Path, row: GoodRow[ReferenceRow]) -> _Partner:
    return _Partner(row.value.id, row.value.prompt, place_of_row(path, row, reference_content(row.value)))


def _name(file: ReportsFile, path: Path, root: Path) -> str:
    """Return the declared name, else the path below the root of the folder, or of `<name>` of `<name>.reports.yaml`."""
    if file.name is not None:
        return legal_id(file.name)
    place = _named_place(path)
    # At the root itself, or outside of it, the last name has to do.
    inside = place.is_relative_to(root) and place != root
    return legal_id(place.relative_to(root).as_posix() if inside else place.name)


def _named_place(path: Path) -> Path:
    # `reports.yaml` is named by its folder, `gpt.reports.yaml` by folder and `gpt`.
    stem = path.stem.removesuffix("reports").rstrip(".")
    if stem:
        return path.with_name(stem)
    return path.parent


def _optional_path(folder: Path, text: str | None) -> Path | None:
    return None if text is None else _path(folder, text)


def _path(folder: Path, text: str) -> Path:
    # Not resolved: links stay as the user has named them.
    return Path(os.path.normpath(os.path.join(folder, os.path.expanduser(text))))


def _limited(rows: Iterable[B | BadRow], path: Path) -> Iterator[B | BadRow]:
    return limit_bad(
        rows, lambda _, more: BadRow(1, f"{path}:1:1: {more} more rows are bad", path, f"{path.name}, {more} more")
    )


@dataclass(frozen=True, slots=True, eq=False)
class _CaseBuilder:
    """Builds the case of a report when it is scored."""

    reports: Reports
    item: ReportItem

    def __call__(self) -> Case:
        return report_case(self.reports, self.item)


class OpenedReports(OpenedSource):
    """A reports.yaml. Stored reports are separate subjects; others are written by the session's models."""

    alike = True

    def __init__(self, reports: Reports) -> None:
        super().__init__(reports.path)
        self.reports, self.name, self.subjects = reports, reports.name, reports.subjects
        self.asks_judge = any(part in JUDGED for part in reports.scoring.parts)

    def own_subjects(self) -> Sequence[StoredReports] | None:
        """Return the files of stored reports, each of one model; None if a runner writes them."""
        from pytest_agentbench.packs.research.grader import StoredReports  # grading is nothing that a list needs

        return [StoredReports(path) for path in self.reports.stored] or None

    def problems(self) -> Iterator[BadRow]:
        """Yield the rows that no report can be joined with."""
        return lost_partners(self.reports)

    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the reports of a file, else each case once, for any number of models with a report on it."""
        reports = self.reports
        items = read_all_reports(reports) if subject is None else read_reports(reports, subject.path)
        for item in items:
            if isinstance(item, BadRow):
                yield item
            else:
                builder = _CaseBuilder(reports, item)
                yield SourceCase(item.case_id, item.tags, self.path, 1, builder)


class ReportsFiles(CaseSource):
    """Files that configure the scoring of research reports: reports.yaml, `<name>.reports.yaml`."""

    holds = "research reports"
    names_data = brings_subjects = True
    not_by_hand = "a research report"

    def open(self, path: Path, request: SourceRequest) -> OpenedReports:
        """Return the reports.yaml with the configuration that it names. Raises ConfigError."""
        return OpenedReports(open_reports(path, request.root, request.known, allow_outside=request.allow_outside))

    def claims(self, data: Mapping[str, Any], scope: Scope) -> Claims:
        """Return the files of rows that it names."""
        patterns = data.get("reports")
        single = [data.get(name) for name in ("queries", "criteria", "references")]
        texts = [text for text in (*(patterns if isinstance(patterns, list) else ()), *single) if isinstance(text, str)]
        return Claims(others=matching_files(texts, scope))


REPORTS = ReportsFiles()
