"""Sessions in CI: what GitHub, GitLab and Jenkins get to see, whatever agents say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from support.bench import HEAD
from support.github_runner import commands

COMMAND = "::set-output name=x::y"
ATTACK = (
    f"\n{COMMAND}\n   ::error::forged\n##[add-mask]a\r::stop-commands::b\n]]></failure>\x00\x1b[31m\ud800\ufffe @team"
)
AGENT = (
    HEAD
    + f"""
ATTACK = {ATTACK!r}

async def agent(case):
    print(ATTACK)
    if case.case_id == "skips":
        pytest.skip(ATTACK)
    if case.case_id == "breaks":
        raise RuntimeError(ATTACK)
    return ATTACK * int(case.metadata.get("times", 1)) if case.case_id == "fails" else "Paris"
"""
)
LEGAL = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@pytest.fixture
def project(bench):
    bench.agent(AGENT)
    for case_id in ("passes", "fails", "breaks", "skips"):
        bench.case(case_id)
    return bench


@pytest.fixture
def github(project, monkeypatch):
    """A job of GitHub Actions; its step's summary."""
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/bench")
    monkeypatch.setenv("GITHUB_SHA", "abc")
    return summary


@pytest.mark.parametrize("args", [(), ("-rA", "-v"), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_job_of_github_gets_annotations_and_a_summary_and_no_other_command(project, github, args):
    finished = project.run(*args)
    found = commands(finished.text)
    assert [(each.name, each.properties.get("file"), each.properties.get("line")) for each in found] == [
        ("error", "cases/fails/test.yaml", "1"),
        ("error", "cases/breaks/test.yaml", "1"),
    ]
    assert found[0].properties["title"] == "fails failed on agent"
    text = github.read_text(encoding="utf-8")
    assert "❌ agentbench: 4 runs: 1 passed, 1 failed, 1 skipped, 1 error" in text
    assert "https://github.com/me/bench/blob/abc/cases/fails/test.yaml#L1" in text
    assert "@team" not in text
    assert finished.exit == 1


BROKEN = """schema_version: 1
case_id: broken
titel: "##[error]x"
"k\\n::error::forged": 1
"""


@pytest.mark.parametrize("args", [(), ("--full-trace",), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_case_file_that_cannot_be_read_is_annotated_where_it_is_wrong(project, github, args):
    project.write("cases/broken/test.yaml", BROKEN)
    project.rows("cases/facts.jsonl", {"question": "The capital?", "answer": "Paris"}, "{")
    finished = project.run("-k", "passes or facts", *args)
    assert set(finished.outcomes.values()) == {"passed"}
    found = commands(finished.text)
    assert [(each.name, each.properties.get("file"), each.properties.get("line")) for each in found] == [
        ("error", "cases/broken/test.yaml", "1"),
        ("error", "cases/facts.jsonl", "2"),
    ]
    assert found[0].properties["title"] == "collection error in cases/broken/test.yaml"
    assert "line 3: titel: unknown field; did you mean 'title'?" in found[0].message
    assert "line 4: k\\n::error::forged: unknown field" in found[0].message
    text = github.read_text(encoding="utf-8")
    assert "### Collection errors in 2 files" in text
    assert "https://github.com/me/bench/blob/abc/cases/broken/test.yaml#L3" in text
    assert "2 passed" in text
    told = finished.report["session"]["uncollected"]
    assert told[-1] == {"file": "cases/facts.jsonl", "line": 2, "message": told[-1]["message"]}


def test_where_no_case_file_can_be_read_ci_is_told_so(project, github):
    project.write("cases/broken/test.yaml", BROKEN)
    finished = project.run("cases/broken", "--agentbench-fail-under", "0")
    assert finished.exit == 1
    assert finished.report["runs"] == []
    assert [each.properties.get("file") for each in commands(finished.text)] == [None, "cases/broken/test.yaml"]
    assert "❌ agentbench: no run was made" in github.read_text(encoding="utf-8")


def test_elsewhere_nothing_of_it_is_there(project, github, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS")
    finished = project.run()
    assert not github.exists()
    assert "::error file" not in finished.text
    assert finished.runs["fails[agent]"]["line"] == 1


def test_a_dry_run_tells_github_nothing(project, github):
    project.run("--agentbench-dry-run")
    assert not github.exists()


def test_a_summary_that_cannot_be_written_is_a_warning_and_the_report_is_kept(project, github, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "nowhere" / "summary.md"))
    finished = project.run("-k", "passes")
    assert finished.exit == 1
    assert "the job summary cannot be written" in finished.text
    told = finished.report["session"]
    assert (told["exit_status"], "the job summary cannot be written" in told["warnings"][-1]) == (1, True)
    assert finished.outcomes == {"passes[agent]": "passed"}


def test_a_chart_is_written_at_the_end(project):
    project.run("--agentbench-chart", "out/chart.svg", "-k", "passes")
    assert (project.path / "out" / "chart.svg").read_text(encoding="utf-8").startswith("<svg ")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--agentbench-html", "outputs/report.json"), "report.json, which is the report too"),
        (("--agentbench-json", "r", "--agentbench-chart", "./r"), "r, which is the report too"),
        (("--agentbench-html", "x", "--agentbench-chart", "x"), "x, which is --agentbench-html too"),
    ],
)
def test_no_output_replaces_another_one(project, args, said):
    finished = project.run(*args)
    assert (finished.exit, finished.report) == (4, None)
    assert said in finished.text


def test_a_chart_in_another_format_is_refused_before_anything_runs(project):
    finished = project.run("--agentbench-chart", "chart.png")
    assert (finished.exit, finished.report) == (4, None)
    assert "--agentbench-chart: found chart.png, expected a name that ends in .svg" in finished.text


# -- JUnit: what GitLab and Jenkins read is pytest's own file


@pytest.fixture
def junit(project):
    project.run("--junit-xml=junit.xml", "--agentbench-repetitions", "2")
    return project.path / "junit.xml"


def test_junit_is_xml_that_any_parser_takes(junit):
    text = junit.read_bytes().decode("utf-8")
    assert LEGAL.fullmatch(text)
    ElementTree.fromstring(text)


def test_jenkins_and_gitlab_find_what_they_read(junit):
    """Jenkins' JUnit plugin and GitLab: name, classname and time of each test case; one failure, error or skip in it
    with a text; counts that add up; no two test cases of the same name, of which GitLab drops all but one."""
    (suite,) = ElementTree.parse(junit).getroot().iter("testsuite")
    cases = list(suite.iter("testcase"))
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(names) == len(set(names)) == int(suite.get("tests", 0)) == 8
    assert all(all(name) for name in names)
    ends = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    for tag, attribute in ends.items():
        assert int(suite.get(attribute, -1)) == sum(case.find(tag) is not None for case in cases) > 0
    for case in cases:
        assert float(case.get("time", "none")) >= 0
        found = [child for child in case if child.tag in ends]
        assert len(found) <= 1
        assert all(child.get("message") for child in found)
        assert [child.tag for child in case].count("properties") == 1


def test_properties_of_junit_are_short(project):
    project.case("huge", metadata={"times": 200_000})
    project.run("--junit-xml=junit.xml")
    root = ElementTree.parse(project.path / "junit.xml").getroot()
    for found in root.iter("property"):
        assert found.get("name", "").startswith("agentbench.")
        assert len(found.get("value", "")) < 300
    assert (project.path / "junit.xml").stat().st_size < 100_000
