"""What a module's source says without being run: what it imports, and which of its names it gives no value of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Import = tuple[int, str, tuple[str, ...]]
"""Leading dots, dotted name, and the names imported from it."""

Path = tuple[str, ...]
"""A name at module level, `("MODEL",)`, or in a class, `("Settings", "MODEL")`."""


@dataclass(frozen=True, slots=True)
class Outline:
    """`imports` run with the module, `later` ones when a function does (or never, below `if TYPE_CHECKING`).

    `told` are the names that one literal gives the value of, and `computed` are all others that are assigned, defined
    or imported under a condition, or defined with a value that is computed: only the loaded module shows what they
    hold. `adds_names` says that the module may have others, by way of `globals()`.
    """

    imports: tuple[Import, ...] = ()
    later: tuple[Import, ...] = ()
    told: dict[Path, Any] = field(default_factory=dict)
    computed: tuple[Path, ...] = ()
    adds_names: bool = False


def outline(source: bytes) -> Outline:
    """The outline of a module's source; an empty one where that is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # what cannot be loaded runs nowhere
        return Outline()
    scan = _Scan()
    scan.statements(tree.body, (), certain=True, loaded=True)
    named = [(0, name.decode(), ()) for name in _NAMED.findall(source)]
    computed = tuple(sorted(path for path in scan.bound | scan.declared if path not in scan.told))
    return Outline(tuple(scan.imports), (*scan.later, *named), scan.told, computed, b"globals()" in source)


class _Scan:
    def __init__(self) -> None:
        self.imports: dict[Import, None] = {}
        self.later: dict[Import, None] = {}
        self.bound: dict[Path, None] = {}
        self.declared: dict[Path, None] = {}
        self.told: dict[Path, Any] = {}

    def statements(self, body: Iterable[ast.stmt], within: Path, *, certain: bool, loaded: bool) -> None:
        """`certain`: run whatever the conditions; `loaded`: run when the module is loaded, not only typed."""
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                (self.imports if loaded else self.later).update(dict.fromkeys(_imports(node)))
                self._bind_unless(certain, within, (each.asname or each.name.partition(".")[0] for each in node.names))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._bind_unless(certain and not _is_made_with_data(node), within, [node.name])
                self._function(node)
            elif isinstance(node, ast.ClassDef):
                self._bind_unless(certain, within, [node.name])
                self.statements(node.body, (*within, node.name), certain=certain, loaded=loaded)
            elif isinstance(node, ast.If) and _is_typing(node.test):
                self.statements(node.body, within, certain=False, loaded=False)
                self.statements(node.orelse, within, certain=certain, loaded=loaded)
            else:
                self._assignment(node, within, certain=certain)
                for inner in _blocks(node):
                    self.statements(inner, within, certain=certain and isinstance(node, ast.With), loaded=loaded)

    def _function(self, node: ast.stmt) -> None:
        """Imports in a function run when it does; what it declares `global` it may set."""
        for inner in _blocks(node):
            for statement in inner:
                if isinstance(statement, ast.Global):
                    self.declared.update(dict.fromkeys((name,) for name in statement.names))
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    self.later.update(dict.fromkeys(_imports(statement)))
                self._function(statement)

    def _bind_unless(self, certain: bool, within: Path, names: Iterable[str]) -> None:
        if not certain:
            self.bound.update(dict.fromkeys((*within, name) for name in names))

    def _assignment(self, node: ast.stmt, within: Path, *, certain: bool) -> None:
        for target in _targets(node):
            for name in _names(target):
                path = (*within, name)
                value = _literal(node, target) if certain and path not in self.bound else _NONE
                self.bound[path] = None
                self.told.pop(path, None)
                if value is not _NONE:
                    self.told[path] = value


def _is_made_with_data(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a default or an argument of a decorator is computed."""
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    given = [*function.args.defaults, *(each for each in function.args.kw_defaults if each is not None)]
    given += [each for call in calls for each in (*call.args, *(keyword.value for keyword in call.keywords))]
    return any(_value(each) is _NONE for each in given)


def _targets(node: ast.stmt) -> Sequence[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.AnnAssign):
        return [node.target] if node.value is not None else []
    if isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor):
        return [node.target]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Starred):
        yield from _names(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _names(each)


def _literal(node: ast.stmt, target: ast.expr) -> Any:
    """The value of `NAME = literal`, `_NONE` for every other assignment."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Name) or node.value is None:
        return _NONE
    return _value(node.value)


def _value(node: ast.expr) -> Any:
    """That of a literal, `_NONE` for anything else."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NONE


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from ((0, alias.name, ()) for alias in node.names)
    else:
        names = tuple(alias.name for alias in node.names if alias.name != "*")
        yield node.level, node.module or "", names


def _blocks(node: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """The statements inside a statement."""
    if isinstance(node, _SIMPLE):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _is_typing(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


_NAMED = re.compile(rb"""\bimport_module\(\s*["']([A-Za-z_][\w.]*)["']""", re.ASCII)
"""`importlib.import_module` of a name that is written there."""

_SIMPLE = (ast.Expr, ast.Assign, ast.Return, ast.AugAssign, ast.AnnAssign, ast.Raise, ast.Assert, ast.Import)
_NONE = object()
