"""The public names of the package with their signatures, read from its source by griffe; nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import griffe

PACKAGE = "pytest_agentbench"
STUB = Path(__file__).parents[2] / PACKAGE / "__init__.pyi"
FOR_THE_ENGINE = frozenset(
    {
        "Benchmark.dataset",
        "ChatClient.__init__",
        "ChatClient.backoff",
        "ChatClient.breaker",
        "ChatClient.forward",
        "ChatClient.spelling",
        "ChatClient.takes_alone",
        "ChatClient.taped",
        "ChatClient.waits",
        "ConfigFile.origin",
        "ConfigFile.read_by",
        "ConfigRoot.key_grants",
        "ConfigRoot.models",
        "ConfigRoot.origin",
        "Conversation.__init__",
        "Conversation.conclude",
        "Evaluation.grades",
        "GradingServices.connect",
        "GradingServices.on_spent",
        "GradingServices.scripts",
        "Job.plan",
        "MetricContext.redactor",
        "MetricContext.remote",
        "MetricContext.signer",
        "OpenedSource.declaring",
        "OpenedSource.default_variants",
        "OpenedSource.prediction_fields",
        "Recorder.__init__",
        "Recorder.begin_turn",
        "RunContext.asking",
        "RunContext.fetch",
        "RunContext.listen_for",
        "RunContext.open_gateway",
        "RunContext.opened_gateway",
        "RunContext.servers",
        "RunContext.turn_grades",
        "RunContext.user",
        "Sandboxes.__init__",
        "ToolContext.fetch",
        "Toolbox.__init__",
    }
)
"""Members of public classes that only the engine and the package's own packs use. No page shows them."""
PASSED_ON = frozenset({"Tape"})
"""Classes whose objects an implementation only passes on. No page shows their members."""
_WRAPPERS = ("Annotated", "Later", "SerializeAsAny", "ClassVar")
"""Generic types around a type that say nothing to a reader."""


@dataclass
class Shown:
    """The text of an annotation, and the package's classes and aliases that it names."""

    text: str = ""
    paths: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Public:
    """A public name with its definition."""

    name: str
    definition: griffe.Object

    @property
    def room(self) -> str:
        """The room, or the module, of the package that defines it."""
        return self.definition.path.split(".")[1]

    def members(self) -> Iterator[griffe.Object]:
        """Yield the public members of a class, and those that it inherits from classes that are not public."""
        if not isinstance(self.definition, griffe.Class) or self.name in PASSED_ON:
            return
        shown = set[str]()
        for owner in (self.definition, *(base for base in self.definition.mro() if base.path not in public_paths())):
            if owner.path.startswith(PACKAGE):
                for name, member in owner.members.items():
                    if name not in shown and self._is_shown(name, member):
                        shown.add(name)
                        yield member  # type: ignore[misc]

    def _is_shown(self, name: str, member: griffe.Object | griffe.Alias) -> bool:
        if member.is_alias or f"{self.name}.{name}" in FOR_THE_ENGINE or name == "model_config":
            return False
        if name == "__init__":  # griffe makes one of the fields of a dataclass
            return member.lineno is not None and "dataclass" not in self.definition.labels
        return name == "__call__" or not name.startswith("_")


@cache
def package() -> griffe.Object:
    """The package as griffe reads it."""
    loaded = griffe.GriffeLoader(search_paths=[STUB.parents[1]]).load(PACKAGE, find_stubs_package=False)
    assert isinstance(loaded, griffe.Object)
    return loaded


@cache
def public_names() -> tuple[Public, ...]:
    """Every name that the stub exports, sorted."""
    found = re.findall(rf"^from ({PACKAGE}\S*) import (\w+) as \2$", STUB.read_text(encoding="utf-8"), re.MULTILINE)
    homes = {name: module for module, name in found}
    return tuple(Public(name, _find(f"{homes[name]}.{name}")) for name in sorted(homes))  # type: ignore[arg-type]


@cache
def public_paths() -> frozenset[str]:
    """The full names of the definitions of public names."""
    return frozenset(public.definition.path for public in public_names())


@cache
def _find(path: str) -> griffe.Object | None:
    """The definition of a name of the package, None if there is none."""
    try:
        found = package()[path.removeprefix(f"{PACKAGE}.")]
        return found.final_target if isinstance(found, griffe.Alias) else found
    except (KeyError, griffe.AliasResolutionError):
        return None


def find_member(name: str) -> griffe.Object | griffe.Alias | None:
    """The member of a public class with the name `Class.member`, inherited or not, None if there is none."""
    owner, _, member = name.partition(".")
    found: griffe.Object | griffe.Alias | None = None
    for public in public_names():
        if public.name == owner:
            found = public.definition.all_members.get(member)
    return found


def show(annotation: str | griffe.Expr | None) -> Shown:
    """Write an annotation for a reader: short names, and the values of aliases that are not public."""
    shown = Shown()
    shown.text = _write(annotation, shown.paths)
    return shown


def _write(part: str | griffe.Expr | None, paths: set[str]) -> str:
    if part is None or isinstance(part, str):
        return part or ""
    if isinstance(part, griffe.ExprSubscript) and str(part.left).rpartition(".")[2] in _WRAPPERS:
        inner = part.slice
        return _write(inner.elements[0] if isinstance(inner, griffe.ExprTuple) else inner, paths)
    if isinstance(part, griffe.ExprName | griffe.ExprAttribute):
        return _write_name(part, paths)
    return "".join(_write(each, paths) for each in part.iterate(flat=False))


def _write_name(name: griffe.ExprName | griffe.ExprAttribute, paths: set[str]) -> str:
    path = name.canonical_path
    definition = _find(path) if path.startswith(f"{PACKAGE}.") else None
    if definition is None:
        return str(name)
    if isinstance(definition, griffe.Attribute) and definition.path not in public_paths():
        if "TypeVar" in str(definition.value):
            return definition.name
        return _write(definition.value, paths)
    paths.add(definition.path)
    return definition.name


def annotations(member: griffe.Object) -> Iterator[str | griffe.Expr | None]:
    """Yield the annotations of a function's parameters and result, or of an attribute."""
    if isinstance(member, griffe.Function):
        yield from (each.annotation for each in member.parameters if not each.name.startswith("_"))
        yield member.returns
    elif isinstance(member, griffe.Attribute):
        yield member.annotation
        if member.path in public_paths():  # an alias
            yield member.value


def missing_names(documented: frozenset[str] = frozenset()) -> dict[str, list[str]]:
    """The classes of public signatures that are not public, each with the places that name it.

    `documented` are names of models whose fields other pages explain: theirs are not looked at.
    """
    missing: dict[str, list[str]] = {}
    for place, member in _signatures(documented):
        for annotation in annotations(member):
            for path in show(annotation).paths - public_paths():
                missing.setdefault(path, []).append(place)
    return missing


def _signatures(documented: frozenset[str]) -> Iterator[tuple[str, griffe.Object]]:
    for public in public_names():
        yield public.name, public.definition
        if public.name not in documented:
            yield from ((f"{public.name}.{member.name}", member) for member in public.members())
    for module, prefix in (("hookspecs", "pytest_agentbench_"), ("fixtures", "agentbench_")):
        yield from functions_of(module, prefix).items()


def functions_of(module: str, prefix: str) -> dict[str, griffe.Function]:
    """The functions of a module of the package whose names begin so, in order."""
    return {name: each for name, each in package()[module].functions.items() if name.startswith(prefix)}
