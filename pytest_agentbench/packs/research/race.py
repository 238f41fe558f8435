"""Stage race: the quality of a model's reports, its rows, means and command."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.bounded.writing import require_writable, write_rows, write_text
from pytest_agentbench.cli.output import printable, refuse_usage
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.models.prompts import clip_middle
from pytest_agentbench.packs.research.call import Call, case_id
from pytest_agentbench.packs.research.commands import (
    CRITERIA,
    QUERIES,
    RAW_DATA,
    REFERENCES,
    RESULTS,
    add,
    add_compat,
    add_config,
    add_judge,
    add_rows,
)
from pytest_agentbench.packs.research.criteria import find_problems, find_unusable
from pytest_agentbench.packs.research.inputs import (
    chosen_rows,
    failed_row,
    find_queries,
    join_optional,
    join_rows,
    language_by_query,
    name_row,
    require_value,
)
from pytest_agentbench.packs.research.race_judging import RaceJudged, RaceQuestion, judge_race, strip_apparatus
from pytest_agentbench.packs.research.race_runs import RESULT, print_means, race_means, result_text, stored_scores
from pytest_agentbench.packs.research.records import (
    RACE_DIMENSIONS,
    CriterionScore,
    Language,
    QueryRow,
    RaceCriteria,
    ReferenceRow,
    ReportRow,
    RowId,
    article_digest,
)
from pytest_agentbench.packs.research.rows import GoodRow, Joined, LostRow, language_of, prompt_key, read_research_rows
from pytest_agentbench.packs.research.scores import LONGEST_EVIDENCE, NO_POINTS, RaceRow, describe_score
from pytest_agentbench.packs.research.stages import PART_STAGES

if TYPE_CHECKING:
    from pytest_agentbench.packs.research.config import PoetConfig
    from pytest_agentbench.packs.research.grading import Grading, Metrics
    from pytest_agentbench.packs.research.records import Cleaning


def race_row(row_id: RowId, prompt: str, language: Language, judged: RaceJudged) -> RaceRow:
    """Return the row of a judged report; it names the language only if the prompt would be detected wrongly.

    Raises Unscored if the scores have no defined share.
    """
    # The original's rows have no language: the field is added only if the prompt would be detected wrongly.
    optional: dict[str, Any] = {}
    if language != language_of(prompt):
        optional["language"] = language
    if judged.sd is not None:
        optional["race_sd"] = judged.sd
    return RaceRow(
        id=row_id,
        prompt=prompt,
        **judged.dimensions,
        overall_score=judged.overall,
        race_weighted_dims=judged.weighted_dimensions,
        **optional,
    ).scored


def race_details(row_id: RowId, judged: RaceJudged) -> dict[str, Any]:
    """Return the judge's replies in each draw of a report, as `{id, draws: [{overall_score, judge_details}]}`."""
    draws = [
        {
            "overall_score": result.overall,
            "judge_details": {
                name: [_entry(asdict(score)) for score in scores] for name, scores in judged_scores.items()
            },
        }
        for result, judged_scores in zip(judged.draws, judged.scored, strict=True)
    ]
    return {"id": row_id, "draws": draws}


def _entry(scored: Mapping[str, Any]) -> dict[str, Any]:
    texts = {"criterion": scored["criterion"], "analysis": scored["analysis"]}
    if scored["reference"] is None:
        return {**texts, "target_score": scored["target"]}
    return {**texts, "article_1_score": scored["target"], "article_2_score": scored["reference"]}


@dataclass(frozen=True, slots=True)
class Partners:
    """Files that reports are joined with. `references` None: reports are judged alone."""

    criteria: Joined[RaceCriteria]
    references: Joined[ReferenceRow] | None
    queries: Joined[QueryRow] | None
    config: PoetConfig

    @classmethod
    def read(cls, call: Call, criteria: Path, references: Path | None, queries: Path | None) -> Partners:
        """Read the files and print problems of rows. Raises ConfigError if a file cannot be read."""
        partners = cls(
            join_rows(call, criteria, RaceCriteria),
            join_optional(call, references, ReferenceRow),
            join_optional(call, queries, QueryRow),
            call.config,
        )
        for row in partners.criteria:
            for problem in find_problems(row):
                call.warn(f"{criteria}: {row.id!r}: {problem}")
        return partners

    def language(self, report: ReportRow) -> Language:
        """Return the language of the report's query."""
        return language_by_query(self.queries, report)

    def question(self, report: ReportRow) -> RaceQuestion:
        """Return the material to judge.

        Raises ConfigError if a partner is missing, has another id, or lacks a dimension.
        """
        # For its errors alone: a report without a query, or with another id, belongs to other files.
        if self.queries is not None:
            self.queries.partner(report)
        row_criteria = self.criteria.partner(report)
        criteria = _usable(row_criteria, self.config, f"{self.criteria.path}: {row_criteria.id!r}")
        return RaceQuestion(
            case_id=case_id(report.id),
            language=self.language(report),
            query=report.prompt,
            article=report.article,
            reference=None if self.references is None else self.references.partner(report).article,
            criteria=criteria,
        )

    def unanswered(self, reports: Iterable[GoodRow[ReportRow] | LostRow]) -> list[QueryRow]:
        """Return the queries of which there is no report, not even one that is lost."""
        prompts = ((row.data or {}).get("prompt") for row in reports)
        answered = {prompt_key(prompt) for prompt in prompts if isinstance(prompt, str)}
        return [row for row in self.queries or () if prompt_key(row.prompt) not in answered]


_MOST_CRITERIA = 100
"""Maximum criteria of a report whose scores an evaluation stores."""
ROWS, DETAILS = PART_STAGES["race"].rows, "race_details.jsonl"
_RESULTS = RESULTS / PART_STAGES["race"].folder


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "race",
        description=f"Let a model compare each report with the reference of its query, criterion by criterion. Writes "
        f"{RESULT} (means), {ROWS} (scores of each report) and {DETAILS} (the judge's replies). The same command "
        "continues after an interruption. Exit status 0: every report is scored; 1: some are not; 2: wrong usage.",
    )
    parser.add_argument("model", nargs="?", help="whose reports: the file <raw_data_dir>/<model>.jsonl")
    files = parser.add_argument_group("files")
    for name, default in {"--raw_data_dir": RAW_DATA, "--criteria_file": CRITERIA}.items():
        add(files, name, type=Path, default=default, metavar="PATH", help="(default: %(default)s)")
    add(files, "--query_file", type=Path, metavar="PATH", help=f"(default: {QUERIES}, if it exists)")
    add(files, "--reference_file", type=Path, metavar="PATH", help=f"(default: {REFERENCES})")
    add(files, "--output_dir", type=Path, metavar="DIR", help=f"(default: {_RESULTS}/<model>)")
    scores = (
        f"write {RESULT} of these scores, and ask no model; several files are runs of one model, and two are compared"
    )
    add(files, "--raw_results", type=Path, action="append", metavar="FILE", help=scores)
    add_judging(parser)
    add_config(files)
    add_rows(parser)
    add_judge(parser)


def add_judging(parser: argparse.ArgumentParser) -> None:
    """Add how reports are judged."""
    from pytest_agentbench.options import parse_positive

    group = parser.add_argument_group("the judging")
    add(group, "--pointwise", action="store_true", help="judge each report alone, without a reference")
    add(group, "--samples", type=parse_positive, default=1, metavar="K", help="ask K times and average the scores")
    add(group, "--position_swap", action="store_true", help="ask in both orders and average the scores")
    cleaning = group.add_mutually_exclusive_group()
    add(cleaning, "--skip_cleaning", action="store_true", help="judge texts with their links, markers and references")
    add(cleaning, "--model_cleaning", action="store_true", help="let the judge remove these, in place of fixed rules")
    add_compat(group)


def run(args: argparse.Namespace) -> int:
    """Judge the reports, or compute the means of stored scores."""
    if (problem := _wrong_usage(args)) is not None:
        return refuse_usage("research race", problem)
    call = Call("race", args)
    if args.raw_results is not None:
        return call.run(lambda: stored_scores(call, args.raw_results, args.output_dir))
    reports = args.raw_data_dir / f"{args.model}.jsonl"
    return call.run(lambda: score_reports(call, reports, args.output_dir or _RESULTS / args.model))


def _wrong_usage(args: argparse.Namespace) -> str | None:
    if args.raw_results is not None:
        if len({path.resolve() for path in args.raw_results}) < len(args.raw_results):
            return "found one file twice as --raw-results, expected each run once"
        if args.output_dir is None:
            return "--raw-results needs --output-dir"
        return None
    if args.model is None:
        return "found no model; name the one whose reports are judged, or stored scores with --raw-results"
    if args.pointwise and args.reference_file is not None:
        return "--pointwise judges without a reference; leave out --reference-file"
    if args.pointwise and args.position_swap:
        return "--pointwise judges one text alone; leave out --position-swap"
    return None


async def score_reports(call: Call, reports: Path, output: Path) -> None:
    """Judge the reports of a file. Raises ConfigError if a file cannot be read, or no judge is named."""
    args = call.args
    partners = Partners.read(call, args.criteria_file, _references(args), find_queries(args))
    report_rows = list(read_research_rows(reports, ReportRow))
    rows = chosen_rows(call, reports, report_rows, partners.language)
    if unanswered := partners.unanswered(report_rows):
        call.warn(f"{reports}: found no report of these queries: {', '.join(repr(query.id) for query in unanswered)}")
    # Before anything is asked: a missing key, or a result that cannot be written, would be found only after paying.
    asking = await call.asking(reports)
    require_writable(output / RESULT, output / ROWS, output / DETAILS)

    async def score(row: GoodRow[ReportRow] | LostRow) -> tuple[RaceRow, RaceJudged]:
        question = await strip_apparatus(asking, partners.question(require_value(row)), _cleaning(args))
        judged = await judge_race(
            asking, question, samples=args.samples, position_swap=args.position_swap, compat=args.compat
        )
        # The digest identifies the scored article for later stages: reports are replaced under the same id.
        scored = race_row(require_value(row).id, question.query, question.language, judged)
        return scored.model_copy(update={"article_digest": article_digest(require_value(row).article)}), judged

    def write(results: Sequence[tuple[RaceRow, RaceJudged] | AgentbenchError | None]) -> tuple[Path, ...]:
        lines: list[dict[str, Any]] = []
        scored: list[tuple[RaceRow, RaceJudged]] = []
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, AgentbenchError):
                lines.append(failed_row(row, "race_error", result))
            elif result is not None:
                lines.append(result[0].model_dump(exclude_unset=True))
                scored.append(result)
        return (
            write_text(output / RESULT, result_text(race_means([row for row, _ in scored]))),
            write_rows(output / ROWS, lines),
            write_rows(output / DETAILS, [race_details(row.id, judged) for row, judged in scored]),
        )

    results = await call.score("race", rows, score, label=name_row, write=write)
    if call.model is not None:
        print(f"{printable(call.model)}:")
    print_means([result[0] for result in results if isinstance(result, tuple)])


def _cleaning(args: argparse.Namespace) -> Cleaning:
    if args.skip_cleaning:
        return "none"
    if args.model_cleaning:
        return "model"
    return "deterministic"


def _references(args: argparse.Namespace) -> Path | None:
    if args.pointwise:
        return None
    return args.reference_file or REFERENCES


async def grade_report(grading: Grading) -> RaceJudged:
    """Return the judge's scores of the quality of one item's report. Raises Unscored, ConfigError."""
    scoring, criteria = grading.scoring, grading.material.criteria
    assert criteria is not None
    question = RaceQuestion(
        case_id=grading.case.case_id,
        language=grading.task.language,
        query=grading.task.prompt,
        article=grading.report.article,
        reference=grading.material.reference,
        criteria=_usable(criteria, grading.config, str(grading.task.criteria)),
    )
    question = await strip_apparatus(grading.asking, question, scoring.cleaning)
    return await judge_race(
        grading.asking, question, samples=scoring.samples, position_swap=scoring.position_swap, compat=scoring.compat
    )


def list_metrics(grading: Grading) -> Metrics:
    """Yield the overall score, the dimensions' scores, their weighted sum and the spread over the samples."""
    race = grading.score("race")
    draws = [draw.overall for draw in race.draws]
    yield "race", race.overall, {"draws": draws} if race.overall is not None else {"reason": NO_POINTS}
    for name in RACE_DIMENSIONS:
        yield f"race_{name}", race.dimensions[name], describe_score(race.dimensions[name], NO_POINTS)
    yield "race_weighted_dims", race.weighted_dimensions, describe_score(race.weighted_dimensions, NO_POINTS)
    # Of one sample there is no spread, and a metric without a score would look like a failure.
    if race.sd is not None:
        yield "race_sd", race.sd, {}


def keep_evidence(score: RaceJudged) -> Mapping[str, Any]:
    """Return the judge's scores of the first criteria of the first draw."""
    criteria = (
        CriterionScore(
            dimension=name,
            criterion=clip_middle(criterion_score.criterion, LONGEST_EVIDENCE),
            target=criterion_score.target,
            reference=criterion_score.reference,
            analysis=clip_middle(criterion_score.analysis, LONGEST_EVIDENCE),
        )
        for name, scored in score.scored[0].items()
        for criterion_score in scored
    )
    return {"criteria": tuple(islice(criteria, _MOST_CRITERIA))}


def _usable(criteria: RaceCriteria, config: PoetConfig, place: str) -> RaceCriteria:
    """Return the criteria with the configured weights.

    Raises ConfigError, which names their `place`, if a dimension is missing.
    """
    if not config.query_selection.enable_dynamic_weighting:
        criteria = criteria.model_copy(update={"dimension_weight": dict(config.race_weights.by_dimension)})
    if problems := list(find_unusable(criteria)):
        raise ConfigError(f"{place}: {'; '.join(map(str, problems))}")
    return criteria
