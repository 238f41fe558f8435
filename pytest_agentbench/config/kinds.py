"""The kinds of configuration files, and which kind a file is: told by its place, else by the id that it declares."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pytest_agentbench.config.agent import AgentFile
from pytest_agentbench.config.base import ConfigFile
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.commands_file import COMMANDS_FILE
from pytest_agentbench.config.dataset_file import DatasetDescriptor, is_descriptor_name
from pytest_agentbench.config.documents import read
from pytest_agentbench.config.evaluation_profile import EvaluationProfile
from pytest_agentbench.config.keys import KeysFile
from pytest_agentbench.config.models_file import ModelsFile
from pytest_agentbench.config.reports_file import ReportsFile, is_reports_name
from pytest_agentbench.config.run_profile import RunProfile
from pytest_agentbench.config.servers_file import ServersFile
from pytest_agentbench.config.suite import SuiteFile
from pytest_agentbench.errors import ConfigError

KINDS: dict[str, type[ConfigFile]] = {
    "test_case": TestCaseFile,
    "dataset": DatasetDescriptor,
    "reports": ReportsFile,
    "suite": SuiteFile,
    "run_profile": RunProfile,
    "evaluation_profile": EvaluationProfile,
    "agent": AgentFile,
    "models": ModelsFile,
    "servers": ServersFile,
    "keys": KeysFile,
}
"""Every kind of configuration file, by its schema's name."""

_BY_NAME: dict[str, type[ConfigFile]] = {
    "test": TestCaseFile,
    "models": ModelsFile,
    "servers": ServersFile,
    "keys": KeysFile,
}
_BY_FOLDER: dict[str, type[ConfigFile]] = {
    "suites": SuiteFile,
    "run_profiles": RunProfile,
    "evaluation_profiles": EvaluationProfile,
}
_BY_ID: dict[str, type[ConfigFile]] = {
    "case_id": TestCaseFile,
    "suite_id": SuiteFile,
    "run_profile_id": RunProfile,
    "evaluation_profile_id": EvaluationProfile,
    "agent_id": AgentFile,
}
_SUFFIXES = (".yaml", ".yml")
_CASSETTE = re.compile(r"-r[0-9]+\.yaml$")
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "build", "dist", "workspace"})


def kind_of(path: Path) -> type[ConfigFile] | None:
    """What a YAML file is; None where it is no configuration file."""
    if path.suffix not in _SUFFIXES or ("cassettes" in path.parts[-3:-1] and _CASSETTE.search(path.name)):
        return None
    if path.parent.name in _BY_FOLDER:
        return _BY_FOLDER[path.parent.name]
    if path.stem == "agent" and path.parent.parent.name == "agents":
        return AgentFile
    if path.stem in _BY_NAME:
        return _BY_NAME[path.stem]
    named = _kind_of_name(path.name)
    try:
        data = read(path).data
    except ConfigError:
        return named
    if not isinstance(data, dict) or "schema_version" not in data:
        return None
    return named or next((kind for key, kind in _BY_ID.items() if key in data), None)


def _kind_of_name(name: str) -> type[ConfigFile] | None:
    """What a file of that name is if it is one of ours: other tools have files of these names too."""
    if is_descriptor_name(name):
        return DatasetDescriptor
    return ReportsFile if is_reports_name(name) else None


def find_commands(folder: Path) -> Iterator[Path]:
    """Every commands.json below a folder; hidden folders and agents' workspaces are left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = _visited(folders)
        if COMMANDS_FILE in files:
            yield Path(place, COMMANDS_FILE)


def find_config_files(folder: Path) -> Iterator[tuple[Path, type[ConfigFile]]]:
    """Every configuration file below a folder with its kind.

    Other YAML files in a case's folder are the case's own; hidden folders and agents' workspaces are left out.
    """
    for place, folders, files in os.walk(folder):
        folders[:] = _visited(folders)
        case_files = [name for name in files if name in ("test.yaml", "test.yml")]
        for name in sorted(case_files or files):
            path = Path(place, name)
            kind = kind_of(path)
            if kind is not None:
                yield path, kind


def _visited(folders: list[str]) -> list[str]:
    return sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
