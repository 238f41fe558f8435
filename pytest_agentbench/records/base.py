"""Base classes of all records, and parts: frozen models that packs and plugins add under unique keys.

A part of a case is one of the `case_parts` of a Pack or of the hook `pytest_agentbench_case_parts`, a part of an
evaluation one of the `evaluation_parts`; the value is its model. In JSON the parts of a record are written like its
fields.
"""

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    VERSION,
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    StrictInt,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticKnownError, core_schema

from pytest_agentbench.extensions import extension_names, find_extension, ordered_names


class _MadeHere:
    """Marks a text of a record that this package makes itself."""


MADE_HERE = _MadeHere()
HexId = Annotated[str, MADE_HERE]
"""An id or hash of this package's own making, in hex (`uuid4().hex`, SHA-256). Redaction passes over these alone: any
other text of a record may be somebody else's, and so is one of these that has another form."""

Text = Annotated[str, StringConstraints(min_length=1)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]

Dimension = Literal["task", "process", "autonomy", "closeness", "efficiency", "spark"]
DIMENSIONS: tuple[Dimension, ...] = ("task", "process", "autonomy", "closeness", "efficiency", "spark")

RunStatus = Literal["success", "failed", "timed_out", "invalid", "provider_error"]


# When schemas are built: pydantic builds a model's validator and serializer when its class is created. With
# `defer_build` it builds them when the model first validates a value: a session of one case needs 22 of 87 models. Two
# limits of pydantic before 2.14 prevent that there: a record inside of another whose model was never used cannot be
# serialised ("MockValSer cannot be converted"), and two threads cannot build models at once.
#
# Modules of models do not use `from __future__ import annotations`: pydantic would evaluate the text of each
# annotation, which takes a third of the time of creating a class.
BUILT_LATER = tuple(map(int, VERSION.split(".")[:2])) >= (2, 14)


class _BuiltLater:
    """Validates by a model that is built at its first use."""

    def __init__(self, model: type[BaseModel] | str) -> None:
        self._named = model

    @cached_property
    def _model(self) -> type[BaseModel]:
        if not isinstance(self._named, str):
            return self._named
        module, _, name = self._named.rpartition(".")
        model: type[BaseModel] = getattr(import_module(module), name)
        return model

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        # Does not call `handler`, which would build the model's schema as a part of the record's
        return core_schema.with_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # Below another schema, else it would be written out wherever it is used, instead of referred to.
        return handler(core_schema.definitions_schema(TypeAdapter(self._model).core_schema, []))

    def _validate(self, value: Any, info: ValidationInfo) -> BaseModel:
        return self._model.model_validate(value, context=info.context)


if TYPE_CHECKING:
    T = TypeVar("T")
    Later = Annotated[T, ...]
else:

    class Later:
        """`Later[Model]`: a field whose model is built at its first value, not with the record.

        For models that many records leave empty or that are used separately too: without it, each record with such a
        field builds the model once more. A model given by name, `package.module.Model`, is also imported at that time.
        """

        def __class_getitem__(cls, model: type[BaseModel] | str) -> Any:
            return Annotated[Any if isinstance(model, str) else model, _BuiltLater(model)]


class Record(BaseModel):
    """A frozen model that rejects unknown fields."""

    # No protected namespaces: pydantic reserves names that begin with `model_`, and records have a `model_id`
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=BUILT_LATER)


def normalize_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tags stripped, deduplicated and sorted."""
    return tuple(sorted({tag.strip() for tag in tags} - {""}))


Tags = Annotated[tuple[str, ...], AfterValidator(normalize_tags)]
"""Tags as every file type declares them: stripped, deduplicated, sorted."""


def _variable_name(text: str) -> str:
    # The message omits the text: a common mistake is to put the key itself here.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("expected the name of an environment variable, never a key itself")
    return text


VariableName = Annotated[str, AfterValidator(_variable_name)]
PortableName = Literal["shell", "write", "read", "edit"]
"""Kinds of tools that most agents have, under various names."""
AtLeastOne = Annotated[StrictInt, Field(ge=1)]
Seconds = Annotated[float, Field(strict=True, gt=0)]


class _SandboxNames:
    """Validates a text as the name of an installed kind of sandbox, or as one of `further` names."""

    def __init__(self, *further: str) -> None:
        self._further = further

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._validate, serialization=core_schema.to_string_ser_schema()
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"enum": self._names(), "type": "string"}

    def _names(self) -> list[str]:
        # At each value: a plugin may register its sandbox after this module is imported
        return [*self._further, *ordered_names("sandbox")]

    def _validate(self, value: Any) -> str:
        names = self._names()
        if isinstance(value, str) and value in names:
            return value
        *first, last = map(repr, names)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(first)} or {last}"})


AUTO = "auto"
"""The value of a profile's sandbox that lets the session choose a kind."""
NO_KINDS = (AUTO,)
"""Values of a profile's sandbox that are no kinds, so that no plugin may add a kind of that name."""
SandboxType = Annotated[str, _SandboxNames(*NO_KINDS)]
SandboxKind = Annotated[str, _SandboxNames()]


Part = TypeVar("Part", bound=Record)


class RecordWithParts(Record):
    """A record with parts by name. A name without a value is ignored, whether or not it is known."""

    seam: ClassVar[str]
    """The seam of the models of its parts."""

    parts: dict[str, SerializeAsAny[Record]] = Field(default_factory=dict)

    def part(self, model: type[Part]) -> Part | None:
        """Return the part of this model, or None."""
        return next((part for part in self.parts.values() if isinstance(part, model)), None)

    if not TYPE_CHECKING:  # else mypy would accept any attribute of a record

        def __getattr__(self, name: str) -> Any:
            """Return the part of this name, None for one that is known and not there: hooks of users read it so."""
            if name in (parts := self.__dict__.get("parts", {})):
                return parts[name]
            if not name.startswith("_") and name in extension_names(type(self).seam):
                return None
            return super().__getattr__(name)

    @model_validator(mode="before")
    @classmethod
    def _gather_parts(cls, document: Any) -> Any:
        """Read parts from the keys other than the record's fields. Unknown keys are refused like unknown fields."""
        # Without parts, the usual case, no pack is looked up
        if not isinstance(document, dict) or document.keys() <= cls.__pydantic_fields__.keys():
            return document
        others = document.keys() - cls.__pydantic_fields__.keys()
        names = extension_names(cls.seam)
        # Null for an unknown name was written while a pack added that part. It is ignored.
        parts = dict(document.get("parts") or {})
        for name in others & names:
            if document[name] is not None:
                parts[name] = find_extension(cls.seam, name).model_validate(document[name])  # type: ignore[union-attr]
        used_names = names | {name for name in others if document[name] is None}
        return {**{key: value for key, value in document.items() if key not in used_names}, "parts": parts}

    @model_serializer(mode="wrap")
    def _spread_parts(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write each part in the place of `parts`, and null for one that is known and not there, as ever."""
        written: dict[str, Any] = write(self)
        if (parts := written.pop("parts", None)) is None:  # the caller excluded parts
            return written
        # The record's own fields are last, so that no part can replace one
        return {**dict.fromkeys(sorted(extension_names(self.seam))), **parts, **written}


class CasePart(Record):
    """Part of a case that a pack adds, and its answers for the engine. Subclasses override methods."""

    is_section: ClassVar[bool] = False
    """Whether a test.yaml may have the part, as a section of its name. Otherwise only a case's source makes it."""

    has_own_id: ClassVar[bool] = False
    """Whether the id of its case is as its file has it, without the dataset's name before it."""

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return everything of the part that can change a run: it is in the run's fingerprint. {}: nothing of it.

        By default all fields. A `Path` counts by the content of its file or folder, and so does a text that names a
        file in `folder`, the case's. Raises ConfigError for a file that cannot be read.
        """
        from pytest_agentbench.records.part_identity import describe_part

        return describe_part(self, folder)

    @property
    def measure(self) -> tuple[str, str] | None:
        """Return the title and the text by which people grade a run, like judges, or None."""
        return None

    @property
    def deciders(self) -> tuple[str, ...]:
        """Return the names of the graders that replace checks, metrics and judges, or () for none."""
        return ()

    @property
    def asked_texts(self) -> tuple[str, ...]:
        """Return texts that replace the messages of the case for the agent, or () to use the messages."""
        return ()

    @property
    def required_calls(self) -> Mapping[str, Collection[str]] | None:
        """Return the calls that must succeed before each tool, by ids or names of tools; None if undeclared."""
        return None

    @property
    def named_servers(self) -> tuple[str, ...]:
        """Return the MCP servers that it names in addition to those of its case."""
        return ()

    @property
    def is_answered(self) -> bool:
        """Return whether its answer is stored, so that no runner is asked."""
        return False

    def offered_servers(self, case_id: str, profile: Any, declared: Collection[str]) -> Collection[str]:
        """Return the MCP servers that a run is offered in addition to its case's; () if the part does not choose any.

        `profile` is the RunProfile. `declared` are the names of all servers that files, fixtures and profiles declare.
        """
        return ()

    def optional_servers(self, case_id: str, profile: Any, declared: Collection[str]) -> Collection[str]:
        """Return the optional MCP servers: a run continues without them if they are missing or do not start."""
        return ()

    def excluded_tools(self, profile: Any) -> Mapping[str, tuple[str, ...]]:
        """Return the names of tools that the run is not offered, by MCP server; the run profile's own names win."""
        return {}
