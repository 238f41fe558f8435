"""Sources of cases: files to Case records, and which of them a suite selects."""

from pytest_agentbench.sources.benchmark_item import BenchmarkItem
from pytest_agentbench.sources.dataset import (
    EXACT_MATCH,
    BadRow,
    Dataset,
    Row,
    dataset_name,
    in_case_folder,
    is_dataset,
    open_dataset,
    read_rows,
    row_case,
)
from pytest_agentbench.sources.discovery import IndexedCase, find_cases, index_cases
from pytest_agentbench.sources.selection import assign_agents, select, suite_problems
from pytest_agentbench.sources.test_yaml import CASE_FILES, load_case

__all__ = [
    "CASE_FILES",
    "EXACT_MATCH",
    "BadRow",
    "BenchmarkItem",
    "Dataset",
    "IndexedCase",
    "Row",
    "assign_agents",
    "dataset_name",
    "find_cases",
    "in_case_folder",
    "index_cases",
    "is_dataset",
    "load_case",
    "open_dataset",
    "read_rows",
    "row_case",
    "select",
    "suite_problems",
]
