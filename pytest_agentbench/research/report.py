"""A report that is scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from pytest_agentbench.records import ExecutionMetrics, Language, RowId


@dataclass(frozen=True, slots=True)
class Report:
    """One report of one agent on one query.

    `id` is the row's, `case_id` the name under which judges' scripts and cassettes know it, `model` that of the agent.
    """

    id: RowId
    case_id: str
    model: str
    prompt: str
    article: str
    language: Language
    metrics: ExecutionMetrics = field(default_factory=ExecutionMetrics)


def article_digest(article: str) -> str:
    """16 hex digits by which results tell what article they are of."""
    return sha256(article.encode("utf-8", "surrogatepass")).hexdigest()[:16]
