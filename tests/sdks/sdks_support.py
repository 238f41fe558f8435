"""What the tests of SDKs share: which programs there are, and the environments that have their SDKs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")
ALL = ("chat", "responses", "messages", "gemini")


@dataclass(frozen=True)
class Sdk:
    """An SDK's program, its agents by the dialects that they ask in, and the variable that names its environment."""

    name: str
    agents: tuple[str, ...]
    variable: str = "AGENTBENCH_TEST_SDKS"

    @property
    def python(self) -> str:
        return str(Path(os.environ.get(self.variable, "")) / "bin/python")

    @property
    def program(self) -> str:
        return str(PROGRAMS / f"with_{self.name}.py")


SDKS = (
    Sdk("openai", ("chat", "responses")),
    Sdk("anthropic", ("messages",)),
    Sdk("google_genai", ("gemini",)),
    Sdk("openai_agents", ("chat", "responses")),
    Sdk("pydantic_ai", ALL),
    Sdk("langgraph", ("chat", "responses")),
    Sdk("litellm", ALL, "AGENTBENCH_TEST_LITELLM"),
)


def needs(variable: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(variable not in os.environ, reason=f"{variable} names no environment with SDKs")


def of(*sdks: Sdk) -> pytest.MarkDecorator:
    """Parametrize a test by SDKs; one that is not installed is skipped."""
    return pytest.mark.parametrize("sdk", [pytest.param(sdk, id=sdk.name, marks=needs(sdk.variable)) for sdk in sdks])
