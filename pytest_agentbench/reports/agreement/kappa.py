"""How far two raters agree beyond chance: Cohen's kappa with what it has to be read with. None where undefined.

Pairs come in groups, as in `metrics.intervals`: repetitions of one case resemble each other, so the variances are
cluster-robust over cases (Yang & Zhou 2014, "Kappa statistic for clustered matched-pair data", Statistics in Medicine
33:2612). With one pair per case that of kappa is the large-sample variance of Fleiss, Cohen & Everitt (1969,
Psychological Bulletin 72:323), with cases / (cases - 1) for small samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import NamedTuple

from pytest_agentbench.metrics import Interval, t_quantile


class Verdicts(NamedTuple):
    """What two raters say of one run."""

    people: bool
    judge: bool


@dataclass(frozen=True, slots=True)
class Table:
    """How often both raters passed, both failed, or only one of them passed a run."""

    both_passed: int
    both_failed: int
    only_people_passed: int
    only_judge_passed: int

    @classmethod
    def of(cls, pairs: Sequence[Verdicts]) -> Table:
        """The pairs, counted."""
        kinds = [Verdicts(True, True), Verdicts(False, False), Verdicts(True, False), Verdicts(False, True)]
        return cls(*(sum(pair == kind for pair in pairs) for kind in kinds))

    @property
    def n(self) -> int:
        """How many runs both raters judged."""
        return self.both_passed + self.both_failed + self.only_people_passed + self.only_judge_passed

    @property
    def agreed(self) -> int:
        """Of how many they say the same."""
        return self.both_passed + self.both_failed

    @property
    def people_passed(self) -> int:
        """How many people pass."""
        return self.both_passed + self.only_people_passed

    @property
    def judge_passed(self) -> int:
        """How many the judge passes."""
        return self.both_passed + self.only_judge_passed

    @property
    def by_chance(self) -> float:
        """The agreement expected of raters with these base rates that know nothing, 0-1; needs a pair."""
        people, judge = self.people_passed / self.n, self.judge_passed / self.n
        return people * judge + (1 - people) * (1 - judge)

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa (1960, Educational and Psychological Measurement 20:37).

        None without a pair, and where both raters say only one thing, and the same: chance alone would agree as well.
        """
        if not self.n or (self.people_passed == self.judge_passed and self.people_passed in (0, self.n)):
            return None
        return (self.agreed / self.n - self.by_chance) / (1 - self.by_chance)

    @property
    def prevalence_index(self) -> float | None:
        """How uneven passing and failing are, -1 to 1 (Byrt, Bishop & Carlin 1993, J. Clinical Epidemiology 46:423)."""
        return (self.both_passed - self.both_failed) / self.n if self.n else None

    @property
    def bias_index(self) -> float | None:
        """How much more of the runs the judge passes than people do, -1 to 1 (Byrt et al. 1993)."""
        return (self.only_judge_passed - self.only_people_passed) / self.n if self.n else None

    @property
    def pabak(self) -> float | None:
        """Kappa as it would be of raters without bias and prevalence: 2 x agreement - 1 (Byrt et al. 1993)."""
        return 2 * self.agreed / self.n - 1 if self.n else None


def kappa_interval(groups: Sequence[Sequence[Verdicts]]) -> Interval | None:
    """The 95 % t interval of Cohen's kappa, within -1 and 1; a group is one case's runs.

    None for fewer than two cases, where kappa is undefined, and where the sample shows no spread: ten runs of perfect
    agreement do not say how far the next ten may lie.
    """
    groups = [group for group in groups if group]
    table = Table.of([pair for group in groups for pair in group])
    kappa = table.kappa
    if len(groups) < 2 or kappa is None:
        return None
    cases, chance = len(groups), table.by_chance
    judge, people, agreed = (count / table.n for count in (table.judge_passed, table.people_passed, table.agreed))

    def influence(pair: Verdicts) -> float:
        """How far one more such pair would move kappa, times n: its derivatives by agreement and by base rates."""
        rates = (judge if pair.people else 1 - judge) + (people if pair.judge else 1 - people)
        return ((pair.people == pair.judge) - agreed - (1 - kappa) * (rates - 2 * chance)) / (1 - chance)

    spread = cases / (cases - 1) * fsum(fsum(map(influence, group)) ** 2 for group in groups) / table.n**2
    if spread < _NO_SPREAD:
        return None
    half = t_quantile(cases - 1) * sqrt(spread)
    return max(-1.0, kappa - half), min(1.0, kappa + half)


_NO_SPREAD = 1e-24
"""What rounding leaves of a variance of 0."""


def weighted_kappa(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Kappa of scores, disagreements weighted by their square (Cohen 1968, Psychological Bulletin 70:213).

    No categories are needed: over all values it is Lin's concordance correlation coefficient with population moments
    (1989, Biometrics 45:255). None for fewer than two pairs, and where both give one and the same score throughout.
    """
    if len(one) < 2:
        return None
    n, mean_one, mean_other = len(one), fsum(one) / len(one), fsum(other) / len(other)
    expected = (
        fsum((value - mean_one) ** 2 for value in one) / n
        + fsum((value - mean_other) ** 2 for value in other) / n
        + (mean_one - mean_other) ** 2
    )
    observed = fsum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / n
    return 1 - observed / expected if expected else None


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rho, None where one of the two does not vary or there are fewer than three pairs."""
    if len(one) < 3 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(one, other).statistic)
