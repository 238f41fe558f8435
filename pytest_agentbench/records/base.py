"""What all records share."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictInt,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from pytest_agentbench.extensions import extension_names

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


def _variable_name(text: str) -> str:
    # The text is not shown: what people put here by mistake is the key itself.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("expected the name of an environment variable, never a key itself")
    return text


VariableName = Annotated[str, AfterValidator(_variable_name)]
AtLeastOne = Annotated[StrictInt, Field(ge=1)]
Seconds = Annotated[float, Field(strict=True, gt=0)]


def _sandbox(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Let the sandboxes of packs pass beside ours; the message about another one names ours."""
    return value if isinstance(value, str) and value in extension_names("sandbox") else handler(value)


# Beside the literal's names those of packs (the seam `sandbox NAME`), which only entry points know.
SandboxType = Annotated[
    Literal["auto", "docker", "bubblewrap", "local"], WrapValidator(_sandbox), PlainSerializer(str, return_type=str)
]
SandboxKind = Annotated[
    Literal["docker", "bubblewrap", "local"], WrapValidator(_sandbox), PlainSerializer(str, return_type=str)
]
