"""A row when it is needed whole: as the case that runs it, or as the item that Python code sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_agentbench.config import named_servers
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case, Message, RunnerSpec
from pytest_agentbench.sources.benchmark_item import BenchmarkItem
from pytest_agentbench.sources.dataset import Dataset
from pytest_agentbench.sources.evaluators import deciders
from pytest_agentbench.sources.json_items import parse_value
from pytest_agentbench.sources.mcp_tasks import TaskEntry
from pytest_agentbench.sources.recipe import Recipe
from pytest_agentbench.sources.rows import BadRow, Row, read_rows
from pytest_agentbench.sources.standard import answer_of, metadata_of
from pytest_agentbench.sources.task_settings import TaskSettings
from pytest_agentbench.sources.test_yaml import named_tools

_TITLE = 60
_RUNNER = RunnerSpec(type="llm_probe")


def row_case(dataset: Dataset, row: Row) -> Case:
    """The case of a row that `read_rows` gave: the question as a user message, the answer as the reference; of a task
    file, the task with its servers.

    A descriptor may put examples before it and the question into a prompt. Without answer and evaluator there is no
    metric: only a judge can decide it.
    """
    item: dict[str, Any] = parse_value(row.raw)
    if dataset.tasks is not None:
        return _task_case(dataset, dataset.tasks, row, TaskEntry.model_validate(item))
    metadata = metadata_of(item)
    checks, metrics, reference = deciders(dataset, item, metadata)
    question = item["question"]
    if dataset.recipe is not None:
        described = _described(dataset, dataset.recipe, item)
    else:
        described = {"messages": (Message(role="user", content=question),), "runner": _RUNNER}
    return Case(
        case_id=row.case_id,
        title=short_title(question),
        path=row.path,
        line=row.line,
        dataset=dataset.name,
        tags=row.tags,
        checks=checks,
        metrics=metrics,
        reference=reference,
        metadata=metadata,
        **described,
    )


def read_benchmark_items(dataset: Dataset) -> Iterator[BenchmarkItem | BadRow]:
    """The rows of `read_rows` as items: `question` is what the agent is asked, `answer` "" where there is none.

    Raises ConfigError where the dataset cannot be read at all, and for tasks: to answer them needs runs.
    """
    if dataset.tasks is not None:
        raise ConfigError(f"{dataset.path}:1:1: found tasks for MCP servers, expected questions; pytest runs tasks")
    for row in read_rows(dataset):
        yield row if isinstance(row, BadRow) else _benchmark_item(dataset, row)


def _task_case(dataset: Dataset, settings: TaskSettings, row: Row, entry: TaskEntry) -> Case:
    return Case(
        case_id=row.case_id,
        title=short_title(settings.text(entry)),
        path=row.path,
        line=row.line,
        dataset=dataset.name,
        tags=row.tags,
        metrics=dataset.metrics,
        **settings.case_fields(entry),
    )


def _described(dataset: Dataset, recipe: Recipe, item: dict[str, Any]) -> dict[str, Any]:
    """What the descriptor says of every case."""
    descriptor, shots = recipe.descriptor, dataset.shots
    asked = Message(role="user", content=recipe.prompt(item))
    return {
        "messages": (*(shots.before(item["question"]) if shots is not None else ()), asked),
        "runner": descriptor.runner,
        "context": descriptor.context,
        "tools": named_tools(descriptor.context),
        "mcp_servers": named_servers(descriptor.mcp_servers),
    }


def _benchmark_item(dataset: Dataset, row: Row) -> BenchmarkItem:
    item: dict[str, Any] = parse_value(row.raw)
    own_id = item.get("id")
    return BenchmarkItem(
        id=row.case_id.removeprefix(f"{dataset.name}.") if own_id is None else str(own_id),
        question=item["question"] if dataset.recipe is None else dataset.recipe.prompt(item),
        answer=answer_of(item) or "",
        metadata=metadata_of(item),
    )


def short_title(question: str) -> str:
    """The beginning of what is asked, in one line."""
    words = " ".join(question[: 4 * _TITLE].split())
    return words if len(words) <= _TITLE else f"{words[: _TITLE - 1].rstrip()}…"
