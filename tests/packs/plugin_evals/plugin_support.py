"""Write plugins with evals."""

from __future__ import annotations

from typing import Any

import yaml
from support.bench import Bench

from pytest_agentbench.config.base import Guest
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.packs.plugin_evals.cases import EVALS
from pytest_agentbench.records.case import Case
from pytest_agentbench.sources.case_source import SourceCase, SourceRequest

EVAL = "cases/units/evals/convert"
"""The folder of the case `convert` of the plugin `units`."""
USE_SKILL = {"tool_calls": [{"name": "skill", "arguments": {"name": "inches"}}]}


def write_plugin(bench: Bench) -> None:
    """Write a plugin with the skill `inches`."""
    skill = "---\nname: inches\ndescription: Convert lengths.\n---\nAn inch has exactly 2.54 centimetres.\n"
    bench.write("cases/units/skills/inches/SKILL.md", skill)


def write_prompt(bench: Bench, prompt: str = "10 inches in centimetres?", *, folder: str = EVAL, **keys: Any) -> None:
    front = f"---\n{yaml.safe_dump(keys)}---\n" if keys else ""
    bench.write(f"{folder}/prompt.md", f"{front}{prompt}\n")


def write_grader(bench: Bench, name: str, text: str = "", *, folder: str = EVAL, **keys: Any) -> None:
    bench.write(f"{folder}/graders/{name}.md", f"---\n{yaml.safe_dump(keys)}---\n{text}\n")


def write_script(bench: Bench, *steps: Any, folder: str = EVAL, **keys: Any) -> None:
    bench.write(f"{folder}/demo.yaml", {"schema_version": 1, "replies": [{"steps": [*steps]}], **keys})


def read_case(bench: Bench, *, guest: Guest | None = None) -> Case:
    """Return the case `convert`. Raises ConfigError."""
    request = SourceRequest(ConfigRoot(bench.path / "cases", guest=guest))
    [row] = EVALS.open(bench.path / EVAL / "prompt.md", request).rows()
    assert isinstance(row, SourceCase)
    return row.make()
