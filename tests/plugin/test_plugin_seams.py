"""What a conftest adds beside runners, tools and checks: sandboxes, sections, parts of cases, kinds of files."""

from __future__ import annotations

import json

import pytest
from support.bench import ECHO, Bench, case_yaml

from pytest_agentbench.extensions import extension_names

SEAMS = """
from pytest_agentbench import (
    CasePart, Grade, Grader, ProfileSection, RunnerKind, RunnerSession, Prepared,
    SandboxProvider, SandboxSession,
)
from pytest_agentbench.config.base import ConfigFile
from pytest_agentbench.config.sections import FileKind
from pytest_agentbench.records.base import Record
from pytest_agentbench.reports.sections import ReportSection
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox


class Pace(Record):
    words: int = 3


PACE = ProfileSection("pace", "run_profile", Pace, "How long answers may be.", default=Pace)


class Persona(ConfigFile):
    persona_id: str
    says: str


class Farm(SandboxSession):
    async def start(self, request):
        return LocalSandbox(request.workspace, request.spec.limits)


class Farms(SandboxProvider):
    def open(self):
        with open("opened.txt", "a") as file:
            file.write("farm ")
        return Farm()


class Session(RunnerSession):
    def prepare(self, request):
        from pytest_agentbench.config.base import load
        persona = load(request.root.find("personas", "parrot"), Persona)
        return Prepared(identity={"persona": persona.says}, data=(persona, request.profile.section(PACE)))


class Actor(RunnerKind):
    def open(self, parts):
        return Session()

    async def __call__(self, case, context):
        persona, pace = context.prepared
        sandbox = await context.sandbox()
        done = await sandbox.exec(["echo", *persona.says.split()[:pace.words]], seconds=10)
        return done.output


class Words(Record):
    words: int


class Counter(Grader):
    part_name = "words"

    async def grade(self, request):
        return Grade(record=Words(words=len((request.artifact.final_output or "").split())))


class WordSection(ReportSection):
    def schema(self):
        return {"row": {"type": "object"}}

    def row(self, case, evaluation):
        found = evaluation.part(Words) if evaluation is not None else None
        return None if found is None else found.model_dump()

    def evidence(self, evaluation):
        return ["counted"]


def pytest_agentbench_runners():
    return {"actor": Actor()}


def pytest_agentbench_graders():
    return {"words": Counter()}


def pytest_agentbench_evaluation_parts():
    return {"words": Words}


def pytest_agentbench_profile_sections():
    return {"pace": PACE}


def pytest_agentbench_file_kinds():
    return {"personas": FileKind("persona", "personas", "persona_id", Persona)}


def pytest_agentbench_sandboxes():
    return {"farm": Farms()}


def pytest_agentbench_report_sections():
    return {"words": WordSection()}
"""
PARROT = {"schema_version": 1, "persona_id": "parrot", "says": "Paris is the capital of France"}


@pytest.fixture
def project(bench: Bench) -> Bench:
    bench.agent(SEAMS)
    bench.write("cases/personas/parrot.yaml", PARROT)
    bench.profile("p", sandbox="farm", pace={"words": 2})
    bench.case("one", runner={"type": "actor"})
    return bench


def run(bench: Bench, *arguments: str):
    return bench.run("--model=demo", "--agentbench-run-profile=p", *arguments)


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_each_seam_is_filled_by_one_file(project: Bench, workers: tuple[str, ...]) -> None:
    finished = run(project, *workers)
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert finished.runs["one[demo]"]["words"] == {"words": 2}
    assert (project.path / "opened.txt").read_text() == "farm "
    assert "sandbox: farm: commands of agents run without isolation, as far as its provider says" in finished.text
    again = run(project, *workers)
    assert again.runs["one[demo]"]["reused"]
    assert again.runs["one[demo]"]["words"] == {"words": 2}
    project.write("before.json", json.dumps(again.report))
    compared = run(project, "--agentbench-compare=before.json", *workers)
    assert compared.exit == 0, compared.text


@pytest.mark.slow
def test_nothing_of_it_outlives_the_session(project: Bench) -> None:
    assert run(project).outcomes == {"one[demo]": "passed"}
    assert "farm" not in extension_names("sandbox")
    (project.path / "conftest.py").unlink()
    finished = run(project)
    assert "sandbox: found 'farm', expected 'auto', 'docker', 'bubblewrap' or 'local'" in finished.text


def test_errors_in_sections_of_a_conftest_name_the_field(project: Bench) -> None:
    project.profile("p", sandbox="farm", pace={"words": "two"})
    assert "p.yaml:4:10: pace.words: found 'two', expected" in (said := run(project).text), said
    project.profile("p", sandbox="frm", pacce={})
    said = run(project).text
    assert "did you mean 'pace'?" in said
    assert "sandbox: found 'frm', expected 'auto', 'docker', 'bubblewrap', 'local' or 'farm'" in said


@pytest.mark.parametrize(
    ("hook", "returned", "problem"),
    [
        ("sandboxes", "{'local': SandboxProvider()}", "conftest.py adds the sandbox 'local', which exists already"),
        ("sandboxes", "{'farm': print}", "conftest.py adds the sandbox 'farm' as print, expected a SandboxProvider"),
        ("sandboxes", "['farm']", "conftest.py: pytest_agentbench_sandboxes returned list, expected a mapping"),
        ("case_parts", "{'tags': Part}", "conftest.py adds the part of cases 'tags', which exists already"),
        ("case_parts", "{'mcp_task': Part}", "conftest.py adds the part of cases 'mcp_task', which exists already"),
        (
            "case_parts",
            "{'a': Part()}",
            "conftest.py adds the part of cases 'a' as Part, expected a subclass of CasePart",
        ),
        ("profile_sections", "{'sandbox': SECTION}", "as one that calls itself 'network', expected the same name"),
        ("profile_sections", "{'network': SECTION}", "conftest.py adds the section 'network', which exists already"),
        ("profile_sections", "{'a': None}", "conftest.py adds the section 'a' as None"),
        ("profile_sections", "{'pace': OTHER}", "as one of 'case_part', expected one of 'run_profile'"),
        ("file_kinds", "{'agents': 1}", "conftest.py adds the kind of file 'agents' as int, expected a FileKind"),
        ("tools", "{'a': None}", "conftest.py adds the tool 'a' as None"),
        ("tools", "{'a': print}", "conftest.py adds the tool 'a' as print, expected a Tool"),
        ("runners", "{'a': 5}", "conftest.py adds the runner 'a' as int, expected a callable"),
        ("graders", "{'a': Part}", "conftest.py adds the grader 'a' as Part, expected a Grader"),
        ("report_sections", "{'a': None}", "conftest.py adds the section of reports 'a' as None"),
    ],
)
def test_an_invalid_extension_ends_the_session(bench: Bench, hook: str, returned: str, problem: str) -> None:
    bench.agent(
        ECHO + "from pytest_agentbench import CasePart, ProfileSection, SandboxProvider\n"
        "class Part(CasePart):\n    pass\n"
        "SECTION = ProfileSection('network', 'run_profile', int, 'N.', default=int)\n"
        "OTHER = ProfileSection('pace', 'case_part', int, 'N.', default=int)\n"
        f"def pytest_agentbench_{hook}():\n    return {returned}\n"
    )
    bench.case("one")
    finished = bench.run()
    assert finished.exit == 4
    assert problem in finished.text
    assert "Traceback" not in finished.text


@pytest.mark.slow
def test_a_guests_conftest_adds_no_sandbox(project: Bench) -> None:
    project.write("cases/vendor/run_profiles/p.yaml", {"schema_version": 1, "run_profile_id": "p", "title": "P"})
    project.write("cases/vendor/theirs/test.yaml", case_yaml("theirs"))
    (project.path / "cases" / "conftest.py").write_text((project.path / "conftest.py").read_text())
    (project.path / "conftest.py").rename(project.path / "cases" / "vendor" / "conftest.py")
    (project.path / "cases" / "conftest.py").unlink()
    finished = run(project, "cases", "cases/vendor")
    assert "pytest_agentbench_sandboxes is ignored in a folder that is not trusted; read the files of" in finished.text
    assert "agentbench trust" in finished.text
    assert "sandbox: found 'farm', expected 'auto'" in finished.text
    trusted = run(project, "cases", "cases/vendor", "--agentbench-trust=cases/vendor")
    assert trusted.outcomes["one[demo]"] == "passed", trusted.text


BUDGET = """
from pydantic import Field
from pytest_agentbench import CasePart, Verdict
from pytest_agentbench.config.base import LocalFile


class Budget(CasePart):
    is_section = True
    words: int = Field(3, ge=1)
    template: LocalFile | None = None


def spent(spec, context):
    words = len((context.artifact.final_output or "").split())
    most = context.case.part(Budget)
    return Verdict("passed" if most is None or words <= most.words else "failed", f"{words} words")


def pytest_agentbench_checks():
    return {"within_budget": spent}


def pytest_agentbench_case_parts():
    return {"budget": Budget}
"""


@pytest.fixture
def budgets(bench: Bench) -> Bench:
    bench.agent(ECHO + BUDGET)
    return bench


def budget_case(bench: Bench, case_id: str = "one", **fields: object) -> None:
    checks = [{"check_id": "b", "declarative": {"kind": "within_budget"}}]
    bench.case(case_id, metadata={"says": "It is Paris"}, deterministic_checks=checks, **fields)


@pytest.mark.slow
def test_a_part_is_written_as_a_section_of_a_test_case(budgets: Bench) -> None:
    budget_case(budgets, budget={"words": 3})
    assert budgets.run().outcomes == {"one[agent]": "passed"}
    assert budgets.run().runs["one[agent]"]["reused"]
    budget_case(budgets, budget={"words": 2})
    changed = budgets.run()
    assert changed.outcomes == {"one[agent]": "failed"}
    assert not changed.runs["one[agent]"]["reused"]
    budget_case(budgets)
    assert budgets.run().outcomes == {"one[agent]": "passed"}


def test_errors_in_a_case_part_contain_their_place(budgets: Bench) -> None:
    problems = [
        ({"budget": {"words": 0}}, "test.yaml:2:10: budget.words: found 0, expected at least 1"),
        ({"budget": {"word": 3}}, "budget.word: unknown field; did you mean 'words'?"),
        ({"budget": {"template": "none.txt"}}, "budget.template: found 'none.txt', expected an existing file"),
        ({"budget": {"template": "../../../x"}}, "budget.template: found '../../../x', which leaves"),
        ({"bugdet": {}}, "test.yaml:1:1: bugdet: unknown field; did you mean 'budget'?"),
        ({"mcp_task": {"servers": []}}, "mcp_task: unknown field"),
    ]
    for number, (fields, _) in enumerate(problems):
        budget_case(budgets, f"case{number}", **fields)
    lines = budgets.run().text.splitlines()
    for number, (_, problem) in enumerate(problems):
        assert any(f"case{number}/test.yaml:" in line and problem in line for line in lines), (number, lines)


def test_a_conftest_in_a_folder_adds_too(project: Bench) -> None:
    (project.path / "conftest.py").rename(project.path / "cases" / "conftest.py")
    finished = project.run("--model=demo", "--agentbench-run-profile=p")  # which loads it while it collects
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert finished.runs["one[demo]"]["words"] == {"words": 2}
