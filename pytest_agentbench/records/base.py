"""What all records share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]

Dimension = Literal["task", "process", "autonomy", "closeness", "efficiency", "spark"]
DIMENSIONS: tuple[Dimension, ...] = ("task", "process", "autonomy", "closeness", "efficiency", "spark")

RunStatus = Literal["success", "failed", "timed_out", "invalid", "provider_error"]


class Record(BaseModel):
    """A frozen model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def _normal_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({tag.strip() for tag in tags} - {""}))


Tags = Annotated[tuple[str, ...], AfterValidator(_normal_tags)]
"""Tags as every file type declares them: stripped, deduplicated, sorted."""
