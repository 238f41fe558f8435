"""The pack: all that this distribution adds, by name. A session imports the other modules when a file uses the name."""

from pytest_agentbench import Command, Pack, SourceFiles

CARDS = SourceFiles("agentbench_sample.cards:CARDS", patterns=["*.cards"], words=["cards"])
COMMAND = Command("print the cards of files", "agentbench_sample.command")
PACK = Pack(
    "sample",
    case_sources={"cards": CARDS},
    case_parts={
        "card": "agentbench_sample.cards:Card",
        "exam": "agentbench_sample.exam:Exam",
        "customer": "agentbench_sample.customer:Customer",
    },
    runners={"shell": "agentbench_sample.shell:RUNNER"},
    run_profile_sections={"shell": "agentbench_sample.settings:SHELL"},
    doctor_needs={"shell": "agentbench_sample.needs:NEEDS"},
    sandboxes={"plain": "agentbench_sample.plain:PLAIN", "crate": "agentbench_sample.crate:CRATE"},
    checks={"line_count": "agentbench_sample.line_count:LineCount"},
    graders={"card": "agentbench_sample.brevity:BREVITY", "exam": "agentbench_sample.exam:EXAM"},
    drivers={"customer": "agentbench_sample.customer:DRIVER"},
    evaluation_parts={"brevity": "agentbench_sample.brevity:Brevity"},
    report_sections={"brevity": "agentbench_sample.section:SECTION"},
    report_formats={"words": "agentbench_sample.words:WORDS"},
    commands={"cards": COMMAND},
)
