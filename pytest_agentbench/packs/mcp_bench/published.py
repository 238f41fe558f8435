"""Published results of MCP-Bench, which `agentbench mcp report --beside` prints next to the user's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field

from pytest_agentbench.config.base import ConfigFile, load
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS, ToolUseDimension
from pytest_agentbench.records.base import Record, Text

PAPER = "paper"
"""Name of the file that ships with the package."""

GroupName = Literal["total", "single_server", "multi_server"]
FigureName = (
    ToolUseDimension | Literal["valid_tool_name_rate", "input_schema_compliance", "execution_success_rate", "overall"]
)
Share = Annotated[float, Field(strict=True, ge=0, le=1)]


class PublishedGroup(Record):
    """Figures of a group of tasks."""

    tasks: Annotated[int, Field(strict=True, ge=1)]
    """Number of its tasks."""
    figures: dict[FigureName, Share]
    """Figures as fractions of 1, as the paper prints them."""


class PublishedModel(Record):
    """Results of one model."""

    model: Text
    """The model's name as it was published."""
    groups: dict[GroupName, PublishedGroup]
    """Its figures by group of tasks."""


def _require_model(models: tuple[PublishedModel, ...]) -> tuple[PublishedModel, ...]:
    if not models:
        raise ValueError("found none, expected at least one model")
    return models


class PublishedFile(ConfigFile):
    """Published results, to compare with your own."""

    source: Text
    """Publication of the results."""
    caveats: tuple[Text, ...] = ()
    """Reasons for differences from your own results, for people."""
    models: Annotated[tuple[PublishedModel, ...], AfterValidator(_require_model)]
    """The results."""

    def as_models(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield each model's name and its groups, in the shape of `models[].tool_use` of report.json."""
        for published in self.models:
            groups = {name: _as_group(published.groups.get(name)) for name in get_args(GroupName)}
            yield f"{published.model} (published)", groups


def read_published(name: str) -> PublishedFile:
    """Return the published results of a file, or of the package for the name `paper`. Raises ConfigError."""
    if name == PAPER:
        with as_file(files(__package__).joinpath("published.yaml")) as path:
            return load(path, PublishedFile)
    return load(Path(name), PublishedFile)


def _as_group(group: PublishedGroup | None) -> dict[str, Any] | None:
    """Return the group in the form of reports, with dimensions on a scale of 10; None without results."""
    if group is None:
        return None
    figures = {
        name: {"mean": 10 * value if name in TOOL_USE_DIMENSIONS else value, "ci95": None, "tasks": group.tasks}
        for name, value in group.figures.items()
    }
    return {"tasks": group.tasks, "runs": group.tasks, "figures": figures}
