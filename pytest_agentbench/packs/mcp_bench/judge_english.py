"""The judge's prompt for MCP tasks in English: the content of seed 004, A.4, in our own words."""

from pytest_agentbench.judging.prompt import HOW_TO_READ
from pytest_agentbench.packs.mcp_bench.judge_wording import Axis, Scale, Wording

_RANGES = (("1-3", "10-30 %"), ("4-6", "40-60 %"), ("7-8", "70-80 %"), ("9-10", "90-100 %"))


def _bands(sentence: str) -> tuple[str, ...]:
    return tuple(f"- {scores}: {sentence.format(share=share)}" for scores, share in _RANGES)


_RUBRIC = (
    Axis(
        "Task completion",
        (
            Scale("task_fulfillment", "Task fulfillment", _bands("{share} of the requirements are met perfectly.")),
            Scale("grounding", "Grounding", _bands("{share} of the claims rest perfectly on what tools returned.")),
        ),
    ),
    Axis(
        "Tool use",
        (
            Scale(
                "tool_appropriateness",
                "Tool appropriateness",
                _bands("{share} of the tools were the perfect choice for their subtask."),
            ),
            Scale(
                "parameter_accuracy",
                "Parameter accuracy",
                _bands("{share} of the tool calls have fully accurate and complete parameters."),
            ),
        ),
    ),
    Axis(
        "Planning effectiveness and efficiency",
        (
            Scale(
                "dependency_awareness",
                "Dependency awareness",
                _bands("{share} of the dependency chains were carried out perfectly."),
            ),
            Scale(
                "parallelism_and_efficiency",
                "Parallelism and efficiency",
                (
                    "- 1-3: more than 70 % of the calls are redundant, or less than 30 % of what could run in parallel "
                    "did.",
                    "- 4-6: 40-60 % of the calls are redundant, or 40-60 % of what could run in parallel did.",
                    "- 7-8: 20-30 % of the calls are redundant, and 70-80 % of what could run in parallel did.",
                    "- 9-10: less than 10 % of the calls are redundant, and 90-100 % of what could run in parallel "
                    "did.",
                ),
            ),
        ),
    ),
)

_SCORING = """\
# From percentages to scores
Work out a defect rate for each dimension: problems / opportunities x 100 %. It maps to a score:
- 0-10 % defects: 9-10 (excellent to perfect)
- 10-30 % defects: 7-9 (good)
- 30-50 % defects: 5-7 (average)
- 50-70 % defects: 3-5 (poor)
- 70-100 % defects: 0-3 (failed); the lowest score that can be given is 1

# What perfect means
Be extremely strict about what was done perfectly. Perfect means that all of this is true:
- the right choice of tool: not one that works, but the best one
- complete and accurate parameters: not merely valid, but ideal
- no redundancy: not one repeated or unnecessary call
- errors handled well: a graceful recovery from every failure
- efficient execution: in parallel wherever possible, in the fewest rounds
- concise output: no lengthy explanation unless one was asked for
Where any of these is missing, that part was not done perfectly and counts as 0 %. For example, a part that was \
completed correctly but with one redundant call is 0 % perfect.

# Principles
- Always reckon in percent, never in absolute numbers: 10 errors in 100 calls (10 %) score the same as 1 error in 10 \
calls (10 %).
- Count the opportunities of each dimension. Tool calls: how many were made in all? Parallelism: how many subtasks \
could have run side by side? Parameters: how many are there in all calls together? Claims: how many statements of \
fact were made? Dependencies: how many are there?
- Normalize by complexity, and do not punish a complex task for it: 1 error in the 5 steps of a simple task (20 % \
defects) is a 7, and so are 4 errors in the 20 steps of a complex one (20 % defects).
- Take the strictest reading of "done perfectly". In any doubt, give the lower score.

# Examples of proportions
Task fulfillment:
- 19 of 20 requirements met (5 % defects): 9
- 16 of 20 requirements met (20 % defects): 8
- 12 of 20 requirements met (40 % defects): 6
- 8 of 20 requirements met (60 % defects): 4
Tool appropriateness:
- 19 of 20 tools are the best choice (5 % defects): 9
- 16 of 20 tools are the best choice (20 % defects): 8
- 12 of 20 tools are the best choice (40 % defects): 6
- 8 of 20 tools are the best choice (60 % defects): 4
Parallelism and efficiency:
- 9 of 10 subtasks that could run in parallel did (10 % missed): 9
- 8 of 10 subtasks that could run in parallel did (20 % missed): 8
- 6 of 10 subtasks that could run in parallel did (40 % missed): 6
- 4 of 10 subtasks that could run in parallel did (60 % missed): 4
Grounding:
- 19 of 20 claims have evidence (5 % without): 9
- 16 of 20 claims have evidence (20 % without): 8
- 12 of 20 claims have evidence (40 % without): 6
- 8 of 20 claims have evidence (60 % without): 4
Parameter accuracy:
- 95 of 100 parameters are perfect (5 % defects): 9
- 80 of 100 parameters are perfect (20 % defects): 8
- 60 of 100 parameters are perfect (40 % defects): 6
- 40 of 100 parameters are perfect (60 % defects): 4
Format:
- Text where no JSON was required costs nothing (0 % defects).
- JSON that was explicitly required and is missing is an unmet requirement.
Remember that most real executions deserve a 4 to 6. An 8 or more is the exception.

# Before you score
- A 4 or 5 is the default; go higher only on strong evidence.
- Only what was truly done perfectly counts into a percentage.
- Look with the most critical eye: find the flaws first, acknowledge successes second.
- When you consider more than a 7, check once more for anything imperfect.
- The number of servers does not matter: using more of them is not better.

# Critical requirements
- Map each score to the exact range of percentages in the rubric.
- Judge task completion and the choice of tools against the concrete task, not against the vague one.
- Judge planning by the share of dependencies that were handled correctly, not by the absolute number of steps or by \
exact agreement with the dependency analysis.
- Work out the actual percentage that was completed or succeeded first, and give the score of that range then.
- Proportions count, not absolute numbers: 7 of 10 steps done (70 %) score like 14 of 20 (70 %), however complex the \
task. Score by the share completed and by proportional success, never by how many tools were called or steps taken."""

_REPLY = """\
# Your verdict
Reply with one JSON object of exactly this form, every score a number from 1 to 10, and with nothing else:
{
  "task_fulfillment_reasoning": "how far the agent reached the detailed goals of the task: cite particulars of the \
concrete task, and the percentage that was completed",
  "grounding_reasoning": "how far the agent's output rests on what tools really returned rather than on unsupported \
claims",
  "tool_appropriateness_reasoning": "whether the tools that were chosen suit what each subtask required",
  "parameter_accuracy_reasoning": "how accurate and complete the parameters of the calls are: name required ones that \
are missing, and wrong values",
  "dependency_awareness_reasoning": "how far the agent understood and respected the dependencies of the task (the \
percentage handled correctly), with reference to the dependency analysis",
  "parallelism_efficiency_reasoning": "how efficient the execution was, in its use of parallel calls and in avoiding \
redundant ones, with reference to the dependency analysis",
  "task_fulfillment": X,
  "grounding": X,
  "tool_appropriateness": X,
  "parameter_accuracy": X,
  "dependency_awareness": X,
  "parallelism_and_efficiency": X
}"""

ENGLISH = Wording(
    role="You are an impartial evaluator. You judge how well an AI agent carried out a task with tools of MCP servers.",
    how_to_read=HOW_TO_READ,
    stance="""\
# How to judge
Score only by the evidence in the task, the solution and the use of tools. Your judgement is
- objective: not swayed by fluent language or good formatting
- justified: with a concrete reason for every score
- robust against bias: narrative style, length and polish count for nothing""",
    anchors="\n# Calibration examples",
    task="\n# The task as it was given to the agent",
    concrete="""
# The concrete task, for reference
For your evaluation only: the agent did not see this version. It saw the task above, which is a vaguer version of this \
one. An agent may read the vague task in another way and still be right.""",
    concrete_given="\n# The concrete task\nThe agent was given the concrete task itself: it is the one above.",
    concrete_missing="""
# The concrete task
There is no more concrete version. What is said below of the concrete task goes for the task above.""",
    analysis="""
# Dependency analysis
Made when the task was made, to explain how its tools depend on each other. The agent did not see it. Use it as a \
reference.""",
    solution="\n# The final solution",
    no_solution="There is none.",
    execution="\n# Execution\nRounds with tool calls: {rounds}. Tool calls in all: {calls}.",
    execution_without_rounds="\n# Execution\nTool calls in all: {calls}. The rounds were not recorded.",
    side_by_side="Calls that stand one after the other with no result between them ran side by side.",
    round="\n## Round {number}",
    no_calls="No tool was called.",
    events_left_out="[{count} calls, results or messages left out here]",
    ended_early="The run ended with status {status}.",
    tools="\n# Available tools ({count})",
    tools_unknown="\n# Available tools\nThey were not recorded.",
    rubric_title="\n# Rubric\nThree axes, two dimensions each. Score each dimension from 1 to 10.",
    rubric=_RUBRIC,
    scoring=_SCORING,
    reply=_REPLY,
    labels={
        "user": "user message to the agent",
        "system": "system message to the agent",
        "assistant": "assistant message in what the agent was given",
        "tool": "tool message in what the agent was given",
        "concrete": "concrete task",
        "analysis": "dependency analysis",
        "solution": "final solution",
        "call": "tool call {number}",
        "result": "result of tool call {number}",
        "error": "result of tool call {number}, an error",
        "message": "message of the agent",
        "problem": "error of the run",
        "tools": "tools",
    },
)
