"""Sections that packs add to run profiles, evaluation profiles and suites: a top-level key of the file each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails

from pytest_agentbench.config.base import ConfigFile, Guest, Problems, error_lines
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.extensions import extension_names, find_extension

if TYPE_CHECKING:
    from pathlib import Path

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)

Found = Iterable[tuple[Loc, str]]
"""Problems, each with its place below the section."""
Excess = Iterable[tuple[Loc, Any, Any]]
"""What a guest's section says too much: its place below the section, what was found, and the most it may say."""
Cases = Mapping[str, Iterable[str]]
"""Case ids with their tags."""


def _differs(found: Any, most: Any, guest: Guest) -> Excess:
    return [] if found == most else [((), found, most)]


@dataclass(frozen=True)
class ProfileSection(Generic[S]):
    """A top-level key of a kind of file. Entry points: `run_profile NAME`, `evaluation_profile NAME`, `suite NAME`.

    `model` is any type that pydantic validates, `doc` the field's description, `default()` what a file means that does
    not have the key. `fingerprint(section)` is what of it counts as another profile: all of it, where nothing is said.
    `problems(section, file)` looks at the section beside the file as it is written. `excess(section, most, guest)` is
    what a guest's says too much; where nothing is said, a guest's must be equal to the user's. `place(section, path,
    programs)` makes the section mean the same wherever it is read: `path` is its file, `programs` the folder whose
    programs it may name. `references(section, root, cases)` are names in it that lead nowhere.
    """

    name: str
    of: Literal["run_profile", "evaluation_profile", "suite"]
    model: Any
    doc: str
    default: Callable[[], S]
    fingerprint: Callable[[S], Any] = lambda section: section
    problems: Callable[[S, Mapping[str, Any]], Found] = lambda section, file: ()
    excess: Callable[[S, S, Guest], Excess] = _differs
    place: Callable[[S, Path, str | None], S] = lambda section, path, programs: section
    references: Callable[[S, Any, Cases], Found] = lambda section, root, cases: ()


class SectionedFile(ConfigFile):
    """A file to which packs add keys. A pack is imported when a file has its key."""

    # "allow" keeps the sections beside the fields; what no pack knows is refused below, as everywhere.
    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    seam: ClassVar[str]
    """The seam of its sections."""

    @model_validator(mode="wrap")
    @classmethod
    def _read_sections(cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if not isinstance(given, Mapping):
            return handler(given)
        read, lines = dict(given), list[InitErrorDetails]()
        for name in given.keys() - cls.model_fields.keys():
            section = find_extension(cls.seam, name) if name in extension_names(cls.seam) else None
            if section is None:
                lines.append(InitErrorDetails(type="extra_forbidden", loc=(name,), input=given[name]))
                continue
            try:
                read[name] = _adapter(section).validate_python(given[name], context=info.context)
            except ValidationError as error:
                lines += error_lines(error, (name,))
            else:
                if found := tuple(section.problems(read[name], given)):
                    problems = Problems(((name, *at), text) for at, text in found)
                    lines.append(InitErrorDetails(type="value_error", input=given, ctx={"error": problems}))
        try:
            made = handler(read)
        except ValidationError as error:
            if not lines:
                raise
            raise ValidationError.from_exception_data(cls.__name__, [*error_lines(error), *lines]) from None
        if lines:
            raise ValidationError.from_exception_data(cls.__name__, lines)
        return made

    def section(self, section: ProfileSection[S]) -> S:
        """Return what the file says in a section, or what it means where it has none."""
        given = (self.model_extra or {}).get(section.name)
        return section.default() if given is None else cast(S, given)

    def sections(self) -> Iterator[tuple[ProfileSection[Any], Any]]:
        """Yield each section that the file has, with what it says."""
        for name, value in (self.model_extra or {}).items():
            section = find_extension(self.seam, name)
            if section is not None and value is not None:
                yield section, value


@cache
def _adapter(section: ProfileSection[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(section.model)


def whole_model(kind: type[M]) -> type[M]:
    """Return the model of a kind of file with the sections of all packs as fields, for schemas and suggestions."""
    return _with_sections(kind, extension_names(kind.seam)) if issubclass(kind, SectionedFile) else kind


@cache
def _with_sections(kind: type[Any], names: frozenset[str]) -> type[Any]:
    sections = {name: find_extension(kind.seam, name) for name in sorted(names)}
    fields: dict[str, Any] = {
        name: (each.model, Field(default_factory=each.default, description=each.doc))
        for name, each in sections.items()
        if each is not None
    }
    return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, __doc__=kind.__doc__, **fields)
