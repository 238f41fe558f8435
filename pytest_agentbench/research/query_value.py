"""The value of a query as a benchmark's task, by seven dimensions (seed 003, 7维度查询价值评估模型)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_agentbench.errors import AgentbenchError


@dataclass(frozen=True, slots=True)
class QueryDimension:
    """One of the seven. `key` is its name in files, `weight` its part of the score; the sum is 1."""

    letter: str
    chinese: str
    english: str
    weight: float

    @property
    def key(self) -> str:
        """As query_scores.json has it."""
        return f"{self.letter}. {self.chinese}"


QUERY_DIMENSIONS = (
    QueryDimension("A", "决策颠覆性", "impact on decisions", 0.05),
    QueryDimension("B", "分析复杂性", "complexity of the analysis", 0.20),
    QueryDimension("C", "行动导向性", "orientation to action", 0.20),
    QueryDimension("D", "风险/收益规模", "scale of risk and return", 0.15),
    QueryDimension("E", "时效敏感性", "sensitivity to time", 0.10),
    QueryDimension("F", "专业壁垒", "need of expertise", 0.05),
    QueryDimension("G", "可验证性", "verifiability", 0.25),
)
LOWEST, TOP = 1, 5


class LackingScores(AgentbenchError):
    """Dimensions without a score: a query has a value only with all seven."""


def query_value(scores: Mapping[str, float]) -> float:
    """`round(sum(s w) / sum(w), 2)` of scores of 1-5 by `key`. Raises LackingScores."""
    missing = [each.key for each in QUERY_DIMENSIONS if each.key not in scores]
    if missing:
        raise LackingScores(f"found no score of {', '.join(missing)}, expected all seven dimensions")
    total = sum(each.weight for each in QUERY_DIMENSIONS)
    return round(sum(scores[each.key] * each.weight for each in QUERY_DIMENSIONS) / total, 2)
