"""MCP tasks, their runs and judges' replies for the tests of judging."""

from __future__ import annotations

from judging.judging_samples import make_artifact, make_case

from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS, McpTask
from pytest_agentbench.records.case import Case, Message
from pytest_agentbench.records.evaluation import JudgeIteration, JudgeVerdict, Scored
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact, RunnerEvent, ToolCallEvent, ToolResultEvent

FUZZY = "I wonder which of my two trips is the longer one."
DETAILED = "Call Maps:route for A-B and for C-D, then Maths:compare."
ANALYSIS = "Maths:compare needs both results of Maps:route."
REASONINGS = {
    "task_fulfillment": "task_fulfillment_reasoning",
    "grounding": "grounding_reasoning",
    "tool_appropriateness": "tool_appropriateness_reasoning",
    "parameter_accuracy": "parameter_accuracy_reasoning",
    "dependency_awareness": "dependency_awareness_reasoning",
    "parallelism_and_efficiency": "parallelism_efficiency_reasoning",
}
"""The names of seed 004, A.4."""


def make_task(*, message: str = FUZZY, case_id: str = "trips", **fields) -> Case:
    given = {"servers": ("Maps", "Maths"), "fuzzy": FUZZY, "detailed": DETAILED, "dependency_analysis": ANALYSIS}
    messages = (Message(role="user", content=message),)
    return make_case(case_id=case_id, messages=messages, parts={"mcp_task": McpTask(**(given | fields))})


def make_run(*, round_event: str = "round", calls: int = 1, **fields) -> RunArtifact:
    """Return a run of two rounds: concurrent routes (`calls` times), then a comparison that fails."""
    trace: list = []

    def add(event: type, **event_fields) -> None:
        trace.append(event(sequence=len(trace), at=0.1, **event_fields))

    add(RunnerEvent, name=round_event, data={"round": 1})
    for number in range(calls):
        for way in ("A-B", "C-D"):
            add(ToolCallEvent, call_id=f"{way}{number}", name="Maps:route", arguments={"way": way})
        for way in ("A-B", "C-D"):
            add(ToolResultEvent, call_id=f"{way}{number}", name="Maps:route", content=f"{way}: 12 km")
    add(RunnerEvent, name=round_event, data={"round": 2})
    add(ToolCallEvent, call_id="A-B0", name="Maths:compare", arguments=None, raw="{broken")
    add(ToolResultEvent, call_id="A-B0", name="Maths:compare", content="result no", is_error=True)
    add(FinalOutputEvent, content="They are as long as each other.")
    request = {
        "tools": ["Maps:route", "Maths:compare", "Weather:now"],
        "tool_descriptions": {"Maps:route": "The length\nof a way.", "Weather:now": ""},
    }
    return make_artifact(**({"case_id": "trips", "trace": tuple(trace), "request": request} | fields))


def tool_use_reply(score: float = 6, **scores: object) -> dict:
    """Return a valid reply of a judge."""
    reasons = {key: f"Why {name}." for name, key in REASONINGS.items()}
    return {**reasons, **dict.fromkeys(TOOL_USE_DIMENSIONS, score), **scores}


def iteration(number: int, *scores: float, judge: str = "strict", run: str | None = None) -> JudgeIteration:
    """Return an iteration with six scores in the order of TOOL_USE_DIMENSIONS, or a failed one without scores."""
    verdict = None
    if scores:
        dimensions = {name: Scored(score=score) for name, score in zip(TOOL_USE_DIMENSIONS, scores, strict=True)}
        verdict = JudgeVerdict(summary="", dimensions=dimensions, overall=Scored(score=sum(scores) / 6))
    return JudgeIteration(
        judge_run_id=run or judge,
        judge_id=judge,
        model=judge,
        repetition=number,
        status="success" if scores else "invalid_output",
        verdict=verdict,
    )
