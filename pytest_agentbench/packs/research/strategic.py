"""Stage strategic: a report's value beyond its task, by a judge's scores and the knowledge that it adds."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StringConstraints

from pytest_agentbench.bounded.writing import require_writable
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.prompts import clip_middle
from pytest_agentbench.models.replies import ReplyPart, make_invalid_reply, read_json
from pytest_agentbench.packs.research.arithmetic import (
    SHORTEST_HOURS,
    STRATEGIC_LOWEST,
    STRATEGIC_SCORES,
    STRATEGIC_TOP,
    clamped,
    complexity_adaptability,
    knowledge_creation_value,
    strategic_value,
    task_of,
)
from pytest_agentbench.packs.research.articles import Passages, split_words
from pytest_agentbench.packs.research.asking import (
    NUMBER,
    PROMPT_VERSION,
    TEXT,
    Asking,
    list_schema,
    object_schema,
    parse_objects,
)
from pytest_agentbench.packs.research.commands import (
    add,
    add_compat,
    add_config,
    add_judge,
    add_part_parser,
    add_results,
    add_rows,
    add_tasks,
)
from pytest_agentbench.packs.research.config import KnowledgeBaseSettings, PoetConfig
from pytest_agentbench.packs.research.inputs import (
    input_rows,
    make_report,
    read_tasks,
    require_value,
    run_part,
    score_outcomes,
)
from pytest_agentbench.packs.research.knowledge import KNOWLEDGE_BASE, KnowledgeBase, Unit, make_contribution, make_unit
from pytest_agentbench.packs.research.records import Language, Report, ReportRow, article_digest
from pytest_agentbench.packs.research.results import StageResults
from pytest_agentbench.packs.research.scores import LONGEST_EVIDENCE, NO_QUALITY, StrategicScore, describe_score
from pytest_agentbench.packs.research.stages import PART_STAGES

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.call import Call
    from pytest_agentbench.packs.research.grading import Grading, Metrics
    from pytest_agentbench.packs.research.inputs import Tasks
    from pytest_agentbench.packs.research.rows import GoodRow, LostRow


STAGE, KNOWLEDGE_STAGE, REUSE_STAGE = "strategic", "knowledge", "reuse"

_FORMAT = structured(f"research_{STAGE}", {name: object_schema(reason=TEXT, score=NUMBER) for name in STRATEGIC_SCORES})
_KNOWLEDGE_FORMAT = structured(f"research_{KNOWLEDGE_STAGE}", {"units": list_schema(text=TEXT, quality=NUMBER)})
_REUSE_FORMAT = structured(f"research_{REUSE_STAGE}", {"reused": {"type": "array", "items": TEXT}})


class _Score(ReplyPart):
    score: Annotated[float, Field(strict=True, ge=STRATEGIC_LOWEST, le=STRATEGIC_TOP, allow_inf_nan=False)]
    reason: str = ""


class _Unit(ReplyPart):
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    quality: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


class _Knowledge(ReplyPart):
    units: tuple[_Unit, ...]


class _Reuse(ReplyPart):
    reused: tuple[str, ...]


async def judge_strategic(
    asking: Asking, case_id: str, language: Language, query: str, article: str
) -> dict[str, tuple[float, str]]:
    """Return each of the eight scores (1-5) with its reason. Raises Unscored: no score is ever a default."""
    messages = asking.messages(language, "strategic", {"query": query, "article": article})
    return await asking(STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION)


def _parse(text: str) -> dict[str, tuple[float, str]]:
    scores = parse_objects(text, STRATEGIC_SCORES, _Score)
    return {name: (score.score, score.reason) for name, score in scores.items()}


async def draw_knowledge(asking: Asking, case_id: str, language: Language, article: str, most: int) -> list[Unit]:
    """Return the units of knowledge that the article has, at most `most`, each once. Raises Unscored."""
    messages = asking.messages(language, "knowledge", {"article": article}, {"most": most})

    def parse(text: str) -> list[Unit]:
        units = (make_unit(entry.text, entry.quality) for entry in read_json(text, _Knowledge).units[:most])
        return list({unit.id: unit for unit in units}.values())

    return await asking(KNOWLEDGE_STAGE, case_id, messages, _KNOWLEDGE_FORMAT, parse, version=PROMPT_VERSION)


async def confirm_reuse(
    asking: Asking, case_id: str, language: Language, article: str, candidates: Sequence[Unit]
) -> list[Unit]:
    """Return the known units that the article states, according to the judge. Raises Unscored."""
    known_units = "\n".join(json.dumps({"id": unit.id, "text": unit.text}, ensure_ascii=False) for unit in candidates)
    messages = asking.messages(language, "reuse", {"article": article, "known": known_units})
    by_id = {unit.id: unit for unit in candidates}

    def parse(text: str) -> list[Unit]:
        reused = dict.fromkeys(read_json(text, _Reuse).reused)
        unknown = [unit_id for unit_id in reused if unit_id not in by_id]
        if unknown:
            raise make_invalid_reply([f"reused: there is no known unit {unit_id!r}" for unit_id in unknown])
        return [by_id[unit_id] for unit_id in reused]

    return await asking(REUSE_STAGE, case_id, messages, _REUSE_FORMAT, parse, version=PROMPT_VERSION)


_MOST_CANDIDATES = 50
"""Maximum number of known units that a judge sees: those of which the article has the largest share."""

# Every unit of the base is compared with every report of a call.
_words = lru_cache(maxsize=2**15)(split_words)


async def strategic_of(
    asking: Asking,
    report: Report,
    base: KnowledgeBase,
    config: PoetConfig,
    turn: AbstractAsyncContextManager[None] | None = None,
    batch: str | None = None,
) -> StrategicScore:
    """Return the judge's scores of a report; its knowledge is added to the base. Raises Unscored, ConfigError,
    Unwritable.

    The base is entered once, after the report's units are drawn and before the judge is asked which known ones it uses:
    known are the additions of earlier reports, and a repeated call changes and finds nothing else. The base is entered
    while `turn` is held, if concurrent reports must do so in an order; without an order, they
    are of one `batch`, and do not see each other's additions.
    """
    settings = config.knowledge_base_settings
    scores_with_reasons = await judge_strategic(asking, report.case_id, report.language, report.prompt, report.article)
    most = settings.max_knowledge_units_per_task
    drawn = await draw_knowledge(asking, report.case_id, report.language, report.article, most)
    good = [unit for unit in drawn if unit.quality >= settings.min_knowledge_quality_threshold]
    async with turn or nullcontext():
        # Between the two requests: a call that is repeated finds its own units there, and asks nothing else than the
        # first.
        known = base.contribute(make_contribution(report.model, report.id, report.prompt, report.article, good, batch))
    created = new_units(good, known, settings.knowledge_similarity_threshold)
    # Words and judge both have to agree: a contradiction has the same words, and a judge is asked about few
    # units.
    candidates = found_units(report.article, known, settings)
    if candidates:
        reused = await confirm_reuse(asking, report.case_id, report.language, report.article, candidates)
    else:
        reused = []
    scores = {name: score for name, (score, _) in scores_with_reasons.items()}
    value = strategic_value(scores, config.strategic_weights)
    return StrategicScore(
        strategic_score=clamped(value),
        scores=scores,
        score_reasons={name: reason for name, (_, reason) in scores_with_reasons.items()},
        known=len(known),
        created=tuple(created),
        repeated=len(good) - len(created),
        below_quality=len(drawn) - len(good),
        reused=tuple(reused),
        knowledge_creation_value=knowledge_creation_value([unit.quality for unit in created]),
    )


def new_units(drawn: Sequence[Unit], known: Sequence[Unit], likeness: float) -> list[Unit]:
    """Return the drawn units that are less alike than this (0-1) to every known and every earlier drawn one."""
    new: list[Unit] = []
    for unit in drawn:
        words = _words(unit.text)
        if all(unit.id != other.id and words.likeness(_words(other.text)) < likeness for other in (*known, *new)):
            new.append(unit)
    return new


def found_units(article: str, known: Sequence[Unit], settings: KnowledgeBaseSettings) -> list[Unit]:
    """Return the known units that three sentences of the article have the words of, so that it may state them."""
    passages, share = Passages(article), settings.knowledge_similarity_threshold
    candidates = [unit for unit in known if passages.contain(_words(unit.text), share)]
    return sorted(candidates, key=lambda unit: -passages.share_of(_words(unit.text)))[:_MOST_CANDIDATES]


REPORT = PART_STAGES["strategic"].rows
_MEANS = ("strategic_score", "complexity_adaptability", "knowledge_creation_value", "knowledge_units_created")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser, files = add_part_parser(
        subparsers,
        "strategic",
        f"Let a model give each report eight scores, add its knowledge to the knowledge base, and find "
        f"the units of earlier reports that it uses. Writes {REPORT}. The same command continues after an "
        "interruption. Exit status 0: every report is scored; 1: some are not; 2: wrong usage.",
    )
    add_knowledge_base(files)
    add_tasks(files)
    add_results(files)
    add_config(files)
    add_compat(parser)
    add_rows(parser)
    add_judge(parser)


def add_knowledge_base(parser: argparse._ActionsContainer) -> None:
    """Add where knowledge is kept."""
    add(
        parser,
        "--knowledge_base_path",
        type=Path,
        metavar="FILE",
        help="knowledge of earlier reports (default: the config's, else one in the folder of --kept)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    return run_part("strategic", args)


async def score_reports(call: Call, file: Path, output: Path) -> None:
    """Score the reports of a file. Raises ConfigError if a file cannot be read, or no judge is named, and
    UnwritableError before anything is asked if the report cannot be written.
    """
    args, config, model = call.args, call.config, file.stem
    tasks, stages = read_tasks(call), StageResults(call, args.results_dir, model)
    path = args.knowledge_base_path or config.knowledge_base or args.kept / KNOWLEDGE_BASE
    base = KnowledgeBase(Path(path), config.knowledge_base_settings.knowledge_retention_days)
    rows = input_rows(call, file, ReportRow)
    base.check()
    asking = await call.asking(file)
    require_writable(output / REPORT)
    turns = _Turns(len(rows))

    async def score(number: int, row: GoodRow[ReportRow] | LostRow) -> dict[str, Any]:
        try:
            report = make_report(require_value(row), model)
            strategic_score = await strategic_of(asking, report, base, config, turns.wait_turn(number))
        finally:
            # Also for a row that has failed, or all rows behind it would wait for ever.
            turns.finish(number)
        adaptability, why = _adaptability(call, tasks, stages, require_value(row))
        return {
            "id": report.id,
            "prompt": report.prompt,
            "article_digest": article_digest(report.article),
            **strategic_score.model_dump(),
            "knowledge_units_created": len(strategic_score.created),
            "knowledge_units_reused": len(strategic_score.reused),
            "complexity_adaptability": adaptability,
            "reasons": {"complexity_adaptability": why} if why else {},
        }

    await score_outcomes(call, "strategic", file, output, rows, score, _MEANS)


def _adaptability(call: Call, tasks: Tasks, stages: StageResults, row: ReportRow) -> tuple[float | None, str]:
    """Return a report's adaptability to complexity, or None and why."""
    if tasks.annotations is None:
        return None, "there are no annotations"
    try:
        task = task_of(tasks.annotations, call.config, *tasks.domain_and_level(row))
    except AgentbenchError as error:
        return None, str(error)
    # Reported before the quality is looked up: no RACE or FACT would change it.
    if task.expert.hours < SHORTEST_HOURS:
        return None, f"an expert needs {task.expert.hours:g} h, less than {SHORTEST_HOURS:g} h"
    quality, why = stages.quality(row, compat=call.args.compat)
    return complexity_adaptability(quality, task.difficulty, task.expert.hours), why


class _Turns:
    """Rows that are scored side by side enter the knowledge base in their order, so that results do not vary."""

    def __init__(self, count: int) -> None:
        self._over = [asyncio.Event() for _ in range(count)]
        self._next = 0

    @asynccontextmanager
    async def wait_turn(self, number: int) -> AsyncIterator[None]:
        """Wait until all rows before have had theirs, or have failed."""
        # Not a queue: rows that fail before their turn never wait for it, and are passed over.
        while self._next < number:
            await self._over[self._next].wait()
            while self._next < number and self._over[self._next].is_set():
                self._next += 1
        yield
        # Not in a `finally`: a row that fails here is finished by its caller.
        self.finish(number)

    def finish(self, number: int) -> None:
        """Note that the row has had its turn, or will not take it."""
        self._over[number].set()


async def grade_report(grading: Grading) -> StrategicScore:
    """Return the value of one item's report beyond its task. Raises Unscored, ConfigError, UnwritableError."""
    base, session = grading.session.knowledge_base(grading.scoring), grading.session
    return await strategic_of(grading.asking, grading.report, base, grading.config, batch=session.batch)


def list_metrics(grading: Grading) -> Metrics:
    """Yield the strategic value, the adaptability to complexity, and the knowledge that is new."""
    strategic, row = grading.score("strategic"), grading.score("poet")
    yield "strategic", strategic.strategic_score, {"scores": strategic.scores}
    adapted = row.complexity_adaptability
    short = "an expert takes less than half an hour, or no efficiency is scored"
    reason = NO_QUALITY if row.quality_score is None else short
    yield "complexity_adaptability", adapted, describe_score(adapted, reason)
    counts = {"reused": len(strategic.reused), "repeated": strategic.repeated, "below_quality": strategic.below_quality}
    yield "knowledge_units", float(len(strategic.created)), counts
    yield "knowledge_creation_value", strategic.knowledge_creation_value, {}


def keep_evidence(score: StrategicScore) -> Mapping[str, Any]:
    """Return the judge's scores with their reasons, and the new units of knowledge."""
    return {
        "strategic": {
            name: (value, clip_middle(score.score_reasons.get(name, ""), LONGEST_EVIDENCE))
            for name, value in score.scores.items()
        },
        "knowledge": tuple((clip_middle(unit.text, LONGEST_EVIDENCE), unit.quality) for unit in score.created),
    }
