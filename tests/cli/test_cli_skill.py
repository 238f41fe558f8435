"""The skill for coding agents: valid, whole, and written where agents look. Its commands are run as a page of docs."""

import re

import pytest
import yaml

from pytest_agentbench.cli import COMMANDS, main
from pytest_agentbench.options import FLAGS, OPTIONS


@pytest.fixture
def skill(capsys):
    assert main(["skill"]) == 0
    return capsys.readouterr().out


def test_the_front_matter_is_that_of_a_skill(skill):
    _, head, _ = skill.split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields.keys() == {"name", "description"}
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert 1 <= len(fields["description"]) <= 1024


def test_all_named_commands_and_options_exist(skill):
    commands = set(re.findall(r"(?:`|\$ )agentbench ([a-z]+)", skill))
    assert commands <= COMMANDS.keys()
    assert commands >= {"init", "new", "validate", "show", "schema"}
    options = set(re.findall(r"--agentbench-([a-z-]+)", skill))
    assert options <= {option.name for option in (*OPTIONS, *FLAGS)}


def test_it_is_written_into_a_folder_of_its_name(skill, tmp_path, capsys):
    place = tmp_path / ".claude" / "skills"
    assert main(["skill", "--write", str(place)]) == 0
    path = place / "agentbench" / "SKILL.md"
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_text(encoding="utf-8") == skill


def test_a_place_that_cannot_be_written_is_an_error(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["skill", "--write", str(tmp_path / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err
