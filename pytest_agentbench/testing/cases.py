"""Kits for sources of cases, parts of cases, sections of profiles, and runners."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pytest_agentbench.config.base import UNVERIFIED, load
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import FileKind, ProfileSection
from pytest_agentbench.engine.conversations import TurnLimits, drive_turns, hold_conversation
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import extension_names
from pytest_agentbench.records.base import CasePart
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.runners.base import RunContext, RunEnd, Runner, conclude
from pytest_agentbench.runners.kinds import Prepared, RunnerKind, RunnerSession, RunRequest, SessionParts
from pytest_agentbench.seams import SourceFiles, resolve
from pytest_agentbench.sources.case_source import BadRow, CaseSource, OpenedSource, SourceCase, SourceRequest
from pytest_agentbench.testing.samples import MODEL, expect, expect_identity, expect_line, expect_name, expect_refusal
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.template import fill_workspace, template_digest

_HEAD_BYTES = 65_536


def check_case_source(files: SourceFiles, file: Path) -> None:
    """Check the declaration of a case source on one of its files, which has at least one good case."""
    expect(isinstance(files, SourceFiles), f"found {files!r}, expected a SourceFiles")
    source: Any = resolve(files.source) if isinstance(files.source, str) else files.source
    expect(isinstance(source, CaseSource), f"found {source!r}, expected an object of a CaseSource")
    expect_name(source.holds, "holds")
    _check_files(files, file)
    head = file.read_bytes()[:_HEAD_BYTES].decode("utf-8", "replace")
    expect(source.holds_cases(file, head) is True, f"holds_cases: it does not recognise {file.name} as a file of cases")
    for other in (None, "", "\0"):
        expect(isinstance(source.holds_cases(file, other), bool), f"holds_cases: expected a bool for head {other!r}")
    root = ConfigRoot(file.parent)
    request = SourceRequest(root, known=UNVERIFIED)
    cases = _check_rows(source.open(file, request))
    # A session opens a file more than once: for collection, for a suite, for a hand-written test that names a case
    _check_rows(source.open(file, request))
    indexed = {(entry.case_id, frozenset(entry.tags)) for entry in source.index(file, request)}
    of_rows = {(case.case_id, frozenset(case.tags)) for case in cases}
    expect(indexed == of_rows, "index: its ids or tags differ from the rows")
    _check_bad_files(source, file, request)


def _check_files(files: SourceFiles, file: Path) -> None:
    matches = any(fnmatchcase(file.name, pattern) for pattern in files.patterns)
    expect(matches, f"patterns: none of {files.patterns} matches {file.name}")
    head = file.read_bytes()[:_HEAD_BYTES]
    has_word = not files.words or any(word.encode() in head for word in files.words)
    expect(has_word, f"words: {file.name} contains none of {files.words}")


def _check_rows(opened: OpenedSource) -> list[Case]:
    expect(isinstance(opened, OpenedSource), f"open: found {opened!r}, expected an OpenedSource")
    rows = [*opened.rows()]
    # A second reading must find the same: collection and the run of a case may read the file separately
    expect([*map(_name_row, rows)] == [*map(_name_row, opened.rows())], "rows: a second call yields other rows")
    for row in rows:
        if isinstance(row, BadRow):
            place = f"{row.path}:{row.line}:"
            expect(row.message.startswith(place), f"rows: found {row.message!r}, expected it to begin with {place!r}")
    good = [row for row in rows if isinstance(row, SourceCase)]
    expect(good, "rows: the file has no valid case")
    ids = [row.case_id for row in good]
    expect(len({*ids}) == len(ids), f"rows: two cases have the same id in {ids}")
    return [_check_row(opened, row) for row in good]


def _name_row(row: SourceCase | BadRow) -> str:
    if isinstance(row, SourceCase):
        return row.case_id
    return row.message


def _check_row(opened: OpenedSource, row: SourceCase) -> Case:
    expect_name(row.case_id, "rows: case_id")
    if opened.name is not None and not opened.own_ids:
        expect(row.case_id.startswith(opened.name), f"rows: {row.case_id!r} does not begin with {opened.name!r}")
    expect(row.path.is_file() and row.line >= 1, f"rows: {row.path}:{row.line} is not a place in a file")
    case = row.make()
    expect(isinstance(case, Case), f"rows: make() returned {case!r}, expected a Case")
    expect(case == row.make(), f"rows: make() returns another case for {row.case_id} each time")
    facts = (case.case_id, case.tags, case.path, case.line)
    expect(facts == (row.case_id, row.tags, row.path, row.line), f"rows: the case has {facts}, its row {row[:4]}")
    check_case_parts(case)
    return case


def _check_bad_files(source: CaseSource, file: Path, request: SourceRequest) -> None:
    """Expect ConfigError or bad rows, and nothing else, for broken files."""
    # An empty file, a file that is not UTF-8, truncated JSON, truncated YAML
    for content in (b"", b"\xff\xfe\0", b"{", b"- [\n"):
        with tempfile.TemporaryDirectory() as folder:
            bad = Path(folder, file.name)
            bad.write_bytes(content)
            what = f"open, rows: {file.name} with the content {content!r}"
            try:
                for row in source.open(bad, request).rows():
                    expect(isinstance(row, SourceCase | BadRow), f"{what}: found {row!r}")
            except ConfigError as error:
                expect(file.name in str(error), f"{what}: {error} does not name the file")
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(
                    f"{what}: raised {type(error).__name__} ({error}), expected ConfigError"
                ) from error
    with tempfile.TemporaryDirectory() as folder:
        missing = Path(folder, file.name)
        expect_refusal(lambda: [*source.open(missing, request).rows()], f"open, rows: without {file.name}", ConfigError)


def check_case_parts(case: Case) -> None:
    """Check the parts that a case carries: by names that are declared, unchanged by being written and read."""
    for name, part in case.parts.items():
        expect(name in extension_names(Case.seam), f"the part {name!r} is not declared: `case_parts` of a Pack")
        check_case_part(part, affects_runs=isinstance(part, CasePart) and bool(part.identity(case.path.parent)))
    expect(
        Case.model_validate_json(case.model_dump_json()) == case, "the case changes when it is written and read back"
    )


def check_case_part(part: Any, *, affects_runs: bool = True) -> None:
    """Check one part of a case: it is frozen and strict, survives dumping and validation, and has an identity.

    `affects_runs` False: no field of the part can change a run, so that its identity is empty.
    """
    expect(isinstance(part, CasePart), f"found {part!r}, expected a CasePart")
    model = type(part)
    expect(model.model_config.get("frozen"), f"{model.__name__}: it is not frozen, so that a run could change its case")
    written = part.model_dump(mode="json")
    expect(model.model_validate(written) == part, f"{model.__name__}: it changes when it is written and read back")
    expect_refusal(
        lambda: model.model_validate({**written, "no_such_field": 1}),
        f"{model.__name__}: an unknown field",
        ValidationError,
    )
    expect(
        model.model_json_schema()["type"] == "object",
        f"{model.__name__}: its JSON Schema is not the schema of an object",
    )
    expect_identity(lambda: part.identity(Path()), f"{model.__name__}.identity")
    identity = part.identity(Path())
    expect(
        bool(identity) == affects_runs or not model.model_fields,
        f"{model.__name__}.identity: found {dict(identity)!r}, expected "
        + ("what can change a run, else an edited part reuses stored runs" if affects_runs else "an empty mapping"),
    )
    measure = part.measure
    expect(measure is None or len(measure) == 2, f"measure: found {measure!r}, expected a title and a text, or None")
    for texts in (part.deciders, part.asked_texts, part.named_servers):
        expect(
            isinstance(texts, tuple) and all(isinstance(text, str) for text in texts),
            f"found {texts!r}, expected texts",
        )


def check_profile_section(section: ProfileSection[Any], good: Any, bad: Any) -> None:
    """Check a section of profiles or suites with a `good` value that a file may have, and a `bad` one that is
    refused.
    """
    expect(isinstance(section, ProfileSection), f"found {section!r}, expected a ProfileSection")
    expect(section.name.isidentifier(), f"name: found {section.name!r}, expected a key")
    expect_line(section.doc, "doc")
    kinds = ("run_profile", "evaluation_profile", "suite")
    expect(section.of in kinds, f"of: found {section.of!r}, expected one of {kinds}")
    adapter: TypeAdapter[Any] = TypeAdapter(section.model)
    adapter.json_schema()
    read, default = adapter.validate_python(good), section.default()
    expect(default == section.default(), "default: it returns another value each time")
    for value in (read, default):
        expect(not [*section.problems(value, {})], f"problems: it reports {value!r}")
        # Otherwise a guest's copy of the user's file is refused, and the user could not mend it
        expect(not [*section.excess(value, value, None)], f"excess: it refuses the user's own value {value!r}")  # type: ignore[arg-type]
        expect_identity(lambda value=value: {section.name: section.fingerprint(value)}, "fingerprint")  # type: ignore[misc]
        placed = section.place(value, Path("/somewhere/profile.yaml"), None)
        expect(type(placed) is type(value), f"place: found {placed!r}, expected another {type(value).__name__}")

    def refuse() -> None:
        value = adapter.validate_python(bad)
        if problems := [*section.problems(value, {section.name: bad})]:
            raise ConfigError(str(problems))

    expect_refusal(refuse, f"{section.name}: {bad!r}", ValidationError, ConfigError)


def check_file_kind(kind: FileKind, file: Path) -> None:
    """Check a kind of configuration file with a good file in the kind's folder of a config root."""
    expect(isinstance(kind, FileKind), f"found {kind!r}, expected a FileKind")
    for text, what in ((kind.name, "name"), (kind.folder, "folder")):
        expect(text.isidentifier(), f"{what}: found {text!r}, expected a name that a file can have")
    expect(kind.id_field in kind.model.model_fields, f"id_field: {kind.model.__name__} has no field {kind.id_field!r}")
    expect(file.match(f"{kind.folder}/{kind.pattern}"), f"{file} is not in {kind.folder}/{kind.pattern}")
    file_id = getattr(load(file, kind.model), kind.id_field)
    expect(file_id == kind.id_of(file), f"id_of: found {kind.id_of(file)!r}, and the file has {file_id!r}")
    expect(not [*kind.problems(file)], f"problems: it reports {file}")
    expect(kind.model.model_json_schema()["type"] == "object", "model: its JSON Schema is not the schema of an object")
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder, file.relative_to(file.parents[1 if kind.stem is None else 2]))
        bad.parent.mkdir(parents=True)
        bad.write_bytes(file.read_bytes() + b"\nno_such_field: 1\n")
        expect_refusal(lambda: load(bad, kind.model), f"{kind.model.__name__}: an unknown field", ConfigError)
        bad.write_text("schema_version: 1\n")
        expect_refusal(lambda: load(bad, kind.model), f"{kind.model.__name__}: a file without an id", ConfigError)


def check_runner(
    runner: Runner | RunnerKind,
    case: Case,
    *,
    profile: RunProfile | None = None,
    model: Model = MODEL,
    client: Any = None,
    context: Mapping[str, Any] | None = None,
) -> RunEnd:
    """Run a case twice, at the same time, as the engine would; return the end of the first run.

    `client` becomes `context.client`, `context` adds other fields. Raises UnavailableError, as the runner does, if this
    machine cannot run the case.
    """
    call = runner if inspect.iscoroutinefunction(runner) else getattr(runner, "__call__", None)  # noqa: B004
    expect(inspect.iscoroutinefunction(call), f"found {runner!r}, expected `async (case, context)` or a RunnerKind")
    if isinstance(runner, RunnerKind):
        _check_kind(runner)
    workspaces = Workspaces()
    try:
        return asyncio.run(_check_runs(runner, case, profile, model, workspaces, {"client": client, **(context or {})}))
    finally:
        workspaces.close()


def _check_kind(runner: RunnerKind) -> None:
    for flag in ("own_tools", "takes_tools", "has_turns", "answers_with_files"):
        expect(isinstance(getattr(runner, flag), bool), f"{flag}: found {getattr(runner, flag)!r}, expected a bool")
    seconds = runner.run_seconds
    expect(seconds is None or seconds > 0, f"run_seconds: found {seconds!r}, expected seconds or None")
    # Hints come from case files, so any value may arrive: problems are reported, not raised
    for hints in ("text", [1], {"no such hint": 1}, {}):
        _check_problems(runner.context_problems(hints), f"context_problems({hints!r})")


def _check_problems(problems: Iterable[Any], what: str) -> None:
    for problem in problems:
        place, text = problem
        expect(isinstance(place, tuple), f"{what}: found {problem!r}, expected a place, as a tuple, and a text")
        expect_line(text, what)


async def _check_runs(
    runner: Runner | RunnerKind,
    case: Case,
    profile: RunProfile | None,
    model: Model,
    workspaces: Workspaces,
    context_fields: Mapping[str, Any],
) -> RunEnd:
    profile = profile or RunProfile(schema_version=1, run_profile_id="kit", title="Kit")
    sandboxes = Sandboxes(workspaces)
    request = RunRequest(case, model, case.runner.overrides, ConfigRoot(case.path.parent), profile)
    session, prepared = _prepare(runner, request, sandboxes)
    before = case.model_dump_json()

    def default() -> SandboxSpec:
        return sandboxes.spec(profile.sandbox_settings, case.sandbox)

    async def run(repetition: int) -> RunEnd:
        context = RunContext(
            case=case,
            open_sandboxes=lambda: sandboxes,
            model=model,
            settings=case.runner.overrides,
            repetition=repetition,
            sandbox_spec=prepared.sandbox or default,
            prepared=prepared.data,
            **context_fields,
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(context.stop_sandbox)
            if prepared.template is not None:
                folder = await stack.enter_async_context(prepared.template(context))
                expect(folder is None or folder.is_dir(), f"template: {folder} is not a folder")
                if folder is not None:
                    fill_workspace(context.workspace, folder)
            end = conclude(await _call(runner, case, context), context.trace)
        expect(end.status != "invalid", f"the run is invalid: {end.error}")
        is_consistent = (end.error is None) == (end.status == "success")
        expect(is_consistent, f"the run ended as {end.status} with the error {end.error}")
        return end

    # At the same time, as the engine does: state that a runner keeps on itself between two awaits gets mixed up here
    try:
        ends = await asyncio.gather(run(1), run(2))
    finally:
        # In the engine's order: processes of a session's runs may live in its sandboxes
        await session.close()
        await sandboxes.close()
    await session.close()  # may be called twice
    expect(case.model_dump_json() == before, "the run changed its case")
    return ends[0]


async def _call(runner: Runner | RunnerKind, case: Case, context: RunContext) -> Any:
    converse = getattr(runner, "converse", None)
    if not case.turns or converse is None:
        return await runner(case, context)
    return await hold_conversation(converse, drive_turns, TurnLimits(), case, context)


def _prepare(runner: Runner | RunnerKind, request: RunRequest, sandboxes: Sandboxes) -> tuple[RunnerSession, Prepared]:
    if not isinstance(runner, RunnerKind):
        return RunnerSession(), Prepared()
    parts = SessionParts(sandboxes, template_digest, asyncio.to_thread)
    session = runner.open(parts)
    expect(isinstance(session, RunnerSession), f"open: found {session!r}, expected a RunnerSession")
    is_alone = session is runner or session is not runner.open(parts)
    expect(is_alone, "open: two sessions share an object, which the end of the first would close")
    prepared = session.prepare(request)
    expect(isinstance(prepared, Prepared), f"prepare: found {prepared!r}, expected Prepared")
    expect_identity(lambda: session.prepare(request).identity, "prepare: identity")
    return session, prepared
