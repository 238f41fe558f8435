"""Findings in rows: alone, together, against rows of other files, and against measured and annotated values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.annotations import Annotations, TokenPrice
from pytest_agentbench.packs.research.articles import clean_by_rules
from pytest_agentbench.packs.research.config import PoetConfig, annotations_of
from pytest_agentbench.packs.research.records import (
    ArticleCounts,
    ExecutionMetrics,
    Language,
    QueryRow,
    RaceCriteria,
    ReferenceRow,
    ReportRow,
    RowId,
    count_article,
)
from pytest_agentbench.packs.research.rows import GoodRow, LostRow, language_of, prompt_key, read_research_rows
from pytest_agentbench.terminal_text import count_text, shorten_text

Severity = Literal["error", "warning", "review"]
"""`error`: a row cannot be scored, or would be scored wrongly. `warning`: probably wrong. `review`: have a look."""

_PLACE = re.compile(r":(\d+):\d+: (?:([\w.\[\]]+): )?(.*)", re.DOTALL)
_FOUND = re.compile(r"found (.*), expected (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding in a file. `line` counts from 1. `field` leads to a value of the row, "" is the row or the file."""

    path: Path
    line: int
    severity: Severity
    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.path}:{self.line}: {self.severity}: {field}found {self.found}, expected {self.expected}"


def findings_of(message: str, path: Path) -> Iterator[Finding]:
    """Yield the lines of an error, `file:line:column: field: found ..., expected ...`, as findings."""
    for text in message.splitlines():
        place = _PLACE.match(text.removeprefix(str(path)))
        line, field, problem = (int(place[1]), place[2] or "", place[3]) if place else (1, "", text)
        # Errors of all rooms have this form; anything else stays whole as `found`.
        parts = _FOUND.fullmatch(problem)
        found, expected = (parts[1], parts[2]) if parts else (problem, "a row that can be read")
        if problem.startswith("missing;"):
            found, expected = "nothing", "a value"
        yield Finding(path, line, "error", field, found, expected)


def quoted(text: str) -> str:
    """Return a text as findings show it: on one line, its beginning."""
    return repr(shorten_text(" ".join(text.split()), 60))


R = TypeVar("R", bound=QueryRow | RaceCriteria | ReferenceRow | ReportRow)

_CHINESE = re.compile("[\u3400-\u9fff]")
_FEWEST_CHINESE = 2
"""Characters: a query with fewer is in another language."""


@dataclass(frozen=True)
class Table(Generic[R]):
    """Rows of one file by line, those that cannot be read apart."""

    path: Path
    rows: tuple[GoodRow[R], ...]
    lost: tuple[LostRow, ...]

    def __len__(self) -> int:
        return len(self.rows) + len(self.lost)


def read_table(path: Path, record: type[R]) -> Table[R]:
    """Read a table. Raises ConfigError if the file cannot be read."""
    rows = list(read_research_rows(path, record))
    good = tuple(row for row in rows if isinstance(row, GoodRow))
    return Table(path, good, tuple(row for row in rows if isinstance(row, LostRow)))


def row_findings(table: Table[R]) -> Iterator[Finding]:
    """Yield rows that are unreadable or empty, and duplicate ids and prompts of the file."""
    path = table.path
    if not len(table):
        yield Finding(path, 1, "error", "", "no row", "at least one")
    for lost_row in table.lost:
        yield from findings_of(lost_row.message, path)
    lines: dict[tuple[str, str], int] = {}
    for row in table.rows:
        if not row.value.prompt.strip():
            yield Finding(path, row.line, "error", "prompt", "an empty text", "the query")
        if isinstance(row.value, ReferenceRow | ReportRow) and not row.value.article.strip():
            yield Finding(path, row.line, "error", "article", "an empty text", "a report")
        keys = {"id": str(row.value.id), "prompt": prompt_key(row.value.prompt)}
        for field, key in keys.items():
            first = lines.setdefault((field, key), row.line)
            if first != row.line:
                text = repr(row.value.id) if field == "id" else quoted(row.value.prompt)
                yield Finding(path, row.line, "error", field, f"{text} of line {first} again", "one row for each")


def language_findings(table: Table[QueryRow] | Table[ReportRow]) -> Iterator[Finding]:
    """Yield rows whose `language` differs from their prompt's, and reports in another language than their query."""
    for row in table.rows:
        value = row.value
        declared, detected = value.language, language_of(value.prompt)
        # `zh` of a prompt with few Chinese characters may be meant: names and formulas can outnumber them.
        if declared is not None and declared != detected and (declared == "en" or not _has_chinese(value.prompt)):
            expected = f"{detected!r}, the language of the prompt"
            yield Finding(table.path, row.line, "warning", "language", repr(declared), expected)
        if isinstance(value, ReportRow) and value.article.strip():
            yield from _article_language(table.path, row.line, value.article, declared or detected)


def same_articles(tables: Iterable[Table[ReportRow] | Table[ReferenceRow]]) -> Iterator[Finding]:
    """Yield reports with the very text of another: a copy by mistake, or a reference that is scored against itself."""
    first_of: dict[str, tuple[Path, int]] = {}
    for table in tables:
        for row in table.rows:
            text = row.value.article.strip()
            # The key of prompts serves for articles too: blanks and width do not make two reports.
            first = first_of.setdefault(prompt_key(text), (table.path, row.line))
            if text and first != (table.path, row.line):
                found = f"the text of {first[0]}:{first[1]}"
                yield Finding(table.path, row.line, "warning", "article", found, "a different report")


def _article_language(path: Path, line: int, article: str, expected: Language) -> Iterator[Finding]:
    language = language_of(clean_by_rules(article))
    # For review: an English query may ask for a report in Chinese.
    if language != expected:
        yield Finding(path, line, "review", "article", f"a text in {language!r}", f"{expected!r}, that of the query")


def _has_chinese(text: str) -> bool:
    return len(_CHINESE.findall(text)) >= _FEWEST_CHINESE


_NAMED = 8


@dataclass(frozen=True, slots=True)
class Join:
    """Rows that need a partner in another table (`what`, such as `criteria`); a missing one has this severity.

    `both_ways`: a partner without a row is reported too.
    """

    rows: Table[Any]
    partners: Table[Any]
    what: str
    missing: Severity
    both_ways: bool = False


def join_findings(join: Join) -> Iterator[Finding]:
    """Yield rows whose partner has another id or another prompt, or that have none; then partners that have no row."""
    # Reversed, so that the first of several rows counts, as where stages join them.
    by_prompt = {prompt_key(row.value.prompt): row for row in reversed(join.partners.rows)}
    by_id = {str(row.value.id): row for row in reversed(join.partners.rows)}
    matched: set[str] = set()
    alone: list[Finding] = []
    for row in join.rows.rows:
        # Stages join by the prompt alone; the id tells whether a row without a partner has a changed prompt.
        same_prompt, same_id = by_prompt.get(prompt_key(row.value.prompt)), by_id.get(str(row.value.id))
        other = same_prompt or same_id
        place = (join.rows.path, row.line)
        if other is not None:
            matched.add(prompt_key(other.value.prompt))
        if same_prompt is not None and str(same_prompt.value.id) != str(row.value.id):
            where = f"{same_prompt.value.id!r}, which {join.partners.path}:{same_prompt.line} has for this prompt"
            yield Finding(*place, "error", "id", repr(row.value.id), where)
        elif same_prompt is None and same_id is not None:
            where = f"that of {join.partners.path}:{same_id.line}: {quoted(same_id.value.prompt)}"
            yield Finding(*place, "error", "prompt", quoted(row.value.prompt), where)
        elif other is None:
            expected = f"one in {join.partners.path}"
            alone.append(Finding(*place, join.missing, "prompt", f"no {join.what} for {row.value.id!r}", expected))
    yield from _together(join, alone)
    lonely = [row.value.id for key, row in by_prompt.items() if key not in matched]
    if join.both_ways and lonely:
        problem = f"no row for {len(lonely)} of {len(by_prompt)} prompts of {join.partners.path} ({_names(lonely)})"
        yield Finding(join.rows.path, 1, "warning", "prompt", problem, "one for each")


def _together(join: Join, alone: list[Finding]) -> Iterator[Finding]:
    """Yield rows without a partner: each, unless that is no error."""
    if join.missing == "error":
        yield from alone
    # One finding in place of one for each row: criteria and references are often made for some queries only.
    elif alone:
        lines = {finding.line for finding in alone}
        ids = [row.value.id for row in join.rows.rows if row.line in lines]
        problem = f"no {join.what} for {len(ids)} of {len(join.rows.rows)} rows ({_names(ids)})"
        yield Finding(join.rows.path, alone[0].line, join.missing, "prompt", problem, f"one in {join.partners.path}")


def _names(ids: list[RowId]) -> str:
    names = sorted(map(str, ids), key=lambda name: (len(name), name))
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


Named = Table[QueryRow] | Table[ReportRow]
"""Rows that may name a domain and a level."""

_DOMAINS, _LEVELS, _TYPES = "domain_expert_data.json", "complexity_level_data.json", "task_type_data.json"


def read_linted(folder: Path | None, config: PoetConfig, findings: list[Finding]) -> Annotations | None:
    """Return the annotations of a folder, and the config's; None without a folder, or if unusable (`findings`)."""
    if folder is None:
        return None
    try:
        return annotations_of(folder, config)
    except ConfigError as error:
        # The folder has several files: each message begins with the path of its own.
        for message in str(error).splitlines():
            findings += findings_of(message, Path(message.split(":", 1)[0]))
        return None


def annotation_findings(annotations: Annotations) -> Iterator[Finding]:
    """Yield domains whose experts cost nothing, levels that do not rise, types of tasks on no level."""
    path = annotations.folder / _DOMAINS
    for name, expert in annotations.domains.items():
        for field in ("avg_task_time_hours", "avg_hourly_rate_usd"):
            if not getattr(expert, field):
                yield Finding(path, 1, "warning", f"{name}.{field}", "0", "above 0: nothing can be saved otherwise")
    path = annotations.folder / _LEVELS
    levels = [annotations.level(number) for number in sorted(annotations.levels)]
    for field in ("expert_time_multiplier", "difficulty_score"):
        # By the levels' numbers: files may have them in any order.
        values = [getattr(level, field) for level in levels]
        if values != sorted(values):
            yield Finding(path, 1, "warning", field, str(values), "values that rise with the levels")
    path = annotations.folder / _TYPES
    for name, kind in annotations.task_types.items():
        if kind.complexity_level is not None and kind.complexity_level not in annotations.levels:
            found, expected = str(kind.complexity_level), f"a level of {_LEVELS}"
            yield Finding(path, 1, "error", f"{name}.complexity_level", found, expected)


def unknown_findings(
    table: Named, annotations: Annotations, config: PoetConfig, domain_map: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield rows whose domain or level the annotations do not have, and topics that are no domain, each topic once."""
    domains = f"one of {', '.join(sorted(annotations.domains))} ({annotations.folder / _DOMAINS})"
    levels = f"one of {', '.join(map(str, sorted(annotations.levels)))} ({annotations.folder / _LEVELS})"
    topics: dict[str, list[int]] = {}
    for row in table.rows:
        value = row.value
        if value.domain and not _is_known(annotations, domain_map.get(value.domain, value.domain)):
            yield Finding(table.path, row.line, "error", "domain", repr(value.domain), domains)
        elif not value.domain and value.topic and not _is_known(annotations, domain_map.get(value.topic, value.topic)):
            topics.setdefault(value.topic, []).append(row.line)
        try:
            if value.complexity_level is not None:
                annotations.level_number(value.complexity_level, config.task_complexity_mapping)
        except ConfigError:
            yield Finding(table.path, row.line, "error", "complexity_level", repr(value.complexity_level), levels)
    for topic, lines in topics.items():
        found = f"{topic!r} in {count_text(len(lines), 'row')} without a domain"
        yield Finding(table.path, lines[0], "warning", "topic", found, f"{domains}, or --domain-map '{topic}=DOMAIN'")


def lacking_findings(table: Named) -> Iterator[Finding]:
    """Yield rows for which no expert can be found: without domain and topic, or without a level."""
    lacking = {
        "domain": [row.line for row in table.rows if not (row.value.domain or row.value.topic)],
        "complexity_level": [row.line for row in table.rows if row.value.complexity_level is None],
    }
    for field, lines in lacking.items():
        if lines:
            yield Finding(
                table.path, lines[0], "warning", field, f"none in {count_text(len(lines), 'row')}", "one in each"
            )


def _is_known(annotations: Annotations, domain: str) -> bool:
    try:
        annotations.domain(domain)
    except ConfigError:
        return False
    return True


COUNT_ERROR = 0.05
"""How far a count may be from the article's own, as a share of it."""
COST_ERROR = 0.1
_FEWEST_TOKENS_A_WORD = 0.4
"""Tokenizers join two or three Chinese characters at most, and no Latin words."""
_COUNTS = ("tool_calls_count", "sources_used", "citation_count", "word_count")
_TOKENS = ("input_tokens", "output_tokens")


def metrics_findings(table: Table[ReportRow], prices: Mapping[str, TokenPrice]) -> Iterator[Finding]:
    """Yield findings in the metrics of every row; the model whose prices count is the file's stem."""
    # Stored reports are of the model that their file is named after, here as in sessions.
    price = prices.get(table.path.stem)
    for row in table.rows:
        metrics = row.value.execution_metrics
        if metrics is None:
            yield Finding(table.path, row.line, "warning", "execution_metrics", "none", "the run's measurements")
            continue
        article = row.value.article
        own = count_article(article)
        checks = (
            _lacking(metrics),
            _impossible(metrics, own.words),
            _uncounted(metrics, own, by_links="](" in article),
        )
        for field, text, expected in (problem for check in checks for problem in check):
            yield Finding(table.path, row.line, "warning", f"execution_metrics.{field}", text, expected)
        yield from _costs(table.path, row.line, metrics, price)
    yield from _repeated(table)


def _lacking(metrics: ExecutionMetrics) -> Iterator[tuple[str, str, str]]:
    """Yield missing data for the efficiency of a report."""
    if metrics.total_duration_seconds is None:
        yield "total_duration_seconds", "nothing", "seconds; without them there is no efficiency"
    if metrics.automation_level is None:
        yield "automation_level", "nothing", "a share of 0-1; without it there is no efficiency"
    usage = metrics.token_usage
    if usage.total_cost_usd is None and None in (usage.input_tokens, usage.output_tokens):
        yield "token_usage", "neither a cost nor all tokens", "total_cost_usd, or input_tokens and output_tokens"


def _impossible(metrics: ExecutionMetrics, words: int) -> Iterator[tuple[str, str, str]]:
    """Yield fractions of countable things, and values that no run can have needed for an article of this length."""
    for field in _COUNTS:
        value = getattr(metrics, field)
        if value is not None and value != int(value):
            yield field, f"{value:g}", "a whole number"
    for field in _TOKENS:
        value = getattr(metrics.token_usage, field)
        if value is not None and value != int(value):
            yield f"token_usage.{field}", f"{value:g}", "a whole number"
    if words and metrics.total_duration_seconds == 0:
        yield "total_duration_seconds", "0", "the time that the report took"
    # Fewer tokens than the article itself takes: numbers of another run, or made up.
    tokens = metrics.token_usage.output_tokens
    if tokens is not None and tokens < _FEWEST_TOKENS_A_WORD * words:
        yield "token_usage.output_tokens", f"{tokens:g}", f"enough for the {words} words of the article"


def _uncounted(metrics: ExecutionMetrics, own: ArticleCounts, *, by_links: bool) -> Iterator[tuple[str, str, str]]:
    """Yield counts that differ from the article's own.

    Citations are counted only if it has markers such as [3], or no links.
    """
    if metrics.word_count is not None and _far(metrics.word_count, own.words):
        yield "word_count", f"{metrics.word_count:g}", f"{own.words}, as the article has"
    # Articles that cite by links have no markers to count, and do not show the number of sources.
    if not own.citations and by_links:
        return
    if metrics.citation_count is not None and _far(metrics.citation_count, own.citations):
        yield "citation_count", f"{metrics.citation_count:g}", f"{own.citations}, as the article has"
    if metrics.sources_used is not None and metrics.sources_used < own.sources:
        yield "sources_used", f"{metrics.sources_used:g}", f"at least {own.sources}, as the article cites so many"


def _costs(path: Path, line: int, metrics: ExecutionMetrics, price: TokenPrice | None) -> Iterator[Finding]:
    """Yield a cost that differs from the price of the tokens; discounts and paid tools may be why."""
    usage = metrics.token_usage
    field = "execution_metrics.token_usage.total_cost_usd"
    if usage.input_tokens is None or usage.output_tokens is None:
        return
    if price is None:
        if usage.total_cost_usd is None:
            yield Finding(path, line, "warning", field, "nothing", f"a cost, as there is no price of {path.stem!r}")
        return
    expected = (usage.input_tokens * price.input_price_per_1k + usage.output_tokens * price.output_price_per_1k) / 1000
    if usage.total_cost_usd is not None and _far(usage.total_cost_usd, expected, COST_ERROR):
        expected_cost = f"about {expected:.4g} for its tokens at the prices of {path.stem!r}"
        yield Finding(path, line, "review", field, f"{usage.total_cost_usd:.4g}", expected_cost)


def _repeated(table: Table[ReportRow]) -> Iterator[Finding]:
    """Yield rows that took exactly as long and cost exactly as much as another: copied, not measured."""
    first_of: dict[tuple[float, float], int] = {}
    for row in table.rows:
        metrics = row.value.execution_metrics or ExecutionMetrics()
        seconds, cost = metrics.total_duration_seconds, metrics.token_usage.total_cost_usd
        # Zeros repeat in every unmeasured file, which other findings report.
        if not seconds or not cost:
            continue
        first = first_of.setdefault((seconds, cost), row.line)
        if first != row.line:
            found = f"{seconds:g} seconds and {cost:g} USD, as on line {first}"
            yield Finding(table.path, row.line, "review", "execution_metrics", found, "the measurements of this run")


def _far(value: float, own: float, error: float = COUNT_ERROR) -> bool:
    return abs(value - own) > error * own
