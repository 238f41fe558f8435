"""The request for a judge's verdict on an MCP task: evidence first, then the rubric in an iteration's own order.

What comes before the rubric is the same in every iteration, so that providers can keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.judging.prompt import anchor_lines
from pytest_agentbench.judging.tool_use.chinese import CHINESE
from pytest_agentbench.judging.tool_use.english import ENGLISH
from pytest_agentbench.judging.tool_use.evidence import evidence
from pytest_agentbench.judging.tool_use.shuffles import shuffled
from pytest_agentbench.judging.tool_use.wording import Axis
from pytest_agentbench.models import Block, boundary_of, rendered
from pytest_agentbench.records import Case, RunArtifact

if TYPE_CHECKING:
    from pytest_agentbench.config import EvaluationProfile

PROMPT_VERSION = 1
"""Part of every verdict's identity: raised when the wording, the order or what is shown of a run changes."""

WORDINGS = {"en": ENGLISH, "zh": CHINESE}


def tool_use_messages(
    case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
) -> Callable[[int], list[dict[str, str]]]:
    """From an iteration's number to its system and its user message; secrets are removed by `redact`."""
    wording = WORDINGS[profile.mcp_tasks.language]
    shown = [_redacted(part, redact) for part in evidence(case, artifact, wording)]
    boundary = boundary_of(shown)
    contract = wording.how_to_read.replace("{boundary}", boundary)
    system = redact(f"{profile.system_prompt or wording.role}\n\n{contract}")
    anchors = anchor_lines(profile)
    before = rendered([wording.stance, *([wording.anchors, *redact(anchors)] if anchors else ()), *shown], boundary)

    def messages(iteration: int) -> list[dict[str, str]]:
        order = shuffled(wording.rubric, profile.mcp_tasks.shuffle, case.case_id, iteration)
        rubric = "\n".join([wording.rubric_title, *_rubric_lines(order)])
        user = f"{before}\n{rubric}\n\n{wording.scoring}\n\n{wording.reply}"
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    return messages


def _rubric_lines(rubric: Sequence[Axis]) -> Iterator[str]:
    for axis in rubric:
        yield f"\n## {axis.title}"
        for scale in axis.scales:
            yield f"### {scale.title}"
            yield from scale.bands


def _redacted(part: str | Block, redact: Callable[[Any], Any]) -> str | Block:
    return Block(part.label, redact(part.text)) if isinstance(part, Block) else part
