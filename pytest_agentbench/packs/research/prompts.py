"""Prompts of research judges that files can replace, with their required placeholders (config/prompt_files.py)."""

from __future__ import annotations

from typing import Annotated

from pytest_agentbench.config.prompt_files import PROMPTS_SCHEMA, PromptTexts, Slots, prompt_folder

PROMPTS = {
    "select": Slots(("query",), ("scales",)),
    "weigh": Slots(("query",), ("dimensions",)),
    "criteria": Slots(("query", "dimension")),
    "clean": Slots(("article",)),
    "race_pairwise": Slots(("query", "article_1", "article_2", "criteria")),
    "race_pointwise": Slots(("query", "article", "criteria")),
    "extract": Slots(("article",)),
    "deduplicate": Slots(("statements",)),
    "validate": Slots(("page", "statements")),
    "strategic": Slots(("query", "article")),
    "knowledge": Slots(("article",), ("most",)),
    "reuse": Slots(("article", "known")),
}
"""By the names of texts in `Wording`."""

ResearchPrompts = Annotated[PromptTexts | None, prompt_folder(PROMPTS), PROMPTS_SCHEMA]
"""A folder of prompts, relative to the file that names it."""
