"""The rows and the cases of a dataset with a descriptor."""

from __future__ import annotations

from pytest_agentbench.sources.dataset import Dataset, Row
from pytest_agentbench.sources.rows import BadRow, read_rows, row_case


def good(dataset: Dataset) -> list[Row]:
    return [row for row in read_rows(dataset) if isinstance(row, Row)]


def bad(dataset: Dataset) -> list[str]:
    return [row.message for row in read_rows(dataset) if isinstance(row, BadRow)]


def ids(dataset: Dataset) -> list[str]:
    return [row.case_id for row in good(dataset)]


def cases(dataset: Dataset):
    return [row_case(dataset, row) for row in good(dataset)]


def asked(dataset: Dataset) -> list[str]:
    return [case.messages[-1].content for case in cases(dataset)]


def q(number: int, **more) -> dict:
    return {"id": f"q{number}", "question": f"Question {number}?", "answer": str(number), **more}
