"""How far raters agree: coefficients of several votes on one thing, and kappas of two raters beyond chance."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, sqrt
from typing import NamedTuple

from pytest_agentbench.statistics.estimates import Interval, mean_of, t_quantile

Units = Sequence[Sequence[float]]


def krippendorff_alpha(units: Units) -> float | None:
    """Return Krippendorff's alpha at the interval level: 1 is full agreement, 0 is chance, negative is worse than
    chance.

    For votes of 0 and 1 this is alpha at the nominal level too. Votes of a unit are exchangeable, and single votes of a
    unit are ignored (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"). Because the distance is the
    squared difference, the sums over pairs are sums of squares about means, so the cost does not depend on the number
    of different scores. None without a unit of two votes, and if all votes are equal: the expected disagreement is 0
    then.
    """
    units = [unit for unit in units if len(unit) > 1]
    votes = [vote for unit in units for vote in unit]
    if len(set(votes)) < 2:
        return None
    observed = fsum(len(unit) / (len(unit) - 1) * _squares(unit) for unit in units)
    expected = len(votes) / (len(votes) - 1) * _squares(votes)
    if expected:
        return 1 - observed / expected
    return None


def within_sd(units: Units) -> float | None:
    """Return the standard deviation of the votes on one unit, pooled over the units.

    Bland & Altman 1996, "Measurement error", doi:10.1136/bmj.312.7047.1654. None without a unit of two votes.
    """
    units = [unit for unit in units if len(unit) > 1]
    free = sum(len(unit) - 1 for unit in units)
    if free:
        return sqrt(fsum(map(_squares, units)) / free)
    return None


def cv_percent(units: Units) -> float | None:
    """Return sigma / mu x 100 % of each unit's votes, with population sigma, averaged over units (seed 004, Table 7).

    Units with a single vote or a mean of 0 are ignored. None if there is no other unit.
    """
    variations = [
        100 * sqrt(_squares(unit) / len(unit)) / middle for unit in units if len(unit) > 1 and (middle := mean_of(unit))
    ]
    if variations:
        return mean_of(variations)
    return None


def pairwise_agreement(units: Units, verdict: Callable[[float], object]) -> float | None:
    """Return the share of pairs of votes on one unit with equal verdicts, the mean over units with a pair."""
    shares = []
    for unit in units:
        pairs = list(combinations(map(verdict, unit), 2))
        # A mean of units: one with ten votes has 45 pairs, and would outweigh the others
        if pairs:
            shares.append(sum(one == other for one, other in pairs) / len(pairs))
    if shares:
        return mean_of(shares)
    return None


def _squares(votes: Sequence[float]) -> float:
    middle = mean_of(votes)
    return fsum((vote - middle) ** 2 for vote in votes)


# How far two raters agree beyond chance: Cohen's kappa with what it has to be read with. None where undefined.
#
# Pairs come in groups, as in `estimates`: repetitions of one case resemble each other, so the variances are
# cluster-robust over cases (Yang & Zhou 2014, "Kappa statistic for clustered matched-pair data", Statistics in Medicine
# 33:2612). With one pair per case that of kappa is the large-sample variance of Fleiss, Cohen & Everitt (1969,
# Psychological Bulletin 72:323), with cases / (cases - 1) for small samples.


class Verdicts(NamedTuple):
    """Verdicts of two raters on one run."""

    people: bool
    judge: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Counts of runs that both raters passed, both failed, or only one of them passed."""

    both_passed: int
    both_failed: int
    only_people_passed: int
    only_judge_passed: int

    @classmethod
    def of(cls, pairs: Sequence[Verdicts]) -> Table:
        """Return the pairs, counted."""
        kinds = [Verdicts(True, True), Verdicts(False, False), Verdicts(True, False), Verdicts(False, True)]
        return cls(*(sum(pair == kind for pair in pairs) for kind in kinds))

    @property
    def n(self) -> int:
        """Return how many runs both raters judged."""
        return self.both_passed + self.both_failed + self.only_people_passed + self.only_judge_passed

    @property
    def agreed(self) -> int:
        """Return the number of runs on which both raters agree."""
        return self.both_passed + self.both_failed

    @property
    def people_passed(self) -> int:
        """Return how many people pass."""
        return self.both_passed + self.only_people_passed

    @property
    def judge_passed(self) -> int:
        """Return how many the judge passes."""
        return self.both_passed + self.only_judge_passed

    @property
    def by_chance(self) -> float:
        """Return the agreement expected of raters with these base rates that know nothing, 0-1; needs a pair."""
        people, judge = self.people_passed / self.n, self.judge_passed / self.n
        return people * judge + (1 - people) * (1 - judge)

    @property
    def kappa(self) -> float | None:
        """Return Cohen's kappa (1960, Educational and Psychological Measurement 20:37).

        None without a pair, and if both raters give one and the same rating only: the expected agreement is 1 then.
        """
        if not self.n or (self.people_passed == self.judge_passed and self.people_passed in (0, self.n)):
            return None
        return (self.agreed / self.n - self.by_chance) / (1 - self.by_chance)

    @property
    def prevalence_index(self) -> float | None:
        """Return how uneven passing and failing are, -1 to 1 (Byrt et al. 1993, J. Clinical Epidemiology 46:423)."""
        if self.n:
            return (self.both_passed - self.both_failed) / self.n
        return None

    @property
    def bias_index(self) -> float | None:
        """Return how much more of the runs the judge passes than people do, -1 to 1 (Byrt et al. 1993)."""
        if self.n:
            return (self.only_judge_passed - self.only_people_passed) / self.n
        return None

    @property
    def pabak(self) -> float | None:
        """Return kappa as it would be of raters without bias and prevalence: 2 x agreement - 1 (Byrt et al. 1993)."""
        if self.n:
            return 2 * self.agreed / self.n - 1
        return None


def kappa_interval(groups: Sequence[Sequence[Verdicts]]) -> Interval | None:
    """Return the 95 % t interval of Cohen's kappa, within -1 and 1; a group is one case's runs.

    None for fewer than two cases, if kappa is undefined, and if the sample has no spread: ten runs of perfect agreement
    do not bound the next ten.
    """
    groups = [group for group in groups if group]
    table = Table.of([pair for group in groups for pair in group])
    kappa = table.kappa
    if len(groups) < 2 or kappa is None:
        return None
    cases, chance = len(groups), table.by_chance
    judge, people, agreed = (count / table.n for count in (table.judge_passed, table.people_passed, table.agreed))

    def influence(pair: Verdicts) -> float:
        """Return how far one more such pair moves kappa, times n: its derivatives by agreement and by base rates."""
        rates = (judge if pair.people else 1 - judge) + (people if pair.judge else 1 - people)
        return ((pair.people == pair.judge) - agreed - (1 - kappa) * (rates - 2 * chance)) / (1 - chance)

    spread = cases / (cases - 1) * fsum(fsum(map(influence, group)) ** 2 for group in groups) / table.n**2
    if spread < _NO_SPREAD:
        return None
    half = t_quantile(cases - 1) * sqrt(spread)
    return max(-1.0, kappa - half), min(1.0, kappa + half)


_NO_SPREAD = 1e-24
"""Largest variance that is rounding of 0."""


def weighted_kappa(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return kappa of scores, disagreements weighted by their square (Cohen 1968, Psychological Bulletin 70:213).

    No categories are needed: over all values it is Lin's concordance correlation coefficient with population moments
    (1989, Biometrics 45:255). None for fewer than two pairs, and where both give one and the same score throughout.
    """
    if len(one) < 2:
        return None
    n, mean_one, mean_other = len(one), mean_of(one), mean_of(other)
    expected = (
        fsum((value - mean_one) ** 2 for value in one) / n
        + fsum((value - mean_other) ** 2 for value in other) / n
        + (mean_one - mean_other) ** 2
    )
    observed = fsum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / n
    if expected:
        return 1 - observed / expected
    return None


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Spearman's rho; None for fewer than three pairs or if one of the two does not vary."""
    if len(one) < 3 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    return correlation(_ranks(one), _ranks(other))


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Pearson's r of two sequences that vary, within -1 and 1."""
    mean_one, mean_other = mean_of(one), mean_of(other)
    common = fsum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    return max(-1.0, min(1.0, common / sqrt(_squares(one) * _squares(other))))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return each value's rank from 1; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]
