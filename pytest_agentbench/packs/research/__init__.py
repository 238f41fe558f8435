"""Research reports (seed 003): queries, criteria, RACE, FACT, POET; items and commands.

Others use: nothing
"""

from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import Command, ScriptSections, SourceFiles

PACK = Pack(
    "research",
    case_sources={
        "reports": SourceFiles(
            f"{__name__}.cases:REPORTS",
            ["reports.yaml", "reports.yml", "*.reports.yaml", "*.reports.yml"],
            ["schema_version"],
        )
    },
    case_parts={"research": f"{__name__}.records:ResearchTask"},
    graders={"research": f"{__name__}.grader:GRADER"},
    evaluation_parts={"research": f"{__name__}.records:ResearchScores"},
    report_sections={"research": f"{__name__}.report:SECTION"},
    schemas={"reports": f"{__name__}.reports_file:ReportsFile"},
    scripts={
        "research": ScriptSections(
            "researches",
            "Scripted replies of a judge to every research report.",
            "Replies that replace `research` for single reports, by item id.",
        )
    },
    commands={
        "research": Command(
            "score research reports: POET, RACE, FACT; select queries, make criteria", f"{__name__}.commands"
        )
    },
)
