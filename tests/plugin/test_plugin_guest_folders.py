"""Folders that a stranger's repository brings to hold up, or to be taken into, a session that collects cases."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.bench import Bench

from pytest_agentbench.cli import main

VENDOR = "cases/vendor"
pytestmark = pytest.mark.slow


@pytest.fixture
def project(bench: Bench) -> Bench:
    """A case of the user's, and below it a guest with one."""
    bench.agent()
    bench.case("own")
    for root in ("cases", VENDOR):
        profile = {"schema_version": 1, "run_profile_id": "safe", "title": "Safe"}
        bench.write(f"{root}/run_profiles/safe.yaml", profile)
    bench.case("theirs", folder=VENDOR)
    return bench


def link_in_rounds(vendor: Path) -> None:
    for name in ("a", "b"):
        (vendor / name).symlink_to("../..", target_is_directory=True)


def link_to_itself(vendor: Path) -> None:
    for name in ("a", "b"):
        (vendor / "theirs" / name).symlink_to(".", target_is_directory=True)


def link_to_neighbours(vendor: Path) -> None:
    """2^30 paths, of which none leads around."""
    for level in range(30):
        (vendor / f"d{level}").mkdir()
        for name in ("a", "b"):
            (vendor / f"d{level}" / name).symlink_to(f"../d{level + 1}", target_is_directory=True)


def link_out(vendor: Path) -> None:
    elsewhere = vendor.parents[2] / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "test.yaml").write_text((vendor / "theirs/test.yaml").read_text().replace("theirs", "elsewhere"))
    (vendor / "out").symlink_to(elsewhere, target_is_directory=True)


@pytest.mark.parametrize("plant", [link_in_rounds, link_to_itself, link_to_neighbours, link_out])
def test_links_to_folders_in_a_guest_are_not_followed(project: Bench, plant, capsys) -> None:  # type: ignore[no-untyped-def]
    plant(project.path / VENDOR)
    finished = project.run("--collect-only", "-q", "cases")
    ids = [line for line in finished.result.outlines if "::" in line]
    assert ids == ["cases/own/test.yaml::own[agent]", "cases/vendor/theirs/test.yaml::theirs[agent]"], finished.text
    capsys.readouterr()
    main(["list", str(project.path / "cases")])
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["own", "theirs"]


def test_a_link_to_a_folder_of_the_users_own_is_followed_unless_it_leads_around(project: Bench) -> None:
    project.case("shared", folder="shared")
    (project.path / "cases/linked").symlink_to("../shared", target_is_directory=True)
    (project.path / "cases/around").symlink_to("..", target_is_directory=True)
    finished = project.run("--collect-only", "-q", "cases/own", "cases/linked", "cases")
    assert finished.text.count("::shared[agent]") == 1
    assert finished.text.count("::own[agent]") == 1


def test_folders_nested_1500_deep_are_one_error_and_the_rest_runs(project: Bench, capsys) -> None:  # type: ignore[no-untyped-def]
    subprocess.run(["mkdir", "-p", f"{VENDOR}{'/d' * 1500}"], check=True)
    try:
        finished = project.run("cases")
        assert finished.result.parseoutcomes() == {"passed": 2, "errors": 1}
        assert "is more than 100 folders deep" in finished.text
        for command in ("validate", "list"):
            capsys.readouterr()
            assert main([command, str(project.path / "cases")]) == 1
            captured = capsys.readouterr()
            assert (captured.out + captured.err).count("is more than 100 folders deep") == 1
    finally:
        subprocess.run(["rm", "-rf", f"{VENDOR}/d"], check=True)  # pytest's own removal calls itself for each folder


@pytest.mark.parametrize("folder", ["cassettes", "outputs"])
def test_no_cases_are_collected_from_folders_of_what_sessions_recorded(project: Bench, folder: str, capsys) -> None:  # type: ignore[no-untyped-def]
    planted = f"{VENDOR}/{folder}"
    project.case("planted", folder=planted)
    project.rows(f"{planted}/rows.jsonl", {"id": "q", "question": "Which?", "answer": "Paris"})
    project.write(f"{planted}/test_mine.py", "def test_mine(): pass\n")
    finished = project.run("--collect-only", "-q", "cases")
    ids = [line.rpartition("::")[2] for line in finished.result.outlines if "::" in line]
    assert ids == ["own[agent]", "test_mine", "theirs[agent]"], "a test in Python is pytest's to collect"
    capsys.readouterr()
    main(["list", str(project.path / "cases")])
    assert "planted" not in capsys.readouterr().out
    named = project.run("--collect-only", "-q", f"{planted}/planted/test.yaml")
    assert "::planted[agent]" in named.text, "a file that somebody names is collected"


def test_20000_tags_cost_no_more_than_their_number(project: Bench) -> None:
    """Of a case, of a suite that names other ones, and fields that are no fields: none is compared with all others."""
    project.case("own", tags=[f"t{number}" for number in range(20_000)])
    begun = os.times()
    finished = project.run("--collect-only", "-q", "-m", "t19999", "--strict-markers", "cases")
    assert finished.text.count("::own[agent]") == 1
    spent = os.times()
    assert spent.user - begun.user < 15, "pytest reads all marks for each new one: 100 s"
    names = [f"x{number}" for number in range(2_000)]
    suite = {"schema_version": 1, "suite_id": "s", "title": "S", "models": [{"model_id": "demo"}]}
    project.write("cases/suites/s.yaml", {**suite, "case_selection": {"include_tags": names}})
    begun = os.times()
    main(["validate", str(project.path / "cases")])
    assert os.times().user - begun.user < 15, "a suggestion for each takes two minutes"
