"""Comparison of two reports: paired by case, tested exactly, and honest about what so many runs can tell."""

from __future__ import annotations

from pytest_agentbench.reports.comparison.campaigns import Campaign, campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.comparison.results import Change, Comparison, Measure, ModelComparison

__all__ = ["Campaign", "Change", "Comparison", "Measure", "ModelComparison", "campaign", "compare"]
