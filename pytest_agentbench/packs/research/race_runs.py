"""Means of stored RACE scores: of one file, over several runs of a model, and the paired difference of two files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.writing import write_document, write_text
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.packs.research.call import Call, StageOutcome
from pytest_agentbench.packs.research.inputs import input_rows, language_of_row, name_row, require_value
from pytest_agentbench.packs.research.race_judging import sample_deviation
from pytest_agentbench.packs.research.records import Language
from pytest_agentbench.packs.research.rows import GoodRow, LostRow, prompt_key
from pytest_agentbench.packs.research.scores import LABELS, RaceRow
from pytest_agentbench.statistics.estimates import Interval, mean_known
from pytest_agentbench.statistics.paired import difference_interval, mean_difference, sign_flip

RESULT, RUNS = "race_result.txt", "race_runs.json"

_MOST_NAMED = 5
"""Tasks that a warning names."""

Means = Mapping[str, float | None]


def race_means(rows: Sequence[RaceRow]) -> dict[str, float | None]:
    """Return the mean of each score by its name, over the rows that have it, or None without any."""
    return {name: mean_known(getattr(row, name) for row in rows) for name in LABELS}


def result_text(means: Means, suffix: str = "") -> str:
    """Return race_result.txt: five lines with four decimals, `null` if nothing is scored."""
    texts = {name: "null" if means[name] is None else f"{means[name]:.4f}" for name in LABELS}
    return "".join(f"{label}{suffix}: {texts[name]}\n" for name, label in LABELS.items())


def print_means(rows: Sequence[RaceRow]) -> None:
    """Print the means, for several languages also of each."""
    print(result_text(race_means(rows)), end="")
    by_language: dict[Language, list[RaceRow]] = {}
    for row in rows:
        by_language.setdefault(language_of_row(row), []).append(row)
    if len(by_language) < 2:
        return
    for language, group in sorted(by_language.items()):
        print(f"Overall Score ({language}, {len(group)} of {len(rows)}): {race_means(group)['overall_score']:.4f}")


@dataclass(frozen=True, slots=True)
class Run:
    """Scored rows of one result file, in its order."""

    file: Path
    rows: tuple[RaceRow, ...]

    @property
    def overall(self) -> dict[str, float]:
        """Return the overall scores by the keys of their prompts."""
        return {prompt_key(row.prompt): row.overall_score for row in self.rows if row.overall_score is not None}


@dataclass(frozen=True, slots=True)
class RunDifference:
    """Difference of the overall scores of two files, the second less the first, over their common tasks.

    `ci95` is None for fewer than six tasks that differ.
    """

    tasks: int
    difference: float
    ci95: Interval | None
    test: str
    p_value: float

    def __str__(self) -> str:
        interval = "" if self.ci95 is None else f", 95 % interval {self.ci95[0]:+.4f} to {self.ci95[1]:+.4f}"
        return f"{self.difference:+.4f}{interval}, p = {self.p_value:.4f} ({self.test}, {self.tasks} tasks)"


def means_over_runs(runs: Sequence[Run]) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the mean of each score over the means of the runs, and their sample standard deviation.

    A deviation is None if fewer than two runs have the score.
    """
    of_runs = [race_means(run.rows) for run in runs]
    means, deviations = dict[str, float | None](), dict[str, float | None]()
    for name in LABELS:
        known = [value for run_means in of_runs if (value := run_means[name]) is not None]
        means[name], deviations[name] = mean_known(known), sample_deviation(known)
    return means, deviations


def run_difference(first: Run, second: Run) -> RunDifference | None:
    """Return the paired difference, by the test of `agentbench compare`; None if the files have no task in common."""
    before, after = first.overall, second.overall
    # Sorted by task: the test's draws do not depend on the order of a file.
    differences = [after[key] - before[key] for key in sorted(before.keys() & after.keys())]
    if not differences:
        return None
    test, p_value = sign_flip(differences)
    return RunDifference(
        len(differences), mean_difference(differences), difference_interval(differences), test, p_value
    )


async def stored_scores(call: Call, files: Sequence[Path], output: Path) -> None:
    """Write race_result.txt of one raw_results.jsonl, or of several runs. Raises ConfigError for an unreadable file."""
    if len(files) == 1:
        print_means((await _read_run(call, files[0], output)).rows)
        return
    runs = []
    for number, file in enumerate(files, 1):
        call.begin_model(f"run {number}", models=len(files))
        runs.append(await _read_run(call, file, None))
    _warn_of_other_tasks(call, runs)
    means, deviations = means_over_runs(runs)
    difference = run_difference(*runs) if len(runs) == 2 else None
    text = f"{result_text(means)}Runs: {len(runs)}\n{result_text(deviations, ' SD')}"
    document: dict[str, Any] = {
        "runs": [{"file": str(run.file), "n_scored": len(run.rows), "means": race_means(run.rows)} for run in runs],
        "mean": means,
        "sd": deviations,
        "difference": None,
    }
    if difference is not None:
        text += f"Overall Score Difference: {difference}\n"
        document["difference"] = asdict(difference)
    written = write_text(output / RESULT, text), write_document(output / RUNS, document)
    call.ends.append(StageOutcome("runs", len(runs), len(runs), 0, written))
    print(text, end="")


async def _read_run(call: Call, file: Path, output: Path | None) -> Run:
    """Return the scored rows of a file; their means are written to the folder `output`, if any."""

    async def score(row: GoodRow[RaceRow] | LostRow) -> RaceRow:
        return require_value(row).scored

    def write(results: Sequence[RaceRow | AgentbenchError | None]) -> tuple[Path, ...]:
        scored = [result for result in results if isinstance(result, RaceRow)]
        if output is None:
            return ()
        return (write_text(output / RESULT, result_text(race_means(scored))),)

    results = await call.score("race", input_rows(call, file, RaceRow), score, label=name_row, write=write)
    return Run(file, tuple(result for result in results if isinstance(result, RaceRow)))


def _warn_of_other_tasks(call: Call, runs: Sequence[Run]) -> None:
    """Name the tasks that a run lacks: means over other tasks differ for that alone."""
    ids = {prompt_key(row.prompt): row.id for run in runs for row in run.rows}
    for run in runs:
        lacking = [repr(ids[key]) for key in ids.keys() - {prompt_key(row.prompt) for row in run.rows}]
        if lacking:
            names = ", ".join(sorted(lacking)[:_MOST_NAMED])
            more = f" and {len(lacking) - _MOST_NAMED} more" * (len(lacking) > _MOST_NAMED)
            call.warn(f"{run.file}: has no scores of {names}{more}, which other runs have")
