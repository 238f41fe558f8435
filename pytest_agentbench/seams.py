"""The seams: each kind of thing that packs and plugins add, as data; and things that are declared without an import.

A seam's `field` is its name in a Pack and in the hooks (`pytest_agentbench_FIELD`), its `key` the name by which rooms
look things up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module

TYPE_CHECKING = False  # not from typing, nor dataclasses: `agentbench --help` would take a quarter longer
if TYPE_CHECKING:
    from typing import Any


class Command:
    """A command of `agentbench`, or of one of its groups.

    `module` is imported once the command is chosen. It has `add_parser(subparsers)`, which adds one parser of the
    command's name, and `run(args) -> int`, which gives the exit status: 0 all is well, 1 something is wrong with the
    files, 2 wrong usage. A module of several commands has an object with both: `package.module:OBJECT`.
    """

    __slots__ = ("module", "summary")

    def __init__(self, summary: str, module: str) -> None:
        self.summary, self.module = summary, module

    def load(self) -> Any:
        """Return the module or object with the command's `add_parser` and `run`."""
        return resolve(self.module)


class SourceFiles:
    """The files that a case source reads: `SourceFiles("my_package.quiz:QUIZ", ["*.quiz"], ["quiz"])`.

    `source` is a CaseSource or a reference to it. `patterns` are patterns of file names. A data file is opened only if
    its first 64 KB contain one of the `words`; without words, each file that a pattern matches is opened.
    """

    __slots__ = ("patterns", "source", "words")

    def __init__(self, source: object, patterns: Sequence[str], words: Sequence[str] = ()) -> None:
        if isinstance(patterns, str) or isinstance(words, str) or not patterns:
            raise TypeError(f"SourceFiles: found patterns {patterns!r} and words {words!r}, expected lists of texts")
        self.source, self.patterns, self.words = source, tuple(patterns), tuple(words)


class ScriptSections:
    """Two sections of scripted replies: for every item, and, under the name `by_item`, for single items by their id.

    `about` and `about_by_item` describe them to editors.
    """

    __slots__ = ("about", "about_by_item", "by_item")

    def __init__(self, by_item: str, about: str, about_by_item: str) -> None:
        self.by_item, self.about, self.about_by_item = by_item, about, about_by_item


class Seam:
    """One kind of thing that can be added. `what` names such a thing in messages.

    `kind` refers to the class of valid instances, or with `is_model` of valid subclasses; without one, any callable is
    valid. `ours` refers to the names that this package has itself: mappings, models or functions. Conftest files in
    folders of guests cannot add things `of_users`, because these could loosen the guests' limits. `own_name` is the
    attribute by which a thing names itself. `renamed` maps attributes that things of earlier versions had, and that
    would be ignored, to what to write instead.
    """

    def __init__(
        self,
        field: str,
        key: str,
        what: str,
        kind: str = "",
        *,
        is_model: bool = False,
        ours: tuple[str, ...] = (),
        of_users: bool = False,
        own_name: str = "",
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self.field, self.key, self.what, self.kind, self.is_model = field, key, what, kind, is_model
        self.ours, self.of_users, self.own_name, self.renamed = ours, of_users, own_name, renamed or {}

    def own_names(self) -> set[str]:
        """Return the names that this package has itself, which nothing else can have. Imports the rooms with them."""
        return {name for place in self.ours for name in _names(resolve(place))}

    def find_misfit(self, name: str, thing: Any) -> str | None:
        """Return the actual and the expected type of an invalid thing, or None if it is valid."""
        if thing is None:
            return "None"
        if not self.kind:
            return None if callable(thing) else f"{type(thing).__name__}, expected a callable"
        kind = resolve(self.kind)
        if self.is_model:
            fits, expected = isinstance(thing, type) and issubclass(thing, kind), f"a subclass of {kind.__name__}"
        else:
            fits, expected = isinstance(thing, kind), f"a {kind.__name__}"
        if not fits:
            return f"{getattr(thing, '__name__', type(thing).__name__)}, expected {expected}"
        if self.key in PROFILES and thing.of != self.key:
            return f"one of {thing.of!r}, expected one of {self.key!r}"
        if self.own_name and (own := getattr(thing, self.own_name)) != name:
            return f"one that calls itself {own!r}, expected the same name"
        for old, remedy in self.renamed.items():
            if hasattr(thing, old):
                return f"one with the attribute {old!r} of an earlier version; {remedy}"
        return None


def resolve(reference: str) -> Any:
    """Return the object that `package.module:OBJECT` refers to, or the module if it names no object.

    Raises what the import raises, and AttributeError.
    """
    module, _, names = reference.partition(":")
    thing: Any = import_module(module.strip())
    for name in filter(None, names.strip().split(".")):
        thing = getattr(thing, name)
    return thing


def _names(ours: Any) -> Collection[str]:
    if isinstance(ours, type):
        return ours.model_fields  # type: ignore[attr-defined, no-any-return]
    if callable(ours):
        return ours()  # type: ignore[no-any-return]
    return ours  # type: ignore[no-any-return]


PROFILES = ("run_profile", "evaluation_profile", "suite")
"""The seams of sections of profiles. The hook `pytest_agentbench_profile_sections` is for all of them."""
_HERE, _RECORDS, _CONFIG = __name__, "pytest_agentbench.records", "pytest_agentbench.config"
_SECTION = f"{_CONFIG}.sections:ProfileSection"


def _section_seam(key: str, model: str) -> Seam:
    ours = (f"{_CONFIG}.profiles:{model}",)
    return Seam(f"{key}_sections", key, "section", _SECTION, ours=ours, of_users=True, own_name="name")


_ALL = (
    Seam("runners", "runner", "runner", ours=("pytest_agentbench.runners.base:BUILTIN_RUNNERS",)),
    Seam(
        "tools",
        "tool",
        "tool",
        "pytest_agentbench.tools.base:Tool",
        ours=("pytest_agentbench.tools.builtin:BUILTIN_TOOLS",),
    ),
    Seam("checks", "check", "check kind", ours=("pytest_agentbench.checks.run:BUILTIN_CHECKS",)),
    Seam("metrics", "metric", "metric", ours=("pytest_agentbench.metrics.registry:METRICS",)),
    Seam("judges", "judge", "judge type"),
    Seam("graders", "grader", "grader", "pytest_agentbench.engine.grading:Grader"),
    Seam("drivers", "driver", "driver"),
    Seam("model_providers", "model_provider", "model provider"),
    Seam(
        "case_sources",
        "source",
        "case source",
        f"{_HERE}:SourceFiles",
        ours=("pytest_agentbench.sources.names:BUILTIN_SOURCES",),
    ),
    Seam(
        "case_parts",
        "case_part",
        "part of cases",
        f"{_RECORDS}.base:CasePart",
        is_model=True,
        ours=(f"{_RECORDS}.case:Case", f"{_CONFIG}.case_file:TestCaseFile"),
        of_users=True,
    ),
    Seam(
        "evaluation_parts",
        "evaluation_part",
        "part of evaluations",
        f"{_RECORDS}.base:Record",
        is_model=True,
        ours=(f"{_RECORDS}.evaluation:Evaluation",),
        of_users=True,
    ),
    *map(_section_seam, PROFILES, ("RunProfile", "EvaluationProfile", "SuiteFile")),
    Seam(
        "file_kinds",
        "file",
        "kind of file",
        f"{_CONFIG}.sections:FileKind",
        ours=(f"{_CONFIG}.sections:OWN_FOLDERS",),
        of_users=True,
        own_name="folder",
    ),
    Seam(
        "sandboxes",
        "sandbox",
        "sandbox",
        "pytest_agentbench.workspaces.sandboxes.base:SandboxProvider",
        ours=(f"{_RECORDS}.base:NO_KINDS",),
        of_users=True,
        renamed={
            "isolates_like": "write `isolation` instead: 'container' for 'docker', 'process' for 'bubblewrap', 'none' "
            "for 'local'",
            "local_containers": "write a method `images` instead, which returns LocalImages",
        },
    ),
    Seam(
        "report_sections",
        "report_section",
        "section of reports",
        "pytest_agentbench.reports.sections:ReportSection",
        ours=("pytest_agentbench.reports.sections:own_keys",),
        of_users=True,
    ),
    Seam("report_formats", "report_format", "format of reports", "pytest_agentbench.reports.sections:ReportFormat"),
    Seam("commands", "command", "command", f"{_HERE}:Command"),
    Seam("doctor_needs", "doctor", "needs for the doctor", "pytest_agentbench.cli.doctor_needs:PackNeeds"),
    Seam("agents", "agent", "agent", "os:PathLike"),
    Seam("images", "image", "advice for images"),
    Seam("schemas", "schema", "schema", "pydantic:BaseModel", is_model=True),
    Seam("scripts", "script", "section of scripts", f"{_HERE}:ScriptSections"),
    Seam(
        "scripted_verdicts",
        "scripted_verdict",
        "form of scripted verdicts",
        "pytest_agentbench.models.script_files:VerdictForm",
    ),
)
SEAMS = {seam.key: seam for seam in _ALL}
"""All seams by key."""
FIELDS = {seam.field: seam for seam in _ALL}
"""All seams by the name of their field in a Pack."""
