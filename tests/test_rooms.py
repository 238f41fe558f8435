"""Rooms import from each other only what each lists: the last line of its docstring, `Others use: module, module`.

`python tests/test_rooms.py` writes these lines anew, by the imports that there are; read them before you commit them.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import fill

from pytest_agentbench.extensions import OWN

NAME = "pytest_agentbench"
PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / NAME
NOTHING = "nothing"
_LINE = re.compile(r"\s*^Others use: (.*?)\.?\s*\Z", re.MULTILINE | re.DOTALL)


@cache
def module_files() -> dict[str, Path]:
    """Return the file of each module, by its name below the package; a package's is its `__init__`."""
    files = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


@cache
def rooms() -> frozenset[str]:
    """Return the folders of the package, and those of `packs`, each of which is a room."""
    folders = [file.parent for file in [*PACKAGE.glob("*/__init__.py"), *PACKAGE.glob("packs/*/__init__.py")]]
    return frozenset(".".join(folder.relative_to(PACKAGE).parts) for folder in folders)


def room_of(module: str) -> str:
    """Return the room that holds a module; a module of the package's top is a room by itself."""
    first, *rest = module.split(".")
    pack = f"{first}.{rest[0]}" if rest else first
    return pack if pack in rooms() else first


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return the modules that each module imports, anywhere in it: in functions and for type checking too.

    Names that the package gives to users are imported by "", from its stub.
    """
    found = {module: frozenset(_imported(module, file)) for module, file in module_files().items()}
    return found | {"": found[""] | frozenset(_imported("", PACKAGE / "__init__.pyi"))}


def _imported(module: str, file: Path) -> Iterator[str]:
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    for node in _statements(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([NAME, *filter(None, parents), *filter(None, [base])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            base, names = "", [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            for candidate in (name, base):
                below = candidate.removeprefix(NAME).removeprefix(".")
                if candidate.startswith(NAME) and below in module_files():
                    if below not in ("", module):
                        yield below
                    break


def _statements(parent: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a statement, and no expressions, which are nine of ten nodes."""
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for node in getattr(parent, field, ()):
            yield node
            yield from _statements(node)


@cache
def used_by_others() -> dict[str, dict[str, set[str]]]:
    """Return of each room the modules that other rooms import, with who does: room -> module in it -> importers."""
    used: dict[str, dict[str, set[str]]] = {room: {} for room in rooms()}
    for module, imported in imports().items():
        for other in imported:
            room = room_of(other)
            if room in used and room != room_of(module) and other != room:
                used[room].setdefault(other.removeprefix(f"{room}."), set()).add(module)
    return used


def docstring(room: str) -> str:
    return ast.get_docstring(ast.parse(module_files()[room].read_text())) or ""


def listed(room: str) -> set[str]:
    """Return the modules that a room's docstring lists."""
    line = _LINE.search(docstring(room))
    assert line, f"{NAME}/{room}/__init__.py: its docstring does not end with 'Others use: ...'"
    return {name.strip() for name in line[1].split(",")} - {NOTHING}


def circles() -> list[list[str]]:
    """Return the circles that imports make, each as the modules along it: at most one for each module."""
    done: set[str] = set()
    found = []

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
        elif module not in done:
            for other in sorted(imports()[module]):
                visit(other, [*path, module])
            done.add(module)

    for module in imports():
        visit(module, [])
    return found


def test_a_rooms_docstring_lists_the_modules_that_others_import() -> None:
    for room, used in sorted(used_by_others().items()):
        names = listed(room)
        unlisted = {name: sorted(importers) for name, importers in used.items() if name not in names}
        assert not unlisted, f"{room} does not list modules that other rooms import"
        assert not names - set(used), f"{room} lists modules that no other room imports"


def test_no_imports_go_in_circles_outside_packs() -> None:
    found = [" -> ".join(circle) for circle in circles()]
    assert not [circle for circle in found if "packs." not in circle]


def test_no_imports_go_in_circles() -> None:
    assert not [" -> ".join(circle) for circle in circles()]


def test_each_room_has_its_layer() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [name for layer in settings["contracts"][0]["layers"] for name in layer.split(" | ")]
    modules = {module.split(".")[0] for module in module_files()} - {""}
    assert modules == set(layers)
    assert len(layers) == len(set(layers))


def test_only_workspaces_imports_what_runs_containers() -> None:
    engines = {module for module in module_files() if module.startswith("workspaces.containers")}
    others = {module for module, used in imports().items() if room_of(module) != "workspaces" and used & engines}
    assert engines
    assert not others


NAMES_ELSEWHERE = {
    "cli.doctor_examination": "the Python package `docker`, whose version is shown",
    "cli.serve": "the host names by which containers reach this machine",
    "config.keys": "the environment variables of container engines",
    "extensions": "the table of the package's own sandboxes, and the default among them",
    "packs.importers.inspect_samples": "the sandbox of an Inspect sample",
    "packs.openclaw.config": "the field `docker_cli` of run profiles",
    "packs.openclaw.runs": "the field `docker_cli` of run profiles",
    "runners.agents.programs": "the system's folders that every sandbox with mounted programs shows",
}
"""Modules outside of workspaces whose code names a kind of sandbox or a container engine, with the reason."""

_ENGINE = re.compile("docker(?!file)|podman|bubblewrap|bwrap", re.IGNORECASE)


def _names_a_sandbox(file: Path) -> bool:
    """Return whether a module's code names an engine, or compares anything with the name of a kind of sandbox.

    Texts with blanks are for people: docstrings, messages, help.
    """
    source = file.read_text()
    if not _ENGINE.search(source) and '"local"' not in source:  # parsing all modules takes a second
        return False
    nodes = list(ast.walk(ast.parse(source)))
    fields = ("name", "asname", "module", "id", "attr", "arg", "value")
    words = [str(getattr(node, field, "")) for node in nodes for field in fields]
    compared = [part for node in nodes if isinstance(node, ast.Compare | ast.pattern) for part in ast.walk(node)]
    texts = {part.value for part in compared if isinstance(part, ast.Constant)}
    return any(" " not in word and _ENGINE.search(word) for word in words) or not texts.isdisjoint(OWN["sandbox"])


def test_only_workspaces_names_sandboxes_and_engines_in_code() -> None:
    modules = {name: file for name, file in module_files().items() if room_of(name) != "workspaces"}
    assert {name for name, file in modules.items() if _names_a_sandbox(file)} == NAMES_ELSEWHERE.keys()


def write_lists() -> None:
    """Write into each room's docstring the modules that other rooms import now."""
    for room in sorted(rooms()):
        file = module_files()[room]
        old = docstring(room)
        line = "Others use: " + (", ".join(sorted(used_by_others()[room])) or NOTHING)
        body = _LINE.sub("", old).rstrip()
        new = body + "\n\n" + fill(line, 118, break_long_words=False, break_on_hyphens=False) + "\n"
        if _LINE.sub("", old).rstrip() + "\n\n" + line == old:
            continue
        text = file.read_text()
        start, end = text.index('"""'), text.index('"""', text.index('"""') + 3) + 3
        file.write_text(f'{text[:start]}"""{new}"""{text[end:]}')


if __name__ == "__main__":
    write_lists()
