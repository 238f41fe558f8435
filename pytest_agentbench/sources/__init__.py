"""Sources of cases: files to Case records, and which of them a suite selects."""

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports
from pytest_agentbench.sources.benchmark_item import BenchmarkItem
from pytest_agentbench.sources.dataset import (
    EXACT_MATCH,
    Dataset,
    dataset_name,
    in_case_folder,
    is_dataset,
    legal_id,
    open_dataset,
)
from pytest_agentbench.sources.discovery import IndexedCase, find_cases, has_cases, index_cases
from pytest_agentbench.sources.evaluators import deciders
from pytest_agentbench.sources.item_class import CodeNotRun
from pytest_agentbench.sources.json_items import BadItem, read_items
from pytest_agentbench.sources.json_text import lies_deep
from pytest_agentbench.sources.predictions import as_prediction, read_predictions
from pytest_agentbench.sources.report_texts import Material, read_material
from pytest_agentbench.sources.reports import (
    BadReport,
    ReportItem,
    Reports,
    is_reports,
    lost_partners,
    open_reports,
    read_all_reports,
    read_reports,
    report_case,
)
from pytest_agentbench.sources.row_cases import read_benchmark_items, row_case
from pytest_agentbench.sources.rows import BadRow, Row, read_rows
from pytest_agentbench.sources.selection import agent_problems, assign_agents, select, suite_problems
from pytest_agentbench.sources.standard import parse_item
from pytest_agentbench.sources.test_yaml import CASE_FILES, load_case

if TYPE_CHECKING:
    from pytest_agentbench.sources.quality import Doubt, find_doubts

__getattr__ = lazy_exports(__name__, dict.fromkeys(("Doubt", "find_doubts"), "pytest_agentbench.sources.quality"))
from pytest_agentbench.sources.record_problems import field_problem, refuse

__all__ = [
    "CASE_FILES",
    "EXACT_MATCH",
    "BadItem",
    "BadReport",
    "BadRow",
    "BenchmarkItem",
    "CodeNotRun",
    "Dataset",
    "Doubt",
    "IndexedCase",
    "Material",
    "ReportItem",
    "Reports",
    "Row",
    "agent_problems",
    "as_prediction",
    "assign_agents",
    "dataset_name",
    "deciders",
    "field_problem",
    "find_cases",
    "find_doubts",
    "has_cases",
    "in_case_folder",
    "index_cases",
    "is_dataset",
    "is_reports",
    "legal_id",
    "lies_deep",
    "load_case",
    "lost_partners",
    "open_dataset",
    "open_reports",
    "parse_item",
    "read_all_reports",
    "read_benchmark_items",
    "read_items",
    "read_material",
    "read_predictions",
    "read_reports",
    "read_rows",
    "refuse",
    "report_case",
    "row_case",
    "select",
    "suite_problems",
]
