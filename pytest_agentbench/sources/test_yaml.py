"""Convert `test.yaml` to a Case: read the sources of messages and turns, and hash the attachments."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from pytest_agentbench.bounded.files import MAX_RECORD, open_file
from pytest_agentbench.config.base import (
    UNVERIFIED,
    Known,
    Scope,
    load_in,
    resolve_file,
    resolve_folder,
    resolve_path,
    validate,
)
from pytest_agentbench.config.case_file import (
    CaseHook,
    CaseSandbox,
    CaseVerifier,
    TestCaseFile,
    named_verifiers,
    refuses_tools,
)
from pytest_agentbench.config.case_messages import MessageSource, MessageSpec, find_call_problems
from pytest_agentbench.config.documents import (
    Loc,
    make_located_error,
    parse_json,
    parse_yaml,
    read_bytes,
    read_document,
)
from pytest_agentbench.config.pattern_doubts import list_pattern_doubts
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import map_servers
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import find_extension, load_extensions
from pytest_agentbench.records.case import (
    Attachment,
    Case,
    CaseCommand,
    Expected,
    HiddenFile,
    Message,
    SandboxNeeds,
    Verifier,
)
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    IndexedCase,
    OpenedSource,
    SourceCase,
    SourceRequest,
    StoredAnswers,
)

if TYPE_CHECKING:
    from pytest_agentbench.config.agent_parts import AgentParts

CASE_FILES = ("test.yaml", "test.yml")
"""The names of case files."""

_FORMATS = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def load_case(path: Path, root: ConfigRoot, known: Known = UNVERIFIED, *, allow_outside: bool = False) -> Case:
    """Return the case of a `test.yaml` below `root`. `allow_outside`: its paths may leave the root.

    :raises ConfigError: with all problems of the file, or, if it has none, of a file that it names.
    """
    scope = root.scope(path.parent, known, allow_outside=allow_outside)
    file = load_in(path, TestCaseFile, scope)
    return _make_case(path, file, _resolve_parts(path, file, scope), root, scope)


def _make_case(path: Path, file: TestCaseFile, parts: AgentParts | None, root: ConfigRoot, scope: Scope) -> Case:
    servers = map_servers(file.mcp_servers)
    if parts is not None:
        servers = {**parts.servers, **servers}
    root.require_servers(path, servers)
    messages = _messages(file.input.messages, scope)
    if problems := [*find_call_problems(messages), *_find_times(messages)]:
        # Messages about other files. Problems of its own messages were reported above.
        raise make_located_error(
            path, [(("input", "messages"), f"{text} (in message {at[0]})") for at, text in problems]
        )
    case = Case(
        case_id=file.case_id,
        title=file.title,
        path=path,
        tags=file.tags,
        runner=file.runner,
        messages=messages,
        conversation=file.conversation,
        attachments=tuple(make_attachment(name, scope) for name in file.input.attachments),
        context=file.input.context,
        tools=named_tools(file.input.context),
        mcp_servers=servers,
        workspace=_resolve_optional(file.workspace, scope, resolve_folder),
        sandbox=_sandbox(file.sandbox, scope),
        expectations=file.expectations,
        rubric=file.rubric,
        checks=file.deterministic_checks,
        metrics=file.metrics,
        reference=file.reference,
        verify=tuple(make_verifier(verifier, scope) for verifier in named_verifiers(file.verify)),
        setup=make_command(file.setup, path),
        teardown=make_command(file.teardown, path),
        metadata=file.metadata,
        must_pass=file.must_pass,
        report_only=file.report_only,
        require_hard=file.require_hard,
        thresholds=file.thresholds,
        skill=file.skill,
        skills=parts.skills if parts else (),
        parts={section.name: part for section, part in file.sections()},
    )
    if file.input.turns:
        from pytest_agentbench.sources.case_turns import add_turns

        case = add_turns(case, file, lambda spec: _messages((spec,), scope))
    if case.skill is None:
        return case
    from pytest_agentbench.sources.triggers import add_trigger_check

    return add_trigger_check(case)


def _resolve_parts(path: Path, file: TestCaseFile, scope: Scope) -> AgentParts | None:
    """Return the case's skills and plugins, None if it has none. Raises ConfigError."""
    if not file.skills and not file.plugins:
        return None
    from pytest_agentbench.config.agent_parts import resolve_parts

    parts = resolve_parts(file.skills, file.plugins, scope)
    if parts.servers and refuses_tools(find_extension("runner", file.runner.type)):
        message = (
            f"found a plugin with MCP servers ({', '.join(parts.servers)}), and the runner {file.runner.type} has its "
            "own tools and cannot get others; name the plugin's skills by `skills`"
        )
        raise make_located_error(path, [(("plugins",), message)])
    return parts


def _resolve_optional(path: str | None, scope: Scope, resolve: Callable[[str, Scope], Path]) -> Path | None:
    return None if path is None else resolve(path, scope)


def _sandbox(sandbox: CaseSandbox | None, scope: Scope) -> SandboxNeeds | None:
    if sandbox is None:
        return None
    compose = _resolve_optional(sandbox.compose, scope, resolve_file)
    dockerfile = _resolve_optional(sandbox.dockerfile, scope, resolve_file)
    needs = SandboxNeeds(image=sandbox.image, dockerfile=dockerfile, compose=compose)
    if compose is not None or dockerfile is not None:
        for provider in load_extensions("sandbox").values():
            provider.check_files(needs)  # report problems of the files with those of the case
    return needs


def make_command(hook: CaseHook | None, file: Path) -> CaseCommand | None:
    """Return the command of a file's `setup` or `teardown`: lines run in /bin/sh and end at the first that fails."""
    if hook is None:
        return None
    command = hook.command
    if isinstance(command, str):
        command = ("/bin/sh", "-ec", command)
    return CaseCommand(command=command, timeout_seconds=hook.timeout_seconds, file=file)


def make_verifier(verifier: CaseVerifier, scope: Scope) -> Verifier:
    """Return the verifier with its paths resolved. Raises ValueError for a path that leaves the root."""
    command = verifier.command
    if isinstance(command, str):
        command = ("/bin/sh", "-c", command)
    return Verifier(
        check_id=verifier.check_id or "",
        files=tuple(
            HiddenFile(target=target, source=Path(resolve_path(source, scope)))
            for target, source in verifier.files.items()
        ),
        command=command,
        expected=verifier.expected or Expected(),
        pytest=verifier.pytest,
        keep=verifier.keep,
        apart=verifier.apart,
        canary=_resolve_optional(verifier.canary, scope, resolve_folder),
        answer_file=verifier.answer_file,
        timeout_seconds=verifier.timeout_seconds,
    )


def named_tools(context: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the registered tools that a case's context lets `llm_probe` call, without its canned tools."""
    probe = context.get("llm_probe") or {}
    return tuple(dict.fromkeys(tool for tool in probe.get("tools") or () if isinstance(tool, str)))


def _find_times(messages: tuple[Message, ...]) -> Iterator[tuple[Loc, str]]:
    for index, message in enumerate(messages):
        if message.max_seconds is not None:
            yield (index,), "found max_seconds, which only turns have; leave it out"


def _messages(specs: tuple[MessageSpec, ...], scope: Scope) -> tuple[Message, ...]:
    messages: list[Message] = []
    for spec in specs:
        if spec.source is not None:
            messages += _sourced(spec, spec.source, scope)
        else:
            messages.append(_message(spec, spec.content or ""))
    return tuple(messages)


def _message(spec: MessageSpec, content: str) -> Message:
    return Message(
        role=spec.role, content=content, name=spec.name, tool_calls=spec.tool_calls, tool_call_id=spec.tool_call_id
    )


def _sourced(spec: MessageSpec, source: MessageSource, scope: Scope) -> list[Message]:
    """Return the messages in a file: one or a list with their own roles from YAML and JSON, else the file's text as one
    message in the spec's role.
    """
    path = resolve_file(source.path, scope)
    text = read_bytes(path)
    form = source.format or _FORMATS.get(path.suffix.lower(), "text")
    if form == "text":
        return [_message(spec, _decoded(text, path))]
    parse = parse_yaml if form == "yaml" else parse_json
    document = parse(text, path)
    if isinstance(document.data, list):
        messages: list[Message] = validate(document, _adapter(list[Message]), scope)
        return messages
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}:1:1: found no message, expected one (role, content) or a list of them")
    outer = {"role": spec.role, "name": spec.name}
    # The file takes precedence. The fields next to `source` are fallbacks.
    document.data = {**{key: value for key, value in outer.items() if value is not None}, **document.data}
    return [validate(document, _adapter(Message), scope)]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _decoded(text: bytes, path: Path) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path}:1:1: not UTF-8: {error.reason} at byte {error.start}; save the file as UTF-8"
        raise ConfigError(message) from error


def make_attachment(name: str, scope: Scope) -> Attachment:
    """Return an attachment of a case. Raises ValueError for a path that leaves the scope, ConfigError."""
    path = resolve_file(name, scope)
    try:
        with open_file(path, MAX_RECORD) as file:
            # The size of the hashed content, because the file may grow after a stat.
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise ConfigError(f"{path}:1:1: cannot be read: {error.strerror}") from error
    return Attachment(name=os.path.basename(name), path=path, size=size, sha256=digest)


class OpenedCase(OpenedSource):
    """A `test.yaml`, which is one case, read at once."""

    own_ids = True
    part_doubts: tuple[str, ...] = ()
    check_places: Sequence[Loc] | None = None

    def __init__(self, case: Case) -> None:
        super().__init__(case.path)
        self._case = case

    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the case."""
        case, repetitions = self._case, 1
        if case.skill is not None:
            from pytest_agentbench.sources.triggers import count_repetitions

            repetitions = count_repetitions(case)
        yield SourceCase(
            case.case_id, case.tags, case.path, case.line, lambda: case, own_metrics=True, repetitions=repetitions
        )

    def field_doubts(self) -> Iterator[tuple[str, str]]:
        """Yield the doubts about the case's runner, patterns and plugins, and about plugins of its variants."""
        case = self._case
        yield from ((doubt, doubt) for doubt in self.part_doubts)
        if self.declaring is not None:
            from pytest_agentbench.config.field_doubts import list_part_doubts

            yield from ((doubt, doubt) for doubt in list_part_doubts(self.declaring))
        if case.runner.overrides:
            from pytest_agentbench.config.field_doubts import list_runner_doubts

            yield from list_runner_doubts(self.path, case.runner)
        yield from list_pattern_doubts(self.path, case.checks, case.context, ("input", "context"), self.check_places)

    def explain(self, row: SourceCase, problems: Sequence[tuple[Loc, str]]) -> ConfigError:
        """Return the error, which names the lines of the fields."""
        return make_located_error(row.path, problems)


class CaseFiles(CaseSource):
    """Files with one case each. Other files in their folders belong to the case."""

    is_one_case = True

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return True: problems of a file of this name are reported when it is read."""
        return True

    def open(self, path: Path, request: SourceRequest) -> OpenedCase:
        """Return the case. Raises ConfigError with all problems of the file, or of a file that it names."""
        root = request.root
        scope = root.scope(path.parent, request.known, allow_outside=request.allow_outside)
        file = load_in(path, TestCaseFile, scope)
        parts = _resolve_parts(path, file, scope)
        opened = OpenedCase(_make_case(path, file, parts, root, scope))
        if file.input.turns:
            from pytest_agentbench.sources.case_turns import locate_checks

            opened.check_places = locate_checks(file)
        if file.variants:
            opened.declaring = file.read_by(root.origin(path))
        if parts is not None:
            opened.part_doubts = parts.doubts
        return opened

    def index(self, path: Path, request: SourceRequest) -> Iterator[IndexedCase]:
        """Yield the id and the tags of the case, even if the file has problems elsewhere."""
        data: Any = read_document(path).data
        if isinstance(data, dict) and isinstance(data.get("case_id"), str):
            tags: tuple[str, ...] = ()
            if isinstance(data.get("tags"), list):
                tags = tuple(tag.strip() for tag in data["tags"] if isinstance(tag, str))
            yield IndexedCase(data["case_id"], tags, path, 1)


TEST_YAML = CaseFiles()
