"""Commands of `agentbench` with the additions of an installed distribution, and of conftest files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_agentbench import extensions
from pytest_agentbench.cli import main

PACKAGE = '''
from pytest_agentbench import CasePart, Command, Grade, Grader, Pack

class Deck(CasePart):
    """A deck of cards."""

    is_section = True
    words: int = 3
    """The most words."""

class DeckGrader(Grader):
    decides = True

    async def grade(self, request):
        return Grade()

COMMAND = Command("deal cards", __name__)
PACK = Pack(
    "deck",
    case_parts={"deck": Deck},
    graders={"deck": DeckGrader()},
    schemas={"deck": Deck},
    commands={"cards deal": COMMAND, "store deal": COMMAND},
)

def add_parser(subparsers):
    subparsers.add_parser("deal").add_argument("number", type=int)

def run(args):
    print(f"{args.number} cards")
    return 0
'''
ENTRIES = "[pytest_agentbench.packs]\ndeck = added_deck:PACK\n"
CASE = """\
schema_version: 1
case_id: one
title: A case
runner: {type: llm_probe}
input: Hello.
"""
CHECKED = CASE + "deterministic_checks: [{check_id: a, declarative: {kind: final_response_present}}]\n"
CONFTEST = """
def pytest_agentbench_case_parts():
    return {"note": Note}

def pytest_agentbench_profile_sections():
    return {"tempo": TEMPO}

def pytest_agentbench_sandboxes():
    return {"farm": Farm()}
"""
PROFILE = "schema_version: 1\nrun_profile_id: p\ntitle: P\nsandbox: farm\ntempo: {speed: 2}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project: Path, name: str, text: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text)


@pytest.fixture
def installed(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install the distribution with additional entry points."""

    def install(more: str = "") -> None:
        write(project, "site/added_deck-1.0.dist-info/METADATA", "Name: added-deck\nVersion: 1.0\n")
        write(project, "site/added_deck-1.0.dist-info/entry_points.txt", ENTRIES + more)
        write(project, "site/added_deck.py", PACKAGE)
        monkeypatch.syspath_prepend(str(project / "site"))
        extensions.forget_packs()

    yield install
    monkeypatch.undo()
    extensions.forget_packs()


def test_the_schema_of_a_case_part_is_printed(installed, capsys):
    installed()
    assert main(["schema", "deck"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"]["words"]["description"] == "The most words."


def test_a_pack_that_is_wrong_is_reported_and_the_others_work(installed, project, capsys):
    write(project, "site/others.py", "from pytest_agentbench import Pack\nWRONG = Pack('w', schemas={'wrong': 5})\n")
    installed("wrong = others:WRONG\nmissing = others:PACK\nrunner mine = others:RUNNER\n")
    assert main(["schema", "deck"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["title"] == "pytest-agentbench deck"
    assert printed.err.splitlines() == [
        "agentbench: the pack 'missing' of added-deck is ignored: others:PACK: module 'others' has no attribute 'PACK'",
        "agentbench: added-deck: the entry point 'runner mine' has the form of earlier versions; write "
        "`PACK = Pack(NAME, runners={'mine': 'others:RUNNER'})`, and its entry point "
        '`NAME = "MODULE:PACK"`',
        "agentbench: the pack 'wrong' of added-deck adds the schema 'wrong' as int, expected a subclass of BaseModel",
    ]


def test_an_unknown_command_is_explained_by_the_pack_that_is_wrong(installed, capsys):
    installed("missing = absent:PACK\n")
    with pytest.raises(SystemExit):
        main(["shuffle"])
    assert "agentbench: the pack 'missing' of added-deck is ignored: absent:PACK: No module" in capsys.readouterr().err


def test_a_group_of_commands_needs_no_command_of_its_name(installed, capsys):
    installed()
    assert main(["cards", "deal", "3"]) == 0
    assert capsys.readouterr().out == "3 cards\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "commands: deal" in text
    assert "ignored commands of plugins, whose names this package has: store deal" in " ".join(text.split())


def test_list_names_the_grader_that_decides_a_case(installed, project, capsys):
    installed()
    write(project, "cases/test.yaml", CASE + "deck: {words: 2}\n")
    assert main(["list", "cases"]) == 0
    assert capsys.readouterr().out.split("\t")[3] == "deck"


def test_list_leaves_the_decision_to_a_conftests_grader(project, capsys):
    write(project, "conftest.py", "def pytest_agentbench_graders():\n    return {'mine': MINE}\n")
    write(project, "cases/test.yaml", CASE)
    assert main(["list", "cases"]) == 0
    assert capsys.readouterr().out.split("\t")[3] == "nothing unless a plugin's grader"


def test_the_doctor_names_a_pack_that_is_ignored(installed, project, capsys):
    installed("mine = added_deck:COMMAND\n")
    write(project, "cases/test.yaml", CHECKED)
    main(["doctor", "cases"])
    text = " ".join(capsys.readouterr().out.split())
    assert "the pack 'mine' of added-deck is ignored: added_deck:COMMAND: found Command, expected a Pack" in text


def test_names_of_a_conftest_in_plain_sight_are_no_errors(project, capsys):
    write(project, "conftest.py", CONFTEST)
    write(project, "cases/test.yaml", CHECKED + "note: {text: x}\n")
    write(project, "run_profiles/p.yaml", PROFILE)
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == "2 files checked, 1 case: 0 errors, 0 warnings\n"
    assert main(["list"]) == 0
    write(project, "cases/test.yaml", CHECKED + "note: {text: x}\nnot: {}\n")
    assert main(["validate"]) == 1
    assert "not: unknown field; did you mean 'note'?" in capsys.readouterr().out


def test_names_of_a_conftest_elsewhere_are_errors(project, capsys):
    write(project, "others/conftest.py", CONFTEST)
    write(project, "cases/test.yaml", CHECKED + "note: {text: x}\n")
    assert main(["validate", "cases"]) == 1
    assert "note: unknown field" in capsys.readouterr().out


def test_a_file_that_only_a_conftest_knows_is_a_warning(project, capsys):
    write(project, "conftest.py", "def pytest_agentbench_case_sources():\n    return {'cards': CARDS}\n")
    write(project, "cases/a.cards", "cards\n")
    assert main(["validate", "cases/a.cards"]) == 0
    assert "warning: not checked: no kind of file that is known here" in capsys.readouterr().out
