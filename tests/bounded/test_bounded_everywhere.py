"""All reads go through the room `bounded`: this finds the method calls that `ruff` cannot find by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pytest_agentbench"
ALLOWED = {
    "__init__.py open": "the public names of this package",
    "bounded/columns.py open": "in a process of its own, after the file was looked at",
    "entry_points.py open": "what installers note, which Python reads as it is too",
    "cli/init.py read_text": "templates of this package",
    "cli/new.py read_text": "templates of this package",
    "cli/skill.py read_text": "a text of this package",
    "packs/openclaw/image.py read_text": "a script of this package",
    "checks/verifying/apart.py read_bytes": "a helper of this package",
    "checks/verifying/apart.py read_text": "a helper of this package",
    "checks/verifying/verifiers.py read_text": "a driver of this package",
    "packs/research/pipeline.py pattern": "names of this package's own options",
    "config/dialects.py pattern": "hosts in its own table",
    "models/batches/services.py pattern": "hosts of dialects, a table of this package",
    "models/ends.py pattern": "words in its own table",
    "workspaces/containers/compose_file.py pattern": "what ends a line, escaped",
    "judging/prompt.py pattern": "names of models, escaped",
    "metrics/choice_replies.py pattern": "patterns of its own",
    "metrics/passages.py pattern": "patterns of its own",
    "sources/choices.py pattern": "letters of the alphabet",
    "reports/json_lines.py read_text": "the schema of this package",
    "testing/sandbox_files.py read_text": "what a kit's own command wrote",
    "reports/judges.py pattern": "names in its own table",
    "reports/html/page.py read_text": "scripts of this package",
    "reports/reading.py read_text": "the schema of this package",
    "packs/research/knowledge.py open": "opened to be written too, and looked at before it is read",
    "packs/research/report.py read_text": "a script of this package",
    "cli/agents.py read_text": "a template of this package",
    "config/agent_file.py pattern": "of an adapter, which is the user's own: guests have none",
    "runners/agents/adapter.py pattern": "of an adapter, which is the user's own: guests have none",
    "runners/agents/adapter.py read_bytes": "files of an adapter, which is the user's own: guests have none",
    "runners/agents/differences.py pattern": "patterns of its own",
    "runners/agents/mcp.py read_bytes": "relays of this package",
    "runners/agents/trial.py read_bytes": "a script of this package",
    "runners/gateway/mcp_names.py pattern": "escaped texts with one place for a name: linear in a tool's name",
    "runners/gateway/policy.py pattern": "dates and times, in its own table",
    "runners/agents/image.py read_bytes": "lock files: of an adapter, and what npm wrote by it",
    "runners/agents/places.py read_bytes": "relays of this package",
    "packs/openclaw/turns.py read_bytes": "a launcher of this package",
    "packs/plugin_evals/mocks.py pattern": "only compiled, to refuse what the server's own `re` refuses",
    "packs/plugin_evals/mock_server.py pattern": "in a process of its own, whose calls have the server's time limit",
    "store/connection.py open": "the null device, and the kernel's list of mounts",
    "secrets/redaction.py pattern": "forms of keys in its own table",
    "packs/mcp_bench/synthesis/drafts.py open": "opened to be written too, and looked at before it is read",
    "packs/mcp_bench/synthesis/checks.py pattern": "words in its own table, and names of tools, escaped",
    "testing/cases.py read_bytes": "a file that a plugin's own test names",
    "testing/sandboxes.py read_text": "a file that the kit wrote, of a few bytes unless a sandbox is broken",
    "testing/outputs.py read_bytes": "what a plugin's own format wrote in its test",
    "tools/workspace_tools.py pattern": "a mark of its own",
    "tools/mcp/session.py client": "of MCP, whose transports have the bounds",
    "tools/web_client.py transport": "its bodies are cut where they are too long, for the page is wanted all the same",
    "models/connections.py client": "it asks nobody: what it sends is answered in place",
    "models/connections.py transport": "its client has the hooks",
    "workspaces/containers/container.py read_text": "the kernel's, in /sys",
    "workspaces/containers/bounds.py read_text": "the kernel's, in /proc and /sys",
    "workspaces/containers/engines.py open": "the last words of a log",
    "workspaces/containers/podman.py read_text": "the kernel's, in /proc",
    "workspaces/containers/images.py open": "the first block of a file that was opened in its folder",
    "workspaces/sessions.py read_text": "the kernel's, in /proc",
    "workspaces/sandboxes/bubblewrap.py open": "/dev/null",
    "workspaces/sandboxes/launcher.py open": "the kernel's, in /proc; it runs without this package",
    "workspaces/sandboxes/seccomp.py read_text": "a table of this package",
    "workspaces/sandboxes/watchdog.py open": "the kernel's, in /proc",
    "workspaces/sessions.py open": "in a folder that this package made, and nobody else may write to",
    "workspaces/sessions.py read_bytes": "the kernel's, in /proc",
}
"""Permitted calls outside of the room, by file and kind of call, with the reason."""

HINT = "take it in by pytest_agentbench.bounded, or say in ALLOWED why it needs no bound"
WORTH_A_LOOK = re.compile(r"read_text|read_bytes|open\(|\bre\.|AsyncClient|HttpxClient|HTTPTransport")
PATTERNS = {"compile", "search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split"}
CLIENTS = {"AsyncClient", "Client", "DefaultAsyncHttpxClient", "DefaultHttpxClient"}
TRANSPORTS = {"AsyncHTTPTransport", "HTTPTransport"}


def unbounded(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and kind of each call that reads others' data without a bound."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (kind := kind_of(node)) is not None:
            yield node.lineno, kind


def kind_of(call: ast.Call) -> str | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = getattr(function.value, "id", None) if isinstance(function, ast.Attribute) else None
    if name in ("read_text", "read_bytes") and owner is not function and not call.args:
        return name  # a workspace's own takes a path
    if name == "open" and owner != "os" and reads(call, builtin=isinstance(function, ast.Name)):
        return "open"
    if owner == "re" and name in PATTERNS and not is_own(call.args[0]):
        return "pattern"
    if name in CLIENTS and "event_hooks" not in {keyword.arg for keyword in call.keywords}:
        return "client"
    return "transport" if name in TRANSPORTS else None


def reads(call: ast.Call, *, builtin: bool) -> bool:
    """Whether a file is opened to be read: `open(path)`, `open(path, "rb")`, `path.open("rb")`."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    given = [*call.args[1 if builtin else 0 :], *named][:1]
    if any(keyword.arg == "opener" for keyword in call.keywords):
        return False
    if not given:
        return builtin or any(keyword.arg == "encoding" for keyword in call.keywords)
    mode = getattr(given[0], "value", None)
    return isinstance(mode, str) and set(mode) <= set("rbtU+")


def is_own(pattern: ast.expr) -> bool:
    """Whether it is a constant, or made of constants and of texts that are escaped."""
    match pattern:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.Attribute(attr=name):
            return name.isupper()
        case ast.Call(func=ast.Attribute(attr="escape")):
            return True
        case ast.JoinedStr(values=parts):
            return all(map(is_own, parts))
        case ast.FormattedValue(value=value):
            return is_own(value)
        case ast.BinOp(left=left, right=right):
            return is_own(left) and is_own(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[made]):
            return "escape" in ast.unparse(made) or "sorted" in ast.unparse(made)
    return "escape" in ast.unparse(pattern)


@pytest.mark.slow
def test_every_unbounded_read_is_listed_with_its_reason() -> None:
    found: dict[str, list[int]] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if WORTH_A_LOOK.search(text):
            for line, kind in unbounded(ast.parse(text)):
                found.setdefault(f"{path.relative_to(PACKAGE).as_posix()} {kind}", []).append(line)
    missing = {name: lines for name, lines in found.items() if name not in ALLOWED}
    assert not missing, HINT
    assert sorted(ALLOWED.keys() - found.keys()) == [], "these are not there any more"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("path.read_text(encoding='utf-8')", "read_text"),
        ("(folder / name).read_bytes()", "read_bytes"),
        ("open(path)", "open"),
        ("open(path, 'rb')", "open"),
        ("path.open('r+b')", "open"),
        ("path.open(encoding='utf-8')", "open"),
        ("re.search(spec.pattern, text)", "pattern"),
        ("re.compile(f'(?:{pattern})')", "pattern"),
        ("httpx2.AsyncClient(timeout=5)", "client"),
        ("DefaultAsyncHttpxClient()", "client"),
        ("httpx2.AsyncHTTPTransport()", "transport"),
        ("open(path, 'xb')", None),
        ("path.open('a+b')", None),
        ("sandbox.spawn(argv, stderr='apart')", None),
        ("workspace.read_bytes(path, limit)", None),
        ("open_file(path, 5)", None),
        ("re.compile(rf'a{_B}' + re.escape(name))", None),
        ("httpx2.AsyncClient(event_hooks=bounded_replies())", None),
    ],
)
def test_bounded_and_unbounded_reads_are_distinguished(text: str, kind: str | None) -> None:
    assert [kind for _, kind in unbounded(ast.parse(text))] == ([] if kind is None else [kind])
