"""The business report of a model: what its reports are worth, as JSON, text and a page (seed 003, 综合分析报告)."""

from pytest_agentbench.research.poet_report.aggregates import PoetReport, poet_report
from pytest_agentbench.research.poet_report.rows import SUMMARY_FIELDS, PoetRow
from pytest_agentbench.research.poet_report.writing import write_comparison, write_poet_files

__all__ = ["SUMMARY_FIELDS", "PoetReport", "PoetRow", "poet_report", "write_comparison", "write_poet_files"]
