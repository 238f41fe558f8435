"""Stage criteria: the weight of each of RACE's dimensions for a query, and the criteria of each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, StringConstraints, ValidationError

from pytest_agentbench.bounded.files import MAX_RECORD
from pytest_agentbench.bounded.writing import format_rows, require_writable, write_text
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, read_json
from pytest_agentbench.packs.research.asking import (
    NUMBER,
    PROMPT_VERSION,
    TEXT,
    WORDINGS,
    Asking,
    gather_all,
    list_schema,
    object_schema,
)
from pytest_agentbench.packs.research.call import Call, case_id
from pytest_agentbench.packs.research.commands import CRITERIA, QUERIES, add, add_config, add_judge, add_rows
from pytest_agentbench.packs.research.inputs import (
    chosen_rows,
    failed_row,
    input_rows,
    join_rows,
    language_by_query,
    language_of_row,
    name_row,
    require_value,
)
from pytest_agentbench.packs.research.race_judging import normalise_text
from pytest_agentbench.packs.research.records import (
    RACE_DIMENSIONS,
    Language,
    QueryRow,
    RaceCriteria,
    RaceCriterion,
    RaceDimension,
    ReportRow,
    RowId,
)
from pytest_agentbench.packs.research.rows import GoodRow, LostRow, prompt_key, read_research_rows, read_utf8
from pytest_agentbench.statistics.estimates import mean_of

WEIGHTS_STAGE, _JUDGED_STAGE = "weights", "criteria"
SAMPLES = 5
"""How often the weights of the dimensions are asked for; their mean counts."""
# Tolerance of the sum of weights: more than rounding to a few decimals can add up to is asked for again.
SUM_ERROR = 1e-6
_FEWEST, _MOST = 2, 15

_Weight = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


_WEIGHTS_FORMAT = structured(
    f"research_{WEIGHTS_STAGE}",
    {"reasoning": TEXT, "weights": object_schema(**dict.fromkeys(RACE_DIMENSIONS, NUMBER))},
)
_FORMAT = structured(
    f"research_{_JUDGED_STAGE}",
    {"criteria": list_schema(criterion=TEXT, explanation=TEXT, weight=NUMBER)},
)


class _Weights(ReplyPart):
    weights: dict[RaceDimension, _Weight]


class _Criterion(ReplyPart):
    criterion: _Name
    explanation: str = ""
    weight: _Weight


class _Criteria(ReplyPart):
    criteria: tuple[_Criterion, ...]


async def make_criteria(
    asking: Asking,
    case_id: str,
    query_id: RowId,
    prompt: str,
    language: Language,
    weights: Mapping[RaceDimension, float] | None = None,
) -> RaceCriteria:
    """Return the criteria of a query. Raises Unscored.

    `case_id` is the query's name in scripts. Dimensions whose `weights` are given are not weighed.
    """
    requests: list[Awaitable[Any]] = [_criteria(asking, case_id, prompt, language, name) for name in RACE_DIMENSIONS]
    if weights is None:
        requests.append(dimension_weights(asking, case_id, prompt, language))
    replies = await gather_all(*requests)
    return RaceCriteria(
        id=query_id,
        prompt=prompt,
        dimension_weight=replies.pop() if weights is None else dict(weights),
        criterions=dict(zip(RACE_DIMENSIONS, replies, strict=True)),
    )


async def dimension_weights(
    asking: Asking, case_id: str, prompt: str, language: Language
) -> dict[RaceDimension, float]:
    """Return the mean of five samples, which sums to 1. Raises Unscored if one is missing."""
    wording = WORDINGS[language]
    dimensions = "\n".join(f"- {text}" for text in wording.dimensions.values())
    messages = asking.messages(language, "weigh", {"query": prompt}, {"dimensions": dimensions})
    samples = await gather_all(
        *(
            asking(
                WEIGHTS_STAGE, case_id, messages, _WEIGHTS_FORMAT, _parse_weights, version=PROMPT_VERSION, draw=number
            )
            for number in range(1, SAMPLES + 1)
        )
    )
    return average_weights(samples)


def average_weights(samples: list[dict[RaceDimension, float]]) -> dict[RaceDimension, float]:
    """Return the mean of the samples, each divided by its sum."""
    # Each sample as shares first: one that sums to 1.05 would count more than the others.
    shares = [{name: sample[name] / fsum(sample.values()) for name in RACE_DIMENSIONS} for sample in samples]
    means = {name: mean_of([share[name] for share in shares]) for name in RACE_DIMENSIONS}
    total = fsum(means.values())
    return {name: mean / total for name, mean in means.items()}


def _parse_weights(text: str) -> dict[RaceDimension, float]:
    weights = read_json(text, _Weights).weights
    missing = [name for name in RACE_DIMENSIONS if name not in weights]
    if missing:
        raise InvalidReply("\n".join(f"- weights.{name}: missing" for name in missing))
    total = fsum(weights.values())
    # Rounded weights are normalised; far from 1 the judge has misread the question.
    if abs(total - 1) > 0.05:
        raise InvalidReply(f"- weights: found a sum of {total:g}, expected 1")
    return weights


async def _criteria(
    asking: Asking, case_id: str, prompt: str, language: Language, name: RaceDimension
) -> tuple[RaceCriterion, ...]:
    dimension = WORDINGS[language].dimensions[name]
    messages = asking.messages(language, "criteria", {"query": prompt}, {"dimension": dimension})
    # The four dimensions are asked side by side: a fixed number keeps a script's replies with theirs.
    number = RACE_DIMENSIONS.index(name) + 1
    return await asking(_JUDGED_STAGE, case_id, messages, _FORMAT, _parse, version=PROMPT_VERSION, request=number)


def _parse(text: str) -> tuple[RaceCriterion, ...]:
    criteria = read_json(text, _Criteria).criteria
    weights = [(criterion.criterion, criterion.weight) for criterion in criteria]
    problems = list(map(str, weight_problems("criteria", weights)))
    if not _FEWEST <= len(criteria) <= _MOST:
        problems.append(f"criteria: found {len(criteria)}, expected {_FEWEST} to {_MOST}")
    if problems:
        raise InvalidReply("\n".join(f"- {problem}" for problem in problems))
    return tuple(RaceCriterion(**criterion.model_dump()) for criterion in criteria)


class CriteriaProblem(NamedTuple):
    """Problem of a row of criteria, and where in the row it is."""

    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: found {self.found}, expected {self.expected}"


def find_unusable(criteria: RaceCriteria) -> Iterator[CriteriaProblem]:
    """Yield the dimensions by which nothing can be judged, as they have no weight or no criterion that counts."""
    for name in RACE_DIMENSIONS:
        if name not in criteria.dimension_weight:
            yield CriteriaProblem(f"dimension_weight.{name}", "nothing", "a weight")
        if not (group := criteria.criterions.get(name)):
            yield CriteriaProblem(f"criterions.{name}", "no criterion", "at least one")
        elif not any(criterion.weight for criterion in group):
            yield CriteriaProblem(f"criterions.{name}", "weights that are all 0", "at least one above 0")
    if criteria.dimension_weight and not any(criteria.dimension_weight.values()):
        yield CriteriaProblem("dimension_weight", "weights that are all 0", "at least one above 0")


def find_problems(criteria: RaceCriteria) -> Iterator[CriteriaProblem]:
    """Yield the problems of a row of criteria: missing dimensions, sums other than 1, repeated criteria."""
    yield from find_unusable(criteria)
    for name in RACE_DIMENSIONS:
        if group := criteria.criterions.get(name):
            weights = [(criterion.criterion, criterion.weight) for criterion in group]
            yield from weight_problems(f"criterions.{name}", weights)
    yield from _check_sum("dimension_weight", criteria.dimension_weight.values())


def weight_problems(field: str, criteria: Sequence[tuple[str, float]]) -> Iterator[CriteriaProblem]:
    """Yield the problems of one dimension's criteria, given as texts and weights."""
    seen: set[str] = set()
    for text, _ in criteria:
        if not normalise_text(text):
            yield CriteriaProblem(field, "a criterion without a text", "a text")
        elif normalise_text(text) in seen:
            yield CriteriaProblem(field, f"{text!r} twice", "each criterion once")
        seen.add(normalise_text(text))
    yield from _check_sum(field, [weight for _, weight in criteria])


def _check_sum(field: str, weights: Iterable[float]) -> Iterator[CriteriaProblem]:
    total = fsum(weights)
    if abs(total - 1) > SUM_ERROR:
        yield CriteriaProblem(field, f"weights that sum to {total:.9g}", "1")


ERROR = "criteria_error"


@dataclass(frozen=True, slots=True)
class CriteriaFile:
    """File of criteria: its lines, each with the key of its row's prompt, None without one.

    Lines that only contain the reason for missing criteria are left out.
    """

    path: Path
    lines: tuple[tuple[str | None, str], ...]

    @classmethod
    def read(cls, path: Path) -> CriteriaFile:
        """Read a file; a missing one has no lines. Raises ConfigError if it cannot be read, or is not JSONL."""
        try:
            text = read_utf8(path, MAX_RECORD)
        except ConfigError as error:
            # Any other reason, such as a loop of links, is an error before criteria are paid for.
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            text = ""
        # Rows are appended to the file, which is impossible in one JSON list.
        if text.lstrip().startswith("["):
            raise ConfigError(f"{path}:1:1: found one JSON list, expected JSONL, to which rows can be added")
        return cls(path, tuple(_key_line(line) for line in text.split("\n") if line.strip() and not _has_error(line)))

    def write(
        self,
        rows: Sequence[GoodRow[QueryRow] | LostRow],
        results: Sequence[RaceCriteria | AgentbenchError | None],
    ) -> list[str]:
        """Write the rows' criteria in their order, then the lines of other queries; print notes for the user.

        A line stays unless there are new criteria for it. Raises UnwritableError.
        """
        # The first of several lines of one prompt counts, as where rows are joined.
        lines_by_key = {key: line for key, line in reversed(self.lines) if key is not None}
        written: list[str] = []
        placed: set[str] = set()
        replaced: list[str] = []
        for row, result in zip(rows, results, strict=True):
            key = prompt_key(row.value.prompt) if isinstance(row, GoodRow) else None
            stored_line = lines_by_key.get(key) if key is not None else None
            # An equal line stays unchanged, byte for byte: people edit these files and compare them.
            if isinstance(result, RaceCriteria) and (stored_line is None or _parse_criteria(stored_line) != result):
                written.append(format_rows([result.model_dump()]))
                replaced += [name_row(row)] * (stored_line is not None)
            elif stored_line is not None:
                written.append(f"{stored_line}\n")
            elif isinstance(result, AgentbenchError):
                written.append(format_rows([failed_row(row, ERROR, result)]))
            if key is not None and (stored_line is not None or result is not None):
                placed.add(key)
        # Lines without a readable prompt stay too: they may be somebody's notes.
        others = [f"{line}\n" for key, line in self.lines if key not in placed]
        write_text(self.path, "".join(written + others))
        notes = [f"criteria that were there before are replaced: {', '.join(replaced)}"] * bool(replaced)
        return notes + [f"{len(others)} rows of other queries stay"] * bool(others)


def _key_line(line: str) -> tuple[str | None, str]:
    match _parse_line(line):
        case {"prompt": str(prompt)}:
            return prompt_key(prompt), line.rstrip("\r")
    return None, line.rstrip("\r")


def _has_error(line: str) -> bool:
    row = _parse_line(line)
    return isinstance(row, dict) and ERROR in row


def _parse_line(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _parse_criteria(line: str) -> RaceCriteria | None:
    try:
        return RaceCriteria.model_validate_json(line)
    except ValidationError:
        return None


STAGE = "criteria"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "criteria",
        description="Let a model weigh RACE's four dimensions for each query, and write the criteria of each. "
        "Existing rows stay unless --regenerate is given. The same command continues after an interruption and "
        "repeats no paid request. Exit status 0: every query has its criteria; 1: some have none; 2: wrong usage.",
    )
    files = parser.add_argument_group("files")
    add(files, "--query_file", type=Path, default=QUERIES, metavar="PATH", help="(default: %(default)s)")
    add(files, "--output_file", type=Path, default=CRITERIA, metavar="PATH", help="(default: %(default)s)")
    add(files, "--regenerate", action="store_true", help="replace existing criteria of these queries")
    add_config(files)
    add_rows(parser)
    add_judge(parser)


def run(args: argparse.Namespace) -> int:
    """Make the criteria."""
    call = Call(STAGE, args)
    return call.run(lambda: make_criteria_file(call, args.query_file, args.output_file, regenerate=args.regenerate))


async def make_criteria_file(
    call: Call, queries: Path, output: Path, *, regenerate: bool = False, reported: Collection[str] | None = None
) -> None:
    """Add criteria to criteria.jsonl for the queries of a query.jsonl that it lacks; its rows stay.

    With `regenerate` all of these queries get new ones, and rows of other queries stay. `reported` are the keys of the
    prompts with reports: other queries get no criteria. Raises ConfigError if a file cannot be read, or
    no judge is named.
    """
    dynamic = call.config.query_selection.enable_dynamic_weighting
    weights = None if dynamic else call.config.race_weights.by_dimension
    rows = input_rows(call, queries, QueryRow) if reported is None else _reported_rows(call, queries, reported)
    criteria_file = CriteriaFile.read(output)
    stored_criteria = join_rows(call, output, RaceCriteria) if criteria_file.lines and not regenerate else None
    asking = await call.asking(queries)
    require_writable(output)

    async def score(row: GoodRow[QueryRow] | LostRow) -> RaceCriteria:
        query = require_value(row)
        if stored_criteria is not None and query in stored_criteria:
            return stored_criteria.partner(query)
        return await make_criteria(asking, case_id(query.id), query.id, query.prompt, language_of_row(query), weights)

    def write(results: Sequence[RaceCriteria | AgentbenchError | None]) -> tuple[Path, ...]:
        for note in criteria_file.write(rows, results):
            call.warn(f"{output}: {note}")
        return (output,)

    await call.score(STAGE, rows, score, label=name_row, write=write)


def _reported_rows(call: Call, queries: Path, reported: Collection[str]) -> list[GoodRow[QueryRow] | LostRow]:
    """Return the rows of queries that there are reports on. --limit has chosen the reports already."""
    rows = chosen_rows(call, queries, read_research_rows(queries, QueryRow), limited=False)
    reported_rows = [row for row in rows if isinstance(row, LostRow) or prompt_key(row.value.prompt) in reported]
    if not reported_rows:
        raise ConfigError(f"{queries}: found no query of the reports, expected the prompts that they answer")
    return reported_rows


async def prepare_queries(call: Call) -> None:
    """Make the criteria that the pipeline's reports lack; where that fails, only RACE cannot go on."""
    # Without queries only existing criteria can be used.
    if call.args.query_file is not None:
        await call.attempt("criteria", _make_for_reports(call, call.args.query_file))


async def _make_for_reports(call: Call, file: Path) -> None:
    queries = join_rows(call, file, QueryRow)
    reported: set[str] = set()
    for model in call.args.target_models:
        reports = call.args.raw_data_dir / f"{model}.jsonl"
        # An unreadable file is reported once its reports are scored.
        with suppress(ConfigError):
            rows = read_research_rows(reports, ReportRow)
            chosen = chosen_rows(call, reports, rows, lambda report: language_by_query(queries, report))
            reported |= {prompt_key(row.value.prompt) for row in chosen if isinstance(row, GoodRow)}
    await make_criteria_file(call, file, call.args.criteria_file, reported=reported)
