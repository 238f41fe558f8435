"""The pages of docs/reference/ and the tables in other pages, made from what they describe.

To renew all of them: python tests/docs/reference_pages.py
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from api_pages import api_pages
from public_api import functions_of, public_names, show

from pytest_agentbench import cli, fixtures, hookspecs
from pytest_agentbench.cli.commands import find_commands
from pytest_agentbench.config.kinds import json_schemas
from pytest_agentbench.models.script_files import script_schemas
from pytest_agentbench.options import FLAGS, OPTIONS
from pytest_agentbench.packs.mcp_bench.records import PlannerSettings
from pytest_agentbench.reports.json_lines import json_lines_schema
from pytest_agentbench.reports.reading import report_schema

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
NAMES = {
    "test_case": "test.yaml",
    "dataset": "dataset.yaml",
    "reports": "reports.yaml",
    "suite": "suites/*.yaml",
    "run_profile": "run_profiles/*.yaml",
    "evaluation_profile": "evaluation_profiles/*.yaml",
    "agent": "agents/*/agent.yaml",
    "agent_program": "agents/*/agent.yaml (a program)",
    "models": "models.yaml",
    "servers": "servers.yaml",
    "keys": "keys.yaml",
    "demo": "demo.yaml",
    "dataset_demo": "*.demo.yaml",
}
"""What a kind of file is called, by its schema."""
_FILE_MODELS = {
    "test_case": "TestCaseFile",
    "run_profile": "RunProfile",
    "evaluation_profile": "EvaluationProfile",
    "suite": "SuiteFile",
}
"""The public models of whole files."""
_LONGEST_LIST = 12
_EXPLAINED = (
    "How figures are computed: [results](../results.md), [statistics](../statistics.md), [comparing](../comparing.md), "
    "[people and judges](../human-review.md#fields-in-reportjson)."
)
_FOLLOWED = "How to follow them: [live sessions](../live-sessions.md)."


def pages() -> dict[str, str]:
    """Every page of the reference by its file name."""
    schemas = {**json_schemas(), **script_schemas()}
    made = {f"{name.replace('_', '-')}.md": _schema_page(NAMES[name], schema) for name, schema in schemas.items()}
    made["report.md"] = _schema_page("report.json", report_schema(), _EXPLAINED)
    made["json-lines.md"] = _schema_page("--agentbench-json-lines", json_lines_schema(), _FOLLOWED)
    made["commands.md"] = "\n".join(_commands())
    made["fixtures.md"] = "\n".join(_functions("Fixtures", "agentbench_", fixtures))
    made["hooks.md"] = "\n".join(_functions("Hooks", "pytest_agentbench_", hookspecs))
    made["index.md"] = "\n".join(_index(schemas))
    return made | api_pages(documented_models(schemas))


def documented_models(schemas: Mapping[str, Any]) -> dict[str, str]:
    """The public models whose fields a page of files explains, each with the place on the page."""
    public = {each.name for each in public_names()}
    found = {_FILE_MODELS[name]: f"{name.replace('_', '-')}.md" for name in _FILE_MODELS}
    for name, schema in schemas.items():
        for model in schema.get("$defs", {}).keys() & public:
            found.setdefault(model, f"{name.replace('_', '-')}.md#{model.lower()}")
    return found


def _index(schemas: Mapping[str, Any]) -> Iterator[str]:
    yield from ("# Reference", "", "Made from the code: every field, command, fixture, hook and public name.", "")
    yield from ("| of | page |", "|---|---|")
    for name in schemas:
        yield f"| `{NAMES[name]}` | [{name.replace('_', '-')}.md]({name.replace('_', '-')}.md) |"
    yield "| `report.json` | [report.md](report.md) |"
    yield "| records of `--agentbench-json-lines` | [json-lines.md](json-lines.md) |"
    yield "| pytest's options | [running.md](../running.md#options) |"
    code = (("fixtures", "fixtures.md"), ("hooks", "hooks.md"), ("names of `pytest_agentbench`", "api.md"))
    for name, page in (("the command `agentbench`", "commands.md"), *code):
        yield f"| {name} | [{page}]({page}) |"
    yield ""


def _schema_page(title: str, schema: Mapping[str, Any], more: str = "") -> str:
    lines = [f"# {title}", ""]
    if "description" in schema:
        lines += [" ".join(filter(None, (_line(schema["description"]), more))), ""]
    definitions = schema.get("$defs", {})
    lines += _table(schema, definitions)
    for name, definition in sorted(definitions.items(), key=lambda item: item[0].lower()):
        lines += [f"## {name}", ""]
        if "description" in definition:
            lines += [_line(definition["description"]), ""]
        lines += _table(definition, definitions)
        if "properties" not in definition:
            lines += [_type(definition), ""]
    return "\n".join(lines)


def _table(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    properties = schema.get("properties")
    if not properties:
        return []
    required = set(schema.get("required", ()))
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for name, field in properties.items():
        default = "required" if name in required else _default(field)
        meant = definitions.get(field["$ref"].rpartition("/")[2], {}) if "$ref" in field else {}
        said = field.get("description") or meant.get("description", "")
        rows.append(f"| `{name}` | {_type(field)} | {default} | {_line(said)} |")
    if schema.get("additionalProperties") not in (None, False):
        rows.append(f"| anything else | {_type(schema['additionalProperties'])} | | |")
    return [*rows, ""]


def _default(field: Mapping[str, Any]) -> str:
    if "default" not in field:
        return ""
    return (
        "" if field["default"] is None else f"`{json.dumps(field['default'], ensure_ascii=False)}`".replace("|", "\\|")
    )


def _type(field: Any) -> str:
    """A JSON Schema as few words, with a link for what has a section of its own."""
    if not isinstance(field, Mapping) or not field.keys() - {"title", "description", "default"}:
        return "anything"
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{re.sub(r'[^a-z0-9_-]', '', name.lower())})"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        shown = [f"`{json.dumps(each)}`" for each in field["enum"][:_LONGEST_LIST]]
        return " or ".join([*shown, *(["..."] if len(field["enum"]) > _LONGEST_LIST else [])])
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_type(each) for each in field[key]))
    if "allOf" in field:
        return " and ".join(dict.fromkeys(_type(each) for each in field["allOf"]))
    kind = field.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(_type({**field, "type": each}) for each in kind)
    if kind == "array":
        return f"list of {_type(field.get('items'))}"
    if kind == "object":
        inner = field.get("additionalProperties")
        if isinstance(inner, Mapping) and inner:
            return f"mapping to {_type(inner)}"
        named = ", ".join(f"`{name}`" for name in field.get("properties", ()))
        return f"mapping with {named}" if named else "mapping"
    return str(kind) + _limits(field)


def _limits(field: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {field[name]}" for name, sign in signs.items() if name in field]
    return f" {', '.join(found)}" if found and field.get("type") != "null" else ""


def _line(text: str) -> str:
    """A description as part of one line of a table."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [part.replace("<", "&lt;").replace("{{", "{&#123;") for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def _commands() -> Iterator[str]:
    yield from ("# The command", "", "`agentbench COMMAND`; `agentbench COMMAND --help` says the same.", "")
    for name, command in find_commands(cli.COMMANDS).items():
        parser = cli._parser([name])
        [commands] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        yield from _command(f"agentbench {name}", commands.choices[name], command.summary, 2)


def _command(name: str, parser: argparse.ArgumentParser, summary: str, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {name}", "", _line(parser.description or f"{summary}."), "")
    actions = [action for action in parser._actions if action.dest != "help" and action.help != argparse.SUPPRESS]
    own = [action for action in actions if not isinstance(action, argparse._SubParsersAction)]
    if own:
        yield from ("| argument | |", "|---|---|")
        for action in own:
            yield f"| `{_argument(action)}` | {_line(_help(action))} |"
        yield ""
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for child, sub in action.choices.items():
                yield from _command(f"{name} {child}", sub, helps.get(child, ""), min(level + 1, 4))


def _argument(action: argparse.Action) -> str:
    metavar = action.metavar if action.metavar is not None else "{" + ",".join(map(str, action.choices or ())) + "}"
    metavar = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    if metavar == "{}":
        metavar = action.dest.upper()
    if not action.option_strings:
        return f"{metavar} ..." if action.nargs in ("*", "+") else metavar
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {metavar}".replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    values = {name: value for name, value in vars(action).items() if value is not argparse.SUPPRESS}
    return (action.help or "") % values


def _functions(title: str, prefix: str, module: Any) -> Iterator[str]:
    yield from (f"# {title}", "")
    if module.__doc__:
        yield from (inspect.cleandoc(module.__doc__), "")
    signatures = functions_of(module.__name__.rpartition(".")[2], prefix)
    for name in (name for name in vars(module) if name.startswith(prefix)):
        found = getattr(module, name)
        function = getattr(found, "__wrapped__", getattr(found, "_fixture_function", found))
        result = show(signatures[name].returns).text
        yield from (f"## {name}", "", f"Type: `{result}`", "", *_prose(inspect.getdoc(function) or ""), "")


def _prose(text: str) -> Iterator[str]:
    """A docstring; what is indented after `Example::` becomes a block."""
    before, mark, after = text.partition("Example::\n")
    yield before.strip()
    if mark:
        yield from ("", "```python", inspect.cleandoc(after), "```")


def options_table() -> str:
    """The table of the options, in `docs/running.md`."""
    rows = ["| option | ini | |", "|---|---|---|"]
    rows.append(
        "| `--agentbench-model ID`, `--model ID` | `agentbench_model` | run the cases on this model (repeatable) |"
    )
    of_agents = "run cases of the runner agent with this agent in place of theirs (repeatable; each with each model)"
    rows.append(f"| `--agentbench-agent NAME` | `agentbench_agent` | {of_agents} |")
    of_variants = "run cases in this [variant](variants.md) of the suite or run profile, or declare one (repeatable)"
    rows.append(f"| `--agentbench-variant NAME[={{...}}]` | `agentbench_variant` | {of_variants} |")
    for option in OPTIONS:
        ini = f"`agentbench_{option.name.replace('-', '_')}`" if option.ini else ""
        rows.append(f"| `--agentbench-{option.name} {option.metavar}` | {ini} | {option.help.replace('|', '/')} |")
    for flag in FLAGS:
        ini = f"`agentbench_{flag.name.replace('-', '_')}`" if flag.ini else ""
        rows.append(f"| `--agentbench-{flag.name}` | {ini} | {flag.help} |")
    trusted = "trust this folder of another author in this session (repeatable)"
    rows.append(f"| `--agentbench-trust PATH` | `agentbench_trust` | {trusted} |")
    rows.append("| | `agentbench_configs` | the folder that holds profiles, suites and models.yaml |")
    return "\n".join(rows)


def planner_table() -> str:
    """The table of the planner's settings, in `docs/mcp-bench.md`."""
    fields = json_schemas()["run_profile"]["$defs"][PlannerSettings.__name__]["properties"]
    rows = ["| setting | default | |", "|---|---|---|"]
    for name, field in fields.items():
        rows.append(f"| `{name}` | `{json.dumps(field['default'])}` | {_line(field['description'])} |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {"running.md": options_table, "mcp-bench.md": planner_table}
"""What makes the table of a page that people write."""


def _renew_table(page: Path, table: str) -> None:
    """Puts the table in the place of the one with its first line."""
    head = table.partition("\n")[0]
    before, found, after = page.read_text(encoding="utf-8").partition(f"{head}\n")
    if not found:
        raise ValueError(f"{page}: found no table that begins with {head!r}")
    rest = after.splitlines(keepends=True)
    rest = rest[next((at for at, line in enumerate(rest) if not line.startswith("|")), len(rest)) :]
    page.write_text(f"{before}{table}\n{''.join(rest)}", encoding="utf-8")


def renew() -> None:
    """Writes every page and table, and removes the pages that are made no more."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text.rstrip() + "\n", encoding="utf-8")
    for name, make in TABLES.items():
        _renew_table(FOLDER.parent / name, make())


if __name__ == "__main__":
    renew()
    sys.stdout.write(f"{FOLDER}: {len(pages())} pages; tables in {', '.join(TABLES)}\n")
