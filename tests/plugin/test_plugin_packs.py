"""A session with packs: of a conftest, of a guest's conftest, and of a distribution that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bench import Bench, case_yaml

from pytest_agentbench.cli import main
from pytest_agentbench.extensions import forget_packs

PACK = """
from pytest_agentbench import CasePart, Grade, Grader, Pack, ProfileSection, Record, SandboxProvider, Verdict


class Budget(CasePart):
    is_section = True
    words: int = 3


class Pace(Record):
    words: int = 3


async def echo(case, context):
    return case.messages[-1].content


def within_budget(spec, context):
    words = len(context.artifact.final_output.split())
    return Verdict("passed" if words <= context.case.part(Budget).words else "failed", f"{words} words")


class BudgetGrader(Grader):
    decides = True

    async def grade(self, request):
        return Grade(failures=("budget: none left",) if request.case.part(Budget).words == 0 else ())


PACK = Pack(
    "budget",
    graders={"budget": BudgetGrader()},
    case_parts={"budget": Budget},
    runners={"echo": echo},
    checks={"within_budget": "conftest:within_budget"},
    run_profile_sections={"pace": ProfileSection("pace", "run_profile", Pace, "How fast.", default=Pace)},
    sandboxes={"farm": SandboxProvider()},
)


def pytest_agentbench_packs():
    return [PACK]
"""
CASE = {
    "runner": {"type": "echo"},
    "budget": {"words": 1},
    "deterministic_checks": [{"check_id": "short", "declarative": {"kind": "within_budget"}}],
}


def test_a_conftest_adds_all_things_of_a_pack(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.agent(PACK)
    bench.profile("p", pace={"words": 2})
    bench.case("one", **CASE)
    bench.case("two", **{**CASE, "budget": {"words": 9}})
    bench.case("none-left", runner={"type": "echo"}, budget={"words": 0}, deterministic_checks=[])
    bench.case("without", runner={"type": "echo"}, deterministic_checks=[], report_only=True)
    finished = bench.run("--model=demo", "--agentbench-run-profile=p")
    assert finished.outcomes["one[demo]"] == "failed", finished.text
    assert finished.outcomes["two[demo]"] == "passed", finished.text
    assert "budget: none left" in finished.text
    assert finished.outcomes["without[demo]"] == "passed", finished.text
    assert main(["validate", str(bench.path)]) == 0, capsys.readouterr().out
    bench.case("one", **{**CASE, "budgt": {"words": 1}})
    assert main(["validate", str(bench.path)]) == 1
    assert "budgt: unknown field; did you mean 'budget'?" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("packs", "problem"),
    [
        ("PACK", "conftest.py: pytest_agentbench_packs returned Pack('budget'), expected a list of Pack"),
        ("[PACK, PACK]", "the pack 'budget' of {}/conftest.py adds the runner 'echo', which exists already"),
        (
            "[Pack('p', tools={'date': print})]",
            "the pack 'p' of {}/conftest.py adds the tool 'date' as print, expected",
        ),
    ],
)
def test_a_wrong_pack_of_a_conftest_ends_the_session(bench: Bench, packs: str, problem: str) -> None:
    bench.agent(PACK.replace("return [PACK]", f"return {packs}"))
    bench.case("one", **CASE)
    finished = bench.run("--model=demo")
    assert finished.exit == 4
    assert problem.format(bench.path) in finished.text
    assert "Traceback" not in finished.text


@pytest.mark.slow
def test_a_guests_pack_adds_nothing_that_could_loosen_its_limits(bench: Bench) -> None:
    bench.write("cases/vendor/run_profiles/p.yaml", {"schema_version": 1, "run_profile_id": "p", "title": "P"})
    bench.write("cases/vendor/conftest.py", PACK)
    bench.write("cases/vendor/theirs/test.yaml", case_yaml("theirs", runner={"type": "echo"}))
    bench.profile("p")
    bench.case("one")
    finished = bench.run("--model=demo", "cases", "cases/vendor")
    assert finished.runs["theirs[demo]"]["answer"] == "The capital of France? (theirs)", finished.text
    for ignored in ("the part of cases 'budget'", "the section 'pace'", "the sandbox 'farm'"):
        assert f"conftest.py: {ignored} is ignored in a folder that is not trusted" in finished.text


def test_a_wrong_installed_pack_is_a_warning(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = "[pytest_agentbench.packs]\nbroken = no_such_module:PACK\nrunner old = no_such_module:RUNNER\n"
    bench.write("site/broken-1.0.dist-info/entry_points.txt", entries)
    monkeypatch.syspath_prepend(str(bench.path / "site"))
    forget_packs()
    bench.agent(PACK)
    bench.case("one", **{**CASE, "budget": {"words": 9}})
    bench.case("two", runner={"type": "old"})
    try:
        finished = bench.run("--model=demo")
    finally:
        monkeypatch.undo()
        forget_packs()
    assert finished.outcomes["one[demo]"] == "passed", finished.text
    ignored = "the pack 'broken' of broken is ignored: no_such_module:PACK: No module named 'no_such_module'"
    assert ignored in finished.text
    assert ignored in finished.report["session"]["warnings"]
    assert "`PACK = Pack(NAME, runners={'old': 'no_such_module:RUNNER'})`" in finished.text
