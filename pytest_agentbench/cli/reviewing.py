"""Review of judged runs by people: selection of runs, the questions, the file of labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_agentbench.cli.labels import append_label, label_row
from pytest_agentbench.cli.output import Standard
from pytest_agentbench.cli.review_text import render_run
from pytest_agentbench.engine.run_plan import rubric_hash
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.reports.human_agreement import Label
from pytest_agentbench.reports.stored_runs import load_stored_run

_VERDICTS: dict[str, Literal["passed", "failed"]] = {
    "p": "passed",
    "passed": "passed",
    "f": "failed",
    "failed": "failed",
}
_HELP = "p: it passed; f: it failed; s: skip it for now; q: end here, with all answers kept"


class ReviewEnded(Exception):
    """The input has ended, or the annotator quit."""


@dataclass(frozen=True, slots=True)
class Reviewable:
    """A judged run with its case. `row` is its row in report.json."""

    row: Mapping[str, Any]
    case: Case

    @property
    def is_scored(self) -> bool:
        """Return whether a judge gave a score, and so people are asked for one."""
        return any(judged["score"] is not None for judged in self.row["judged"])


@dataclass(frozen=True, slots=True)
class SelectedRuns:
    """The runs to review, in order, and how many are not among them because their case is missing."""

    runs: list[Reviewable]
    without_case: int


def select_runs(report: Mapping[str, Any], cases: Iterable[Case], *, sample: int | None, seed: int) -> SelectedRuns:
    """Return the judged runs of a report, or `sample` of them, in an order that reveals nothing and depends only on
    `seed`.

    A run is left out if its case is not in `cases` with the rubric of the judge: people would use another rubric.
    """
    rows = {row["run_id"]: row for row in report["runs"] if row.get("judged") and row.get("run_id")}
    # Drawn by hash and not at random, so that every machine and call draws the same sample.
    drawn = sorted(rows.values(), key=lambda row: _rank_run(seed, row["run_id"]))[:sample]
    # By the rubric as it was judged: one that was edited since is another measure.
    by_rubric = {(case.case_id, rubric_hash(case)): case for case in cases}
    # `judged[0]`: judges of one run have the same rubric, that of its case.
    found = [(row, by_rubric.get((row["case_id"], row["judged"][0]["rubric"]))) for row in drawn]
    runs = [Reviewable(row, case) for row, case in found if case is not None]
    return SelectedRuns(runs, len(found) - len(runs))


def _rank_run(seed: int, run_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{run_id}".encode()).digest()


def _load_stored(output: Path, row: Mapping[str, Any]) -> RunArtifact | None:
    """Return the run of a row, or None if it is missing or its file holds another run."""
    artifact = load_stored_run(row, output).run
    # A later session may have stored another run in its place.
    if artifact is not None and artifact.run_id == row["run_id"]:
        return artifact
    return None


class Reviewer:
    """A dialogue: shows runs of an output folder, asks about them, and appends each answer to the file at once."""

    def __init__(self, path: Path, annotator: str, output: Path, terminal: Standard) -> None:
        self.path, self.annotator, self.output, self.terminal = path, annotator, output, terminal

    def ask(self, runs: Sequence[Reviewable]) -> int:
        """Show the runs and store the labels. Return their number. Raises ConfigError if the file cannot be written."""
        count = 0
        try:
            for number, each in enumerate(runs, start=1):
                self.terminal.write_sep("=", f"run {number} of {len(runs)}", bold=True)
                run = _load_stored(self.output, each.row)
                if run is None:
                    self.terminal.write_line(f"left out: {self.output} does not hold this run any more", yellow=True)
                    continue
                for line, markup in render_run(each.case, run):
                    self.terminal.write_line(line, **markup)
                # Written after each answer: an annotator may stop, or lose the connection, at any run.
                label = self._ask_label(each)
                if label is not None:
                    append_label(self.path, label)
                    count += 1
        except ReviewEnded:
            pass
        return count

    def _ask_label(self, each: Reviewable) -> Label | None:
        """Return the annotator's answers, None if the run is skipped."""
        verdict = self._ask_verdict("Did it pass?" if each.is_scored else "Is the answer correct?")
        if verdict is None:
            return None
        try:
            score = self._ask_score() if each.is_scored else None
            comment = self._read_answer("comment (Enter: none): ") or None
        except ReviewEnded:
            self.terminal.write_line("not saved: the last question has no answer; it is asked again", yellow=True)
            raise
        return label_row(each.row, verdict, self.annotator, score=score, comment=comment)

    def _ask_verdict(self, question: str) -> Literal["passed", "failed"] | None:
        while True:
            said = self._read_answer(f"{question} [p]assed, [f]ailed, [s]kip, [q]uit: ").lower()
            if said in _VERDICTS:
                return _VERDICTS[said]
            if said in ("s", "skip"):
                return None
            if said in ("q", "quit"):
                raise ReviewEnded
            self.terminal.write_line(_HELP)

    def _ask_score(self) -> float | None:
        while True:
            said = self._read_answer("score, 0 (worthless) to 10 (nothing to improve) (Enter: none): ")
            if not said:
                return None
            try:
                # Half the world writes 7,5.
                score = float(said.replace(",", "."))
            except ValueError:
                score = -1.0
            if 0 <= score <= 10:
                return score
            self.terminal.write_line(f"found {said!a}, expected a number from 0 to 10")

    def _read_answer(self, prompt: str) -> str:
        """Return the typed text. Raises ReviewEnded at the input's end."""
        self.terminal.write(prompt, flush=True)
        try:
            return input().strip()
        except EOFError:
            self.terminal.line()
            raise ReviewEnded from None
