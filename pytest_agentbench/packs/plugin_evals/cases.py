"""Cases of folders `evals/CASE/` of a plugin or skill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_agentbench.config.base import Scope, resolve_file
from pytest_agentbench.config.documents import read_bytes
from pytest_agentbench.config.plugins import Plugin, find_plugin, read_plugin, resolve_plugins
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.plugin_evals.files import (
    GRADERS_FOLDER,
    PROMPT_FILE,
    EvalFolder,
    EvalKeys,
    read_eval_folder,
    resolve_folder_in,
)
from pytest_agentbench.packs.plugin_evals.mocks import read_mocks
from pytest_agentbench.packs.plugin_evals.records import PART, PluginEval
from pytest_agentbench.records.case import Attachment, Case, CaseCommand, McpServer, Message, RunnerSpec, legal_id
from pytest_agentbench.records.skills import Skill
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    OpenedSource,
    SourceCase,
    SourceRequest,
    StoredAnswers,
)
from pytest_agentbench.sources.rows import short_title
from pytest_agentbench.sources.test_yaml import make_attachment

EVALS_FOLDER = "evals"
PROBE = "llm_probe"
AGENT = "agent"
_FILE_TOOLS = ("read_file", "write_file", "list_files")
_MOST_ATTACHMENTS = 50
_MOST_SCRIPT = 64 * 1024
"""Maximum bytes of a scaffold script, which is an argument of its interpreter."""
_CASE_KEYS = re.compile(r"^(prompt|graders)\s*:", re.MULTILINE)
_SHEBANG = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(?:\S*/)?(\S+)")
_INTERPRETERS = {"sh": "-ec", "dash": "-ec", "bash": "-ec", "zsh": "-ec", "python": "-c", "python3": "-c", "node": "-e"}
"""Interpreters of scaffold scripts, and their option for a program's text."""


def shows_case(path: Path, head: str | None) -> bool:
    """Return whether a `prompt.md` or `case.yaml` that nobody names is a case.

    It is one below `evals/` of a plugin or skill. Elsewhere a `case.yaml` needs both keys `prompt` and `graders`, and a
    `prompt.md` a folder `graders/` next to it. Of a folder with both files, `prompt.md` is the case.
    """
    if path.name != PROMPT_FILE and (path.parent / PROMPT_FILE).is_file():
        return False
    if find_own_plugin(path) is not None:
        return True
    if path.name == PROMPT_FILE:
        return (path.parent / GRADERS_FOLDER).is_dir()
    return head is not None and {"prompt", "graders"} <= set(_CASE_KEYS.findall(head))


def find_own_plugin(path: Path, top: Path | None = None) -> Path | None:
    """Return the nearest plugin or skill above the folder `evals` that contains the case, None without one.

    It is not above `top`; by default it is the folder that contains `evals`.
    """
    evals = next((folder for folder in path.parents if folder.name == EVALS_FOLDER), None)
    if evals is None:
        return None
    if top is None or not evals.parent.is_relative_to(top):
        top = evals.parent
    return find_plugin(evals.parent, top)


class OpenedEval(OpenedSource):
    """An opened folder of one case."""

    own_ids = True

    def __init__(self, path: Path, request: SourceRequest) -> None:
        super().__init__(path)
        root = request.root
        self.scope = root.scope(path.parent, request.known, allow_outside=request.allow_outside)
        self.folder: EvalFolder = read_eval_folder(path, self.scope)
        self.plugins = _find_plugins(self.folder, root, self.scope)
        self.left_out = [*self.folder.left_out, *_describe_plugins(path, self.plugins)]
        defaults = {} if request.run_profile is None else request.run_profile.runner_defaults
        self.runner_type = str(defaults.get("type") or PROBE)
        self.case = self._make_case()
        self.asks_judge = any(part.asks_judge for part in self.case.parts.values() if isinstance(part, PluginEval))
        root.require_servers(path, self.case.mcp_servers)

    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the case."""
        case = self.case
        runs = self.folder.keys.runs
        yield SourceCase(case.case_id, case.tags, case.path, case.line, lambda: case, repetitions=runs)

    def row_notes(self) -> Iterator[str]:
        """Yield the parts of the folder that are left out."""
        yield from self.left_out

    def _make_case(self) -> Case:
        keys = self.folder.keys
        mocks = [*read_mocks(self.path.parent, self.scope)]
        mocked: dict[str, McpServer | None] = {mock.name: mock.server for mock in mocks}
        tools = tuple(f"mcp__{mock.name}__{tool}" for mock in mocks for tool in mock.tools)
        part = PluginEval(graders=self.folder.graders, mock_tools=tools)
        metadata: dict[str, Any] = {"description": keys.description, "expected_outcome": keys.expected_outcome}
        case = Case(
            case_id=legal_id(keys.name or self.path.parent.name),
            title=short_title(keys.description or self.folder.prompt),
            path=self.path,
            tags=keys.tags,
            runner=self._make_runner(),
            messages=tuple(_make_messages(keys, self.folder.prompt)),
            attachments=tuple(self._list_attachments()),
            setup=self._make_setup(),
            skills=_join_skills(self.path, self.plugins),
            mcp_servers=_join_servers(self.path, self.plugins) | mocked,
            parts={PART: part},
            report_only=not self.folder.graders,
            **self._make_tools(part),
        )
        # Without places: metadata may be part of a run's fingerprint, and a project may move
        metadata["left_out"] = [text.partition(": ")[2] for text in self.left_out]
        return case.model_copy(update={"metadata": {name: value for name, value in metadata.items() if value}})

    def _make_tools(self, part: PluginEval) -> dict[str, Any]:
        """Return the tools by which `llm_probe` reaches the files that graders look at; agents have their own."""
        if self.runner_type != PROBE or not (part.looks_at_files or self.folder.keys.context.scaffold_script):
            return {}
        return {"context": {PROBE: {"tools": [*_FILE_TOOLS]}}, "tools": _FILE_TOOLS}

    def _make_runner(self) -> RunnerSpec:
        """Return the runner with the limits that it can keep; the others are named as left out."""
        keys = self.folder.keys
        if self.runner_type == AGENT:
            if "max_turns" in keys.model_fields_set:
                self._leave_out("max_turns", "the agent's program has its own limit")
            fields: dict[str, Any] = {"timeout_seconds": float(keys.timeout_seconds)}
            if keys.env:
                fields["env"] = keys.env
            return RunnerSpec(type=AGENT, **fields)
        for name in ("env", "timeout_seconds"):
            if name in keys.model_fields_set:
                self._leave_out(name, f"only the runner {AGENT} has it")
        return RunnerSpec(type=self.runner_type, max_turns=keys.max_turns)

    def _leave_out(self, name: str, reason: str) -> None:
        self.left_out.append(f"{self.path}:1:1: {name}: left out, because {reason}")

    def _list_attachments(self) -> Iterator[Attachment]:
        """Yield the files of the folders in `context.add_dirs`. Raises ConfigError."""
        count = 0
        for name in self.folder.keys.context.add_dirs:
            folder = resolve_folder_in(self.path.parent / name, self.scope)
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                if (count := count + 1) > _MOST_ATTACHMENTS:
                    raise ConfigError(
                        f"{self.path}:1:1: context.add_dirs: found over {_MOST_ATTACHMENTS} files, expected fewer"
                    )
                try:
                    attachment = make_attachment(str(file), self.scope)
                except ValueError as error:
                    raise ConfigError(f"{self.path}:1:1: context.add_dirs: {error}") from error
                yield attachment.model_copy(update={"name": f"{folder.name}/{file.relative_to(folder)}"})

    def _make_setup(self) -> CaseCommand | None:
        """Return the scaffold script as a command of the run's sandbox. Raises ConfigError."""
        name = self.folder.keys.context.scaffold_script
        if name is None:
            return None
        try:
            self.scope.refuse_program(f"the scaffold script {name!r}")
            script = resolve_file(name, self.scope)
            text = read_bytes(script, _MOST_SCRIPT).decode("utf-8")
        except (ValueError, ConfigError) as error:
            raise ConfigError(f"{self.path}:1:1: context.scaffold_script: {error}") from error
        shebang = _SHEBANG.match(text)
        program = "sh" if shebang is None else shebang[1]
        if program not in _INTERPRETERS:
            raise ConfigError(
                f"{script}:1:1: found a script for {program!r}, expected one for {', '.join(sorted(_INTERPRETERS))}"
            )
        return CaseCommand(command=(program, _INTERPRETERS[program], text))


def _find_plugins(folder: EvalFolder, root: ConfigRoot, scope: Scope) -> tuple[Plugin, ...]:
    if folder.keys.plugins is not None:
        return resolve_plugins(folder.keys.plugins, scope)
    top = root.path if root.guest is None else root.guest.folder
    nearest = find_own_plugin(folder.path, top)
    return () if nearest is None else (read_plugin(nearest, scope),)


def _describe_plugins(path: Path, plugins: tuple[Plugin, ...]) -> Iterator[str]:
    """Yield the parts of plugins that are left out."""
    for plugin in plugins:
        if plugin.left_out:
            yield f"{path}:1:1: plugin {plugin.name}: left out {', '.join(plugin.left_out)}"
        yield from plugin.servers.refused.values()
        yield from plugin.servers.notes


def _join_skills(path: Path, plugins: tuple[Plugin, ...]) -> tuple[Skill, ...]:
    skills: dict[str, Skill] = {}
    for skill in (skill for plugin in plugins for skill in plugin.skills):
        first = skills.setdefault(skill.name, skill)
        if first.folder != skill.folder:
            raise ConfigError(
                f"{path}:1:1: plugins: found two skills {skill.name!r}, in {first.folder} and {skill.folder}; "
                "an agent needs different names"
            )
    return tuple(skills.values())


def _join_servers(path: Path, plugins: tuple[Plugin, ...]) -> dict[str, McpServer | None]:
    servers: dict[str, McpServer | None] = {}
    for plugin in plugins:
        for name, server in plugin.servers.servers.items():
            if servers.setdefault(name, server) != server:
                raise ConfigError(f"{path}:1:1: plugins: found two servers {name!r}, expected different names")
    return servers


def _make_messages(keys: EvalKeys, prompt: str) -> Iterator[Message]:
    if keys.append_system_prompt is not None:
        yield Message(role="system", content=keys.append_system_prompt)
    yield Message(role="user", content=prompt)


class PluginEvalFolders(CaseSource):
    """Folders of cases, by their `prompt.md` or `case.yaml`."""

    holds = "a plugin's eval"

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return whether the file is a case, see `shows_case`."""
        return shows_case(path, head)

    def open(self, path: Path, request: SourceRequest) -> OpenedEval:
        """Return the case. Raises ConfigError with all problems of its files."""
        return OpenedEval(path, request)


EVALS = PluginEvalFolders()
