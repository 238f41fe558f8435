"""Prompts of MCP-Bench that files can replace, with their required placeholders (config/prompt_files.py)."""

from __future__ import annotations

from typing import Annotated

from pytest_agentbench.config.prompt_files import PROMPTS_SCHEMA, PromptTexts, Slots, prompt_folder

PLANNER_PROMPTS = {
    "plan": Slots(("task", "tools", "information"), ("round", "max_rounds")),
    "answer": Slots(("task", "information"), ("calls", "servers")),
    "summary": Slots(("content",), ("tokens",)),
    "compression": Slots(("information",), ("tokens",)),
}
JUDGE_PROMPTS = {
    "judge": Slots(
        ("task", "solution", "execution", "tools"), ("concrete", "analysis", "rubric", "anchors", "rounds", "calls")
    ),
}
SYNTHESIS_PROMPTS = {
    "generation": Slots(("tools",), ("several_servers", "scenario", "ordinal", "others", "problems")),
    "fuzzing": Slots(("task",), ("count", "exactness", "problems")),
    "quality": Slots(("task", "fuzzy", "tools")),
}
PROMPTS = {**PLANNER_PROMPTS, **JUDGE_PROMPTS, **SYNTHESIS_PROMPTS}
"""All of them: one folder may have any."""

PlannerPrompts = Annotated[PromptTexts | None, prompt_folder(PROMPTS, used=PLANNER_PROMPTS), PROMPTS_SCHEMA]
"""A folder of prompts, of which a run profile keeps the planner's."""
JudgePrompts = Annotated[PromptTexts | None, prompt_folder(PROMPTS, used=JUDGE_PROMPTS), PROMPTS_SCHEMA]
"""A folder of prompts, of which an evaluation profile keeps the judge's."""
