"""The seam for kinds of files with cases, which collection, `list`, `validate`, suites and scripts use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pytest_agentbench.config.base import UNVERIFIED, Known, Scope
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case, MetricSpec

if TYPE_CHECKING:
    from pytest_agentbench.config.dataset_file import PredictionFields
    from pytest_agentbench.config.profiles import RunProfile
    from pytest_agentbench.config.variant_files import FileWithVariants


class SourceRequest(NamedTuple):
    """Arguments for opening a file: the config root above it and settings of the session.

    `known` are the names of existing runners, checks and metrics. `metrics` replace the file's own. Code that reads a
    file is imported only if `run_code`. With `allow_outside` its paths may lead out of the root.
    """

    root: ConfigRoot
    known: Known = UNVERIFIED
    metrics: tuple[MetricSpec, ...] | None = None
    run_code: bool = False
    allow_outside: bool = False
    run_profile: RunProfile | None = None


class SourceCase(NamedTuple):
    """A case as collection stores it: `make` builds the record when the case runs.

    `path` and `line` (1-based) are its place. `number` is its 0-based position among all rows, good or bad, if a list
    of predictions can answer them in order. `own_metrics`: it names metrics in addition to those of its file.
    `repetitions` is how often it runs, unless the run profile asks for more or the command line for another number.
    """

    case_id: str
    tags: tuple[str, ...]
    path: Path
    line: int
    make: Callable[[], Case]
    number: int | None = None
    own_metrics: bool = False
    repetitions: int = 1


class BadRow(NamedTuple):
    """A row that cannot be a case; `message` has a sentence `file:line:column: ...` for each problem.

    `name` is its name among the items, by default its line.
    """

    line: int
    message: str
    path: Path
    name: str | None = None


class IndexedCase(NamedTuple):
    """A case as suites see it: its place and the fields that select it."""

    case_id: str
    tags: tuple[str, ...]
    path: Path
    line: int


class Claims(NamedTuple):
    """The data files that a descriptor uses, which therefore have no cases apart from it.

    `listed` are the files whose rows it describes, `others` its other files, `tree` a whole folder. `unknown`: it
    cannot be read or names no files.
    """

    listed: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    tree: str | None = None
    unknown: bool = False


class StoredAnswers(Protocol):
    """A runner without a model: it reads stored answers from a file, each of which counts as one run."""

    @property
    def path(self) -> Path:
        """Return the file."""

    @property
    def samples(self) -> int:
        """Return the largest number of repetitions that have answers."""

    @property
    def model_id(self) -> str:
        """Return the name that replaces a model's in ids and reports."""

    def digest(self, case: Case, repetition: int) -> str | None:
        """Return the SHA-256 of an answer, or None if there is no answer."""

    async def __call__(self, case: Case, context: Any) -> Any:
        """Return the stored answer as the result of a run."""


class OpenedSource(ABC):
    """An opened file: facts about all its cases, and its rows.

    `name` begins the case ids and must be unique in the root; with `own_ids` the rows' ids are used unchanged and must
    be unique themselves. `file` is the file that names and ids belong to. `metrics` decide rows without metrics.
    `ordered`: a list of predictions can answer the rows. `alike`: all rows need the same of a machine. `is_remote`:
    reading the rows downloads them. `asks_judge`: grading asks the profile's first judge. `subjects` are the files that
    could be scored together. `prediction_fields` are the keys of ids and answers in files of predictions, None for the
    usual ones. `declaring` is the file's content if it declares variants of its cases, `default_variants` are the
    variants of its cases if neither a file nor the command line declares some.
    """

    name: str | None = None
    metrics: tuple[MetricSpec, ...] = ()
    own_ids = False
    ordered = False
    alike = False
    is_remote = False
    asks_judge = False
    subjects: tuple[Path, ...] = ()
    prediction_fields: PredictionFields | None = None
    declaring: FileWithVariants | None = None
    default_variants: FileWithVariants | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def file(self) -> Path:
        """Return the file that defines the source, independent of how it was opened."""
        return self.path

    @property
    def part(self) -> Path:
        """Return `file`, or the single data file if one of several was opened: its rows count from 0."""
        return self.file

    @abstractmethod
    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the cases of one of the source's subjects, or each case once if `subject` is None.

        Raises ConfigError if the file cannot be read.
        """

    def own_subjects(self) -> Sequence[StoredAnswers] | None:
        """Return the stored answers that replace the session's models, or None if the models run the cases."""
        return None

    def problems(self) -> Iterator[BadRow]:
        """Yield problems other than those of rows, once for all subjects. Raises ConfigError."""
        yield from ()

    def explain(self, row: SourceCase, problems: Sequence[tuple[Loc, str]]) -> ConfigError:
        """Return the error for problems of a row, each at a field of the case."""
        return ConfigError(f"{row.path}:{row.line}:1: {'; '.join(text for _, text in problems)}")

    def doubts(self, known: Known) -> Iterator[tuple[str, str]]:
        """Yield doubts about the file as a whole, each as `file:line:column: text` and as the text alone."""
        yield from ()

    def field_doubts(self) -> Iterator[tuple[str, str]]:
        """Yield doubts about fields: request fields that no endpoint is known to accept, patterns with a backspace."""
        yield from ()

    def row_notes(self) -> Iterator[str]:
        """Yield notes on the rows that were read, as `file:line:column: text`."""
        yield from ()

    def row_doubts(self, rows: Iterable[SourceCase]) -> Iterator[str]:
        """Yield doubts about the good rows, `file:line:column: warning: text`, in one pass that takes all of them."""
        deque(rows, maxlen=0)  # read to the end, because the caller counts the rows while they pass
        yield from ()


class CaseSource(ABC):
    """A kind of file that contains cases. Its name has the patterns of file names and the words, see
    `sources/names.py`.

    `holds` describes its cases for people. `is_one_case`: problems of the case are problems of the file, and other data
    in its folder are attachments. `names_data`: it is a YAML file that lists data files, which then have no cases apart
    from it. `brings_subjects`: `own_subjects` may return some, so that the session needs no models. `not_by_hand`
    describes a case that decides itself, which no hand-written test can use.
    """

    holds = "cases"
    is_one_case = False
    names_data = False
    brings_subjects = False
    not_by_hand: str | None = None

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return whether a file of such a name contains cases. `head` is all of a YAML file or the beginning of a data
        file (64 KB, and at least the first line of JSONL), None if it is unreadable.

        Opening the file reports why it cannot be read.
        """
        return head is None or "schema_version" in head

    @abstractmethod
    def open(self, path: Path, request: SourceRequest) -> OpenedSource:
        """Return the opened file. Raises ConfigError with all its problems."""

    def index(self, path: Path, request: SourceRequest) -> Iterator[IndexedCase]:
        """Yield the cases for suites. A subclass may do so without a validation. Raises ConfigError."""
        rows = (row for row in self.open(path, request).rows() if isinstance(row, SourceCase))
        yield from (IndexedCase(row.case_id, row.tags, path, row.line) for row in rows)

    def claims(self, data: Mapping[str, Any], scope: Scope) -> Claims:
        """Return the data files that a file with this content uses, if the kind `names_data`."""
        return Claims()


_MOST_REPORTED = 100
T = TypeVar("T")


def limit_bad(rows: Iterable[T | BadRow], more: Callable[[BadRow, int], BadRow]) -> Iterator[T | BadRow]:
    """Yield the rows. After 100 bad rows count the others, and yield `more(last bad row, their number)` at the end.

    A file of another kind would otherwise give as many errors as it has lines.
    """
    bad, last = 0, None
    for row in rows:
        if not isinstance(row, BadRow) or (bad := bad + 1) <= _MOST_REPORTED:
            yield row
        else:
            last = row
    if last is not None:
        yield more(last, bad - _MOST_REPORTED)
