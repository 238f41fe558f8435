"""A kind of file that holds cases, as collection, `list`, `validate`, suites and scripts see it."""

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


class SourceRequest(NamedTuple):
    """The request with which a file is opened: the config root above it, and what the session says.

    `known` are the names of runners, checks and metrics that there are; `metrics` win over the file's own. Code that
    reads a file is imported only with `run_code`. `allow_outside`: its paths may lead anywhere.
    """

    root: ConfigRoot
    known: Known = UNVERIFIED
    metrics: tuple[MetricSpec, ...] | None = None
    run_code: bool = False
    allow_outside: bool = False
    run_profile: RunProfile | None = None


class SourceCase(NamedTuple):
    """A case as collection keeps it: `make` builds the record when the case runs.

    `path` and `line` (1-based) say where it stands. `number` is its 0-based place among all rows, good or bad, where a
    list of predictions can answer them in order. `own_metrics`: it names metrics beside those of its file.
    """

    case_id: str
    tags: tuple[str, ...]
    path: Path
    line: int
    make: Callable[[], Case]
    number: int | None = None
    own_metrics: bool = False


class BadRow(NamedTuple):
    """A row that cannot be a case; `message` has a whole sentence `file:line:column: ...` for each problem.

    `name` is what stands for it among the items, None: its line.
    """

    line: int
    message: str
    path: Path
    name: str | None = None


class IndexedCase(NamedTuple):
    """A case as suites see it: where it is written and what selects it."""

    case_id: str
    tags: tuple[str, ...]
    path: Path
    line: int


class Claims(NamedTuple):
    """The data files that a descriptor uses, which therefore hold no cases of their own.

    `listed` are those whose rows it describes, `others` what else it reads, `tree` a whole folder. `unknown`: it cannot
    be read, or says neither, so nobody knows.
    """

    listed: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    tree: str | None = None
    unknown: bool = False


class StoredAnswers(Protocol):
    """A runner that asks nobody: what was answered elsewhere, in a file, each answer taken as one run."""

    @property
    def path(self) -> Path:
        """Return the file."""

    @property
    def samples(self) -> int:
        """Return how many repetitions there are answers for, at most."""

    @property
    def model_id(self) -> str:
        """Return what stands for a model in ids and reports."""

    def digest(self, case: Case, repetition: int) -> str | None:
        """Return the SHA-256 of an answer, None where there is none."""

    async def __call__(self, case: Case, context: Any) -> Any:
        """Give the answer as a runner does."""


class OpenedSource(ABC):
    """A file that was opened: what it says of all its cases, and its rows.

    `name` begins the case ids, so that no other file of the root may have it; with `own_ids` the ids are the rows' own,
    and unique in the root themselves. `file` is whom names and ids belong to. `metrics` decide the rows that have none
    of their own. `ordered`: rows can be answered by a list of predictions. `alike`: all need the same of a machine.
    `is_remote`: rows are downloaded when they are read. `asks_judge`: grading asks the profile's first judge.
    `subjects` are the files of all that could be scored together. `prediction_fields` says where files of predictions
    have ids and answers, None: in the usual places.
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

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def file(self) -> Path:
        """Return the file that makes the source what it is, however it was opened."""
        return self.path

    @property
    def part(self) -> Path:
        """Return the same, but where one of several data files was opened that one: its rows count from 0."""
        return self.file

    @abstractmethod
    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the cases, of one of its own subjects where that is given, else each once.

        Raises ConfigError where the file cannot be read at all.
        """

    def own_subjects(self) -> Sequence[StoredAnswers] | None:
        """Return the stored answers that are the subject in place of the session's models; None: those are."""
        return None

    def problems(self) -> Iterator[BadRow]:
        """Yield what is wrong beside the rows, told once however many subjects there are. Raises ConfigError."""
        yield from ()

    def explain(self, row: SourceCase, problems: Sequence[tuple[Loc, str]]) -> ConfigError:
        """Return the error that tells problems of a row, each at a field of the case."""
        return ConfigError(f"{row.path}:{row.line}:1: {'; '.join(text for _, text in problems)}")

    def doubts(self, known: Known) -> Iterator[tuple[str, str]]:
        """Yield doubts about the file as a whole, each as `file:line:column: text` and as the text alone."""
        yield from ()

    def field_doubts(self) -> Iterator[tuple[str, str]]:
        """Yield the same of request fields in the runner's settings that no endpoint is known to take."""
        yield from ()

    def row_doubts(self, rows: Iterable[SourceCase]) -> Iterator[str]:
        """Yield doubts about the good rows, `file:line:column: warning: text`, in one pass that takes all of them."""
        deque(rows, maxlen=0)
        yield from ()


class CaseSource(ABC):
    """A kind of file that holds cases. Its file names and words stand in its name, see `sources/names.py`.

    `holds` says what its cases are, for people. `is_one_case`: what is wrong with the case is wrong with the file, and
    other data in its folder are attachments. `names_data`: it is a YAML file that names data files, which then hold no
    cases of their own. `brings_subjects`: `own_subjects` may give some, so that the session's models need not be known.
    `not_by_hand` is what a case is called where it decides itself, so that no hand-written test can take it.
    """

    holds = "cases"
    is_one_case = False
    names_data = False
    brings_subjects = False
    not_by_hand: str | None = None

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return whether a file of such a name holds cases. `head` is its beginning, of YAML all, None: unreadable.

        Data: 64 KB, of JSONL at least a whole first line. What cannot be read is said when the file is opened.
        """
        return head is None or "schema_version" in head

    @abstractmethod
    def open(self, path: Path, request: SourceRequest) -> OpenedSource:
        """Return the opened file. Raises ConfigError with all that is wrong with it."""

    def index(self, path: Path, request: SourceRequest) -> Iterator[IndexedCase]:
        """Yield the cases for suites; nothing has to be validated for that. Raises ConfigError."""
        rows = (row for row in self.open(path, request).rows() if isinstance(row, SourceCase))
        yield from (IndexedCase(row.case_id, row.tags, path, row.line) for row in rows)

    def claims(self, data: Mapping[str, Any], scope: Scope) -> Claims:
        """Return the data files that a file with this content uses, where the kind `names_data`."""
        return Claims()


_MOST_REPORTED = 100
T = TypeVar("T")


def limit_bad(rows: Iterable[T | BadRow], more: Callable[[BadRow, int], BadRow]) -> Iterator[T | BadRow]:
    """Yield the rows; after 100 bad ones the rest are only counted, in what `more` makes of the last and their number.

    A file of another kind would be as many errors as it has lines.
    """
    bad, last = 0, None
    for row in rows:
        if not isinstance(row, BadRow) or (bad := bad + 1) <= _MOST_REPORTED:
            yield row
        else:
            last = row
    if last is not None:
        yield more(last, bad - _MOST_REPORTED)
