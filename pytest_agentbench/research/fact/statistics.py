"""The statistics of FACT: how many citations of a report hold (seed 003; DeepResearch Bench, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

Label = Literal["supported", "unsupported", "unknown"]

_ORIGINAL = ("total_citations", "total_valid_citations", "valid_rate")
_OURS = (
    *("macro_accuracy", "total_citations_all", "total_valid_citations_all", "supported_per_1000_words"),
    *("supported", "unsupported", "unknown", "without_url"),
    *("n_total", "n_scored", "n_failed", "n_with_citations"),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """The citations of one report by what became of them; `words` is the report's length, None where unknown.

    `without_url` of the unknown ones have no address, so that nobody can check them.
    """

    supported: int = 0
    unsupported: int = 0
    unknown: int = 0
    words: int | None = None
    without_url: int = 0

    @property
    def known(self) -> int:
        """Those whose page could be read and compared."""
        return self.supported + self.unsupported

    @property
    def accuracy(self) -> float | None:
        """The share of known citations that hold, 0-1."""
        return self.supported / self.known if self.known else None

    @property
    def total(self) -> int:
        """All citations."""
        return self.known + self.unknown

    @property
    def per_1000_words(self) -> float | None:
        """Supported citations for 1,000 words of the report (引用丰富度)."""
        return 1000 * self.supported / self.words if self.words else None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Over a set of reports. The first three are the original's, over reports with citations; `_all` is over all.

    `total_citations` and `total_valid_citations` are means per report, `valid_rate` is over all known citations,
    `macro_accuracy` the mean of the reports' own. None where there is nothing to divide by.
    """

    total_citations: float | None
    total_valid_citations: float | None
    valid_rate: float | None
    macro_accuracy: float | None
    total_citations_all: float | None
    total_valid_citations_all: float | None
    supported_per_1000_words: float | None
    n_total: int
    n_with_citations: int
    n_failed: int
    supported: int
    unsupported: int
    unknown: int
    without_url: int

    @property
    def n_scored(self) -> int:
        """Reports whose citations could be looked into."""
        return self.n_total - self.n_failed


def statistics(counts: Sequence[Counts], n_failed: int = 0) -> Statistics:
    """Of the reports that were scored; `n_failed` more could not be, and are in `n_total` only."""
    cited = [each for each in counts if each.total]
    supported, known = sum(c.supported for c in counts), sum(c.known for c in counts)
    accuracies = [each.accuracy for each in counts if each.accuracy is not None]
    rich = [each.per_1000_words for each in counts if each.per_1000_words is not None]
    return Statistics(
        total_citations=_mean(each.known for each in cited),
        total_valid_citations=_mean(each.supported for each in cited),
        valid_rate=supported / known if known else None,
        macro_accuracy=_mean(accuracies),
        total_citations_all=_mean(each.known for each in counts),
        total_valid_citations_all=_mean(each.supported for each in counts),
        supported_per_1000_words=_mean(rich),
        n_total=len(counts) + n_failed,
        n_with_citations=len(cited),
        n_failed=n_failed,
        supported=supported,
        unsupported=known - supported,
        unknown=sum(each.unknown for each in counts),
        without_url=sum(each.without_url for each in counts),
    )


def result_text(found: Statistics, *, compat: bool = False) -> str:
    """fact_result.txt: the original's three lines, `compat` these alone; then ours. What is not known is null."""
    values = {name: getattr(found, name) for name in (_ORIGINAL if compat else _ORIGINAL + _OURS)}
    return "".join(f"{name}: {'null' if value is None else value}\n" for name, value in values.items())


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return fsum(found) / len(found) if found else None
