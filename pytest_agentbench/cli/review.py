"""`agentbench review [REPORT.json]`: people say of judged runs whether they passed, blind to what judges said."""

from __future__ import annotations

import argparse
import getpass
import hashlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pytest_agentbench.cli.output import Standard
from pytest_agentbench.cli.review_text import render_run
from pytest_agentbench.engine.subject import rubric_hash
from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.reports.human_agreement import Label
from pytest_agentbench.store.documents import load_run
from pytest_agentbench.store.files import lies_below

_VERDICTS: dict[str, Literal["passed", "failed"]] = {
    "p": "passed",
    "passed": "passed",
    "f": "failed",
    "failed": "failed",
}
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_HELP = "p: it passed; f: it failed; s: skip it for now; q: end here, with all answers kept"


def require_plain(path: Path) -> None:
    """Raise ConfigError for what is no plain file of labels.

    A repository may bring a link: to a file of its reader's that a shell runs, to which names of its own are appended.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        what = "a link" if path.is_symlink() else "no file"
        raise ConfigError(f"{path}: found {what}, expected a file of labels; name the file itself with -o PATH")


class ReviewEnded(Exception):
    """The input has ended, or the annotator said so."""


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
    """Return the judged runs of a report, or `sample` of them, in an order that tells nothing and depends on `seed`
    alone.

    A run is left out where its case is not among `cases` as it was judged: people would measure it by another rubric
    than the judge.
    """
    rows = {row["run_id"]: row for row in report["runs"] if row.get("judged") and row.get("run_id")}
    # Drawn by hash and not at random: the same sample wherever and however often it is asked.
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
    """Return the run of a row, None where it is not there or another one lies in its place."""
    if row["artifact"] is None:
        return None
    try:
        # The report may be a stranger's: it names no file outside of the folder.
        if not lies_below(str(output), row["artifact"]):
            return None
        artifact = load_run(output, row["artifact"])
    except (InfrastructureError, ValueError):
        return None
    # A later session may have stored another run in its place.
    return artifact if artifact.run_id == row["run_id"] else None


class Reviewer:
    """A dialogue: shows runs of an output folder, asks about them, and appends each answer to the file at once."""

    def __init__(self, path: Path, annotator: str, output: Path, terminal: Standard) -> None:
        self.path, self.annotator, self.output, self.terminal = path, annotator, output, terminal

    def ask(self, runs: Sequence[Reviewable]) -> int:
        """Return how many labels came of it. Raises ConfigError where the file cannot be written."""
        added = 0
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
                    self._append_label(label)
                    added += 1
        except ReviewEnded:
            pass
        return added

    def _ask_label(self, each: Reviewable) -> Label | None:
        """Return the annotator's answers, None where the run is skipped."""
        verdict = self._ask_verdict("Did it pass?" if each.is_scored else "Is the answer correct?")
        if verdict is None:
            return None
        try:
            score = self._ask_score() if each.is_scored else None
            comment = self._read_answer("comment (Enter: none): ") or None
        except ReviewEnded:
            self.terminal.write_line("not kept: the last question was not answered; it is asked again", yellow=True)
            raise
        return Label(
            annotator=self.annotator,
            nodeid=each.row["nodeid"],
            run_id=each.row["run_id"],
            rubric=each.row["judged"][0]["rubric"],
            judges={judged["by"]: judged["judge"] for judged in each.row["judged"]},
            verdict=verdict,
            score=score,
            comment=comment,
            at=datetime.now(UTC),
        )

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
        """Return what was typed. Raises ReviewEnded at the input's end."""
        self.terminal.write(prompt, flush=True)
        try:
            return input().strip()
        except EOFError:
            self.terminal.line()
            raise ReviewEnded from None

    def _append_label(self, label: Label) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # O_NOFOLLOW and O_NONBLOCK close the gap after `require_plain`: a link or a FIFO put there meanwhile.
            with os.fdopen(os.open(self.path, _APPEND, 0o666), "a+b") as file:
                file.seek(0, os.SEEK_END)
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a line that somebody typed without its end
                        file.write(b"\n")
                file.write(label.line.encode("utf-8", "replace"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror or error}") from error


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "review",
        help="say of judged runs whether they passed, to compare judges with people",
        description="Show one judged run after the other, without its model and what the judge said, and ask whether "
        "it passed. Each answer is appended to a file at once; what an annotator has said is not asked again, unless "
        "the judge or the rubric has changed. Sessions, and agentbench report --human, compare judges with the file.",
    )
    default = Path("outputs/report.json")
    parser.add_argument(
        "report",
        nargs="?",
        type=Path,
        default=default,
        metavar="REPORT.json",
        help=f"the report, or its folder (default: {default})",
    )
    parser.add_argument("--annotator", type=_parse_name, metavar="NAME", help="who answers (default: the user's name)")
    parser.add_argument("--sample", type=_parse_positive, metavar="N", help="only N of the runs, drawn at random")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another order, another sample (default: 0)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        dest="human",
        metavar="PATH",
        help="the file of labels (default: human.jsonl, where sessions that are started here look for it)",
    )
    parser.add_argument(
        "--runs", type=Path, metavar="DIR", help="the output folder with the runs (default: the report's folder)"
    )
    parser.add_argument(
        "--cases", type=Path, action="append", metavar="PATH", help="where the cases are (default: .; repeatable)"
    )


def run(args: argparse.Namespace) -> int:
    """Ask until nothing is left, the input ends or somebody says so."""
    from pytest_agentbench.cli.output import Standard
    from pytest_agentbench.reports.human_agreement import read_labels
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.rows import HUMAN_FILE

    path = args.human or Path(HUMAN_FILE)
    annotator = args.annotator or _find_user_name()
    source = args.report / "report.json" if args.report.is_dir() else args.report
    report = read_report(source)
    require_plain(path)
    labels = read_labels(path) if path.exists() else []
    found = select_runs(report, _read_cases(args.cases or [Path()]), sample=args.sample, seed=args.seed)
    said = _group_labels(annotator, labels)
    todo = [each for each in found.runs if not _has_said(each, said)]
    terminal = Standard()
    terminal.write_line(_describe_begin(found.runs, todo, annotator))
    if found.without_case:
        runs = f"{found.without_case} run{'' if found.without_case == 1 else 's'}"
        why = "whose case is not here, or is another one since (run it again)"
        terminal.write_line(f"left out: {runs} {why}", yellow=True)
    added = Reviewer(path, annotator, args.runs or source.parent, terminal).ask(todo)
    if added:
        terminal.write_line(f"{added} label{'' if added == 1 else 's'} added to {path}")
    return 0


def _describe_begin(runs: list[Reviewable], todo: list[Reviewable], annotator: str) -> str:
    if not runs:
        return "no run to review: a model has to have judged it, and its case has to be here as it was then"
    done = len(runs) - len(todo)
    said = f"; {annotator} has labelled {done} before" if done else ""
    return f"{len(todo)} run{'' if len(todo) == 1 else 's'} to review{said}"


def _group_labels(annotator: str, labels: list[Label]) -> dict[str, list[Label]]:
    """Return what an annotator has said, by run."""
    said: dict[str, list[Label]] = defaultdict(list)
    for label in labels:
        if label.annotator == annotator:
            said[label.run_id].append(label)
    return said


def _has_said(run: Reviewable, said: Mapping[str, list[Label]]) -> bool:
    mine = said.get(run.row["run_id"], ())
    # A label stands for the judges and the rubric that the run had then: with others it is asked for again.
    return all(any(label.is_of(judged) for label in mine) for judged in run.row["judged"])


def _find_user_name() -> str:
    from pytest_agentbench.errors import ConfigError

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:  # an id without a name, as in containers
        raise ConfigError("this user has no name; say who answers: --annotator NAME") from error


def _parse_name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a name")
    return text.strip()


def _read_cases(paths: list[Path]) -> Iterator[Case]:
    """Yield the cases below the paths.

    What cannot be read is told on stderr: the runs of the others can be reviewed.
    """
    from pytest_agentbench.cli.list import cases_below
    from pytest_agentbench.cli.places import require_existing
    from pytest_agentbench.terminal_text import visible

    problems: list[str] = []
    yield from cases_below(require_existing(paths), problems)
    for problem in problems:
        print(visible(problem), file=sys.stderr)


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number from 1")
    return int(text)
