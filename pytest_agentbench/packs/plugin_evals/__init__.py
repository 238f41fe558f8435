"""Folders of `claude plugin eval` as cases: `evals/CASE/` with a prompt, and graders that decide the run.

Others use: nothing
"""

from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import SourceFiles

_EVALS = f"{__name__}.cases:EVALS"
PACK = Pack(
    "plugin_evals",
    case_sources={
        "plugin_evals": SourceFiles(_EVALS, ["case.yaml", "case.yml"], ["prompt", "graders"]),
        "plugin_prompts": SourceFiles(_EVALS, ["prompt.md"]),
    },
    case_parts={"plugin_eval": f"{__name__}.records:PluginEval"},
    graders={"plugin_eval": f"{__name__}.grader:GRADER"},
    evaluation_parts={"plugin_eval": f"{__name__}.records:PluginEvalGrades"},
    report_sections={"plugin_eval": f"{__name__}.report:SECTION"},
)
