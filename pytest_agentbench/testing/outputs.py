"""Kits for tools, web search, model providers, report sections and commands."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.schemas import bounded_schema
from pytest_agentbench.cli import COMMANDS
from pytest_agentbench.cli.doctor_needs import PackNeeds
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.sections import ReportFormat, ReportSection
from pytest_agentbench.seams import Command
from pytest_agentbench.testing.samples import MODEL, expect, expect_line, expect_name, sample_report, sample_row
from pytest_agentbench.tools.base import Search, SearchResult, Tool, ToolContext, ToolOutput
from pytest_agentbench.tools.toolbox import Toolbox
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox
from pytest_agentbench.workspaces.sessions import Workspaces


def check_tool(tool: Tool, arguments: Mapping[str, Any], context: ToolContext | None = None) -> str:
    """Check a tool: its schema, a call with good `arguments`, one with wrong ones. Return the text for a model.

    The default context has a workspace and a local sandbox, no web. Raises UnavailableError as the tool's `available`.
    """
    expect(isinstance(tool, Tool), f"found {tool!r}, expected a Tool")
    expect_name(tool.name, "name")
    expect(tool.description.strip(), "description: it is empty, and a model chooses by it")
    schema = bounded_schema(tool.parameters)
    expect(schema.problem is None, f"parameters: no JSON Schema: {schema.problem}")
    expect(tool.parameters.get("type") == "object", "parameters: expected the schema of an object")
    expect(schema.accepts(dict(arguments)), f"parameters: they do not accept {dict(arguments)!r}")
    workspaces = Workspaces()
    try:
        return asyncio.run(_check_calls(tool, arguments, context or _tool_context(workspaces)))
    finally:
        workspaces.close()


def _tool_context(workspaces: Workspaces) -> ToolContext:
    workspace = workspaces.create("kit")

    async def sandbox() -> LocalSandbox:
        return LocalSandbox(workspace)

    return ToolContext(lambda: workspace, sandbox, lambda: SandboxSpec("local"))


async def _check_calls(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> str:
    toolbox = Toolbox([tool], context)
    output = await toolbox.call(tool.name, dict(arguments), "")
    expect(isinstance(output, ToolOutput), f"found {output!r}, expected text or a JSON value")
    expect(not output.broken, f"its own code failed: {output.content}")
    expect(not output.is_error, f"it failed with good arguments: {output.content}")
    required = tool.parameters.get("required", ())
    # An empty object lacks the required arguments: the toolbox must refuse it before the tool's code runs
    if required and tool.checks_arguments:
        wrong = await toolbox.call(tool.name, {}, "{}")
        is_refused = wrong.is_error and not wrong.broken
        expect(is_refused, f"without {required} it returns {wrong.content!r}, expected an error")
    return output.content


def check_model_provider(provider: Callable[[Model], Any], model: Model = MODEL) -> None:
    """Check a way to reach models: the client is asked two questions at the same time."""
    client = provider(model)
    expect(getattr(client, "model", None) == model, "the client's `model` is not the model that it was created for")
    messages = [{"role": "user", "content": "Which is the largest planet?"}]
    before = copy.deepcopy(messages)

    async def ask() -> list[ChatReply]:
        return [*await asyncio.gather(client.complete(messages), client.complete(messages))]

    for reply in asyncio.run(ask()):
        expect(isinstance(reply, ChatReply), f"complete: found {reply!r}, expected a ChatReply")
        expect(reply.content is not None or reply.tool_calls, "complete: it has neither text nor calls of tools")
        expect(reply.message.get("role") == "assistant", f"message: found {reply.message!r}, expected the assistant's")
        expect(isinstance(reply.usage, Usage), f"usage: found {reply.usage!r}, expected Usage")
        expect(reply.attempts >= 1 and reply.seconds >= 0, f"attempts {reply.attempts}, seconds {reply.seconds}")
        json.dumps(reply.message)
    expect(messages == before, "complete: it changed the messages that it was given")


def check_web_search(search: Search, query: str = "the largest planet") -> list[SearchResult]:
    """Check a backend of the tool web_search; return its hits. An endpoint that fails raises the backend's
    exception.
    """
    hits = asyncio.run(_collect_hits(search, query))
    for hit in hits:
        expect(isinstance(hit, SearchResult), f"found {hit!r}, expected a SearchResult")
        expect_line(hit.title, "title")
        expect(hit.url.startswith(("http://", "https://")), f"url: found {hit.url!r}, expected an address")
        expect(isinstance(hit.snippet, str), f"snippet: found {hit.snippet!r}, expected text")
    return hits


async def _collect_hits(search: Search, query: str) -> list[SearchResult]:
    return [*await search(query)]


def check_needs(needs: PackNeeds, case: Case, profile: RunProfile | None = None) -> list[SandboxSpec]:
    """Check a case's needs as `agentbench doctor` gets them; return the sandboxes. Nothing is started."""
    expect(isinstance(needs, PackNeeds), f"found {needs!r}, expected PackNeeds")
    profile = profile or RunProfile(schema_version=1, run_profile_id="kit", title="Kit")
    workspaces = Workspaces()
    try:
        sandboxes = Sandboxes(workspaces, starts_engines=False)
        specs, again = ([*needs.sandboxes(case, profile, sandboxes)] for _ in range(2))
    finally:
        workspaces.close()
    expect(specs == again, f"sandboxes: found {specs} first, and then {again}")
    for spec in specs:
        expect(isinstance(spec, SandboxSpec), f"sandboxes: found {spec!r}, expected a SandboxSpec")
    for program in needs.engines(profile):
        expect_line(program, "engines")
    return specs


def check_report_format(form: ReportFormat, report: Mapping[str, Any] | None = None) -> bytes:
    """Check a file format of reports on a report (default: a small one); return the file."""
    expect(isinstance(form, ReportFormat), f"found {form!r}, expected a ReportFormat")
    expect_line(form.summary, "summary")
    document: dict[str, Any] = copy.deepcopy(dict(report or sample_report()))
    before = json.dumps(document)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.out")
        # Twice, over the first file: times, random ids and the order of sets in a file make every diff a change.
        written = []
        for _ in range(2):
            form.write(document, path)
            expect(path.is_file(), "write: there is no file at the path")
            written.append(path.read_bytes())
        expect(written[0] == written[1], "write: the same report becomes another file each time")
        expect([*Path(folder).iterdir()] == [path], "write: it wrote more files than the requested one")
        expect(json.dumps(document) == before, "write: it changed the report, which other formats share")
        # A session that is stopped at once has such a report
        form.write({**document, "runs": [], "models": [], "cases": []}, path)
        nowhere = Path(folder, "missing", "report.out")
        try:
            form.write(document, nowhere)
        except (OSError, AgentbenchError):
            return written[0]
        except Exception as error:
            raise AssertionError(
                f"write: into a missing folder: raised {type(error).__name__}, expected OSError"
            ) from error
        expect(nowhere.is_file(), "write: into a missing folder: it neither wrote a file nor raised an error")
    return written[0]


def check_report_section(name: str, section: ReportSection, case: Case, evaluation: Evaluation) -> None:
    """Check a system's section of reports with a run of a case whose verdict the section describes."""
    expect(isinstance(section, ReportSection), f"found {section!r}, expected an object of a ReportSection")
    section.row(case, None)  # a run that has no verdict
    row = section.row(case, evaluation)
    expect(row is not None, "row: it returned None for a run that it should describe")
    json.dumps(row, allow_nan=False)
    report = sample_report({**sample_row(case, evaluation), name: row})
    model = section.model([report["runs"][0]])
    added = section.schema()
    for kind, part in (("row", row), ("model", model)):
        if part is not None:
            # The definitions of a section may refer to the report's own
            schema = bounded_schema({**added.get(kind, {"not": {}}), "$defs": _definitions(added)})
            expect(schema.problem is None, f"schema: {schema.problem}")
            expect(schema.accepts(part), f"schema: its {kind} does not accept {part!r}, which {kind}() returned")
    if model is not None:
        _check_figures(section, model)
    for text in (*section.evidence(evaluation), *filter(None, [section.shortfall(evaluation)])):
        expect_line(text, "evidence, shortfall")
    for properties in (section.row_properties(row or {}), section.model_properties(model or {})):
        for key, value in properties.items():
            flat = value is None or isinstance(value, str | int | float | bool)
            expect(flat, f"{key}: found {value!r}, expected a text, number, bool or None")


def _definitions(added: Mapping[str, Any]) -> dict[str, Any]:
    return {**report_schema()["$defs"], **added.get("$defs", {})}


def _check_figures(section: ReportSection, model: Mapping[str, Any]) -> None:
    json.dumps(model, allow_nan=False)
    for key, figure in section.figures(model).items():
        expect(figure is None or isinstance(figure, int | float), f"figures: {key} is {figure!r}, expected a number")
    if section.page is not None:
        missing = {*section.page.sums} - {*section.page.model_figures, *section.page.row_figures}
        expect(not missing, f"page: its sums {missing} are not among its figures")
        shown = {*section.page.model_figures} & {*section.figures(model)}
        expect(shown or not section.page.model_figures, "page: figures() contains no name of its model_figures")
    summary = section.summary([("demo", model)], "-")
    if summary is not None:
        title, lines = summary
        expect_line(title, "summary: its title")
        expect({*lines} <= {"demo"}, f"summary: it has lines for unknown models: {[*lines]}")
        for line in lines.values():
            expect_line(line, "summary")


def check_command(name: str, command: Command, *arguments: str, status: int = 0) -> str:
    """Run `agentbench NAME ARGUMENTS` in this process; return its output. It exits with `status`."""
    expect(isinstance(command, Command), f"found {command!r}, expected a Command")
    expect(name not in COMMANDS, f"name: the package has a command {name!r}, which is called in its place")
    expect_line(command.summary, "summary")
    expect(not command.summary.endswith("."), "summary: it ends with a full stop, others do not")
    # By the parser of the commands, but with this one alone: another's options could hide that it adds none.
    module = command.load()
    parser = argparse.ArgumentParser(prog="agentbench")
    added = parser.add_subparsers(dest="command", required=True)
    module.add_parser(added)
    expect([*added.choices] == [name], f"add_parser: it adds {[*added.choices]}, expected {name}")
    output, code = _call(lambda: parser.parse_args([name, "--help"]))
    expect(code == 0 and name in output, "--help: it prints nothing")
    _, code = _call(lambda: parser.parse_args([name, "--no-such-option"]))
    expect(code == 2, f"an unknown option exits with {code}, expected 2")
    output, code = _call(lambda: module.run(parser.parse_args([name, *arguments])))
    expect(code in (0, 1, 2), f"run: found {code!r}, expected an exit status of 0, 1 or 2")
    expect(code == status, f"run: exit status {code}, expected {status}: {output}")
    return output


def _call(act: Callable[[], Any]) -> tuple[str, Any]:
    """Return the output with the return value or exit status; 1 with the message for an AgentbenchError."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            code = act()
        except SystemExit as end:
            code = end.code
        except AgentbenchError as error:
            print(error)
            code = 1
    return printed.getvalue(), code
