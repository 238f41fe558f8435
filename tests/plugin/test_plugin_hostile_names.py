"""Names of folders and files that steer terminals and CI, or that XML cannot hold, in node ids."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from support.bench import ECHO, case_yaml
from support.ci_logs import heeded
from support.github_runner import commands

NAMES = ("a\nb", "c\x1b[2Jd\x07", "e\n::error::forged", "##vso[task.complete]f", "g\u202eh\ti")
_OURS = re.compile(r"\x1b\[[0-9;]*m")  # pytest's colours


@pytest.mark.slow
def test_names_of_folders_steer_nothing_and_leave_reports_whole(bench):
    bench.write("conftest.py", ECHO)
    for at, name in enumerate(NAMES):
        bench.write(f"cases/{name}/test.yaml", case_yaml(f"case-{at}", metadata={"says": "Rome"}))
    bench.write("cases/j\x1bk/test.yaml", {"case_id": 1, "schema_version": 1})
    bench.write("cases/plain/test.yaml", case_yaml("plain"))
    done = bench.run("--junit-xml=junit.xml", "-ojunit_family=xunit1", "-rA", "-vv")
    assert sorted(done.outcomes.values()) == [*["failed"] * len(NAMES), "passed"]
    shown = _OURS.sub("", done.text)
    assert r"FAILED cases/a\nb/test.yaml::case-0[agent]" in shown
    assert r"ERROR cases/j\x1bk/test.yaml" in shown
    assert not set(shown) & set("\x1b\x07\r\u202e")
    assert (heeded(shown), commands(shown)) == ([], [])
    text = (bench.path / "junit.xml").read_text()
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", text)
    files = [case.get("file") for case in ElementTree.fromstring(text).iter("testcase")]
    assert r"cases/a\nb/test.yaml" in files
    true = {row["nodeid"].partition("::")[0] if "::error" not in row["nodeid"] else None for row in done.report["runs"]}
    assert true > {f"cases/{name}/test.yaml" for name in NAMES if "::" not in name}


@pytest.mark.slow
def test_such_cases_are_chosen_as_others_are(bench):
    bench.write("conftest.py", ECHO)
    for at, name in enumerate(NAMES[:2]):
        bench.write(f"cases/{name}/test.yaml", case_yaml(f"case-{at}", metadata={"says": ("Rome", "Paris")[at]}))
    assert sorted(bench.run().outcomes.values()) == ["failed", "passed"]
    for chosen in (("--lf",), ("-k", "case-0"), (f"cases/{NAMES[0]}/test.yaml",)):
        assert bench.run(*chosen).outcomes == {"case-0[agent]": "failed"}, chosen
