"""What all records share, and parts that packs and plugins add: frozen models of their own, under keys of their own.

A part of a case is named by an entry point `case_part NAME` or the hook `pytest_agentbench_case_parts`, one of an
evaluation by `evaluation_part NAME` or `pytest_agentbench_evaluation_parts`; the value is its model. Wherever a record
is written, its parts stand beside its own fields, as if they were some.
"""

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from importlib import import_module
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
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticKnownError, core_schema

from pytest_agentbench.extensions import extension_names, find_extension


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


# Modules of models do without `from __future__ import annotations`: pydantic would evaluate each field's text, which
# is a third of what it takes to make a class.
#
# A model is built when it first validates something: of 87 a session of one case uses 22. Before 2.14 pydantic cannot
# write a record inside of another whose own model was never used ("MockValSer cannot be converted"), nor build models
# in two threads at once.
BUILT_LATER = tuple(map(int, VERSION.split(".")[:2])) >= (2, 14)


class _BuiltLater:
    """Validates by a model that is built when there first is something to validate."""

    def __init__(self, model: type[BaseModel] | str) -> None:
        self._named = model

    @cached_property
    def _model(self) -> type[BaseModel]:
        if not isinstance(self._named, str):
            return self._named
        module, _, name = self._named.rpartition(".")
        found: type[BaseModel] = getattr(import_module(module), name)
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
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
        """`Later[Model]`, for a field that many records leave empty, or whose model is used by itself as well.

        Else the model is built with that of the record, once more for each record that has it. A model that is given by
        its name, `package.module.Model`, is imported then too.
        """

        def __class_getitem__(cls, model: type[BaseModel] | str) -> Any:
            return Annotated[Any if isinstance(model, str) else model, _BuiltLater(model)]


class Record(BaseModel):
    """A frozen model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=BUILT_LATER)


def _normal_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({tag.strip() for tag in tags} - {""}))


Tags = Annotated[tuple[str, ...], AfterValidator(_normal_tags)]
"""Tags as every file type declares them: stripped, deduplicated, sorted."""


def _variable_name(text: str) -> str:
    # The text is not shown: what people put here by mistake is the key itself.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("expected the name of an environment variable, never a key itself")
    return text


VariableName = Annotated[str, AfterValidator(_variable_name)]
PortableName = Literal["shell", "write", "read", "edit"]
"""Tools that most agents have, whatever they call them."""
AtLeastOne = Annotated[StrictInt, Field(ge=1)]
Seconds = Annotated[float, Field(strict=True, gt=0)]


class _SandboxNames:
    """Validates a text as one of our names of sandboxes, or one that a pack or a plugin adds (`sandbox NAME`)."""

    def __init__(self, *ours: str) -> None:
        self._ours = ours

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            self._validate,
            core_schema.literal_schema(list(self._ours)),
            serialization=core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema()),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"enum": [*self._ours, *sorted(extension_names("sandbox"))], "type": "string"}

    def _validate(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        added = extension_names("sandbox")
        if isinstance(value, str) and value in added:
            return value
        try:
            return handler(value)
        except ValidationError as error:
            if not added:
                raise
            expected = f"{error.errors()[0]['ctx']['expected']}, or {', '.join(map(repr, sorted(added)))} of plugins"
            raise PydanticKnownError("literal_error", {"expected": expected}) from None


SANDBOXES = ("auto", "docker", "bubblewrap", "local")
"""What a profile may say where no plugin adds to it."""
SandboxType = Annotated[str, _SandboxNames(*SANDBOXES)]
SandboxKind = Annotated[str, _SandboxNames(*SANDBOXES[1:])]


Part = TypeVar("Part", bound=Record)


class RecordWithParts(Record):
    """A record with parts by their names. A name without its part says nothing, whoever's it is."""

    seam: ClassVar[str]
    """The seam whose entry points name the models of its parts."""

    parts: dict[str, SerializeAsAny[Record]] = Field(default_factory=dict)

    def part(self, model: type[Part]) -> Part | None:
        """Return the part of this model, None where there is none."""
        return next((part for part in self.parts.values() if isinstance(part, model)), None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the part of this name, None for one that is known and not there: hooks of users read it so."""
            if name in (parts := self.__dict__.get("parts", {})):
                return parts[name]
            if not name.startswith("_") and name in extension_names(type(self).seam):
                return None
            return super().__getattr__(name)

    @model_validator(mode="before")
    @classmethod
    def _gather_parts(cls, given: Any) -> Any:
        """Read parts from the keys beside the record's own fields; what no pack knows is refused as a field."""
        if not isinstance(given, dict) or given.keys() <= cls.__pydantic_fields__.keys():
            return given
        others = given.keys() - cls.__pydantic_fields__.keys()
        names = extension_names(cls.seam)
        # Null for a name that nobody knows any more was written while somebody did: it says nothing, and is no mistake.
        parts = dict(given.get("parts") or {})
        for name in others & names:
            if given[name] is not None:
                parts[name] = find_extension(cls.seam, name).model_validate(given[name])  # type: ignore[union-attr]
        taken = names | {name for name in others if given[name] is None}
        return {**{key: value for key, value in given.items() if key not in taken}, "parts": parts}

    @model_serializer(mode="wrap")
    def _spread_parts(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write each part in the place of `parts`, and null for one that is known and not there, as ever."""
        written: dict[str, Any] = write(self)
        if (parts := written.pop("parts", None)) is None:
            return written
        return {**dict.fromkeys(sorted(extension_names(self.seam))), **parts, **written}


class CasePart(Record):
    """A part that a system adds to a case, and what the engine asks of it. A subclass overwrites what applies to it."""

    is_section: ClassVar[bool] = False
    """Whether a test.yaml may have it, as a section of its name. What it says is a part of the run's fingerprint then.

    Else it is made by the source of the case alone.
    """

    has_own_id: ClassVar[bool] = False
    """Whether the id of its case is as its file has it, without the dataset's name before it."""

    @property
    def measure(self) -> tuple[str, str] | None:
        """Return the title and the text by which people measure a run, as judges do; None where it is no measure."""
        return None

    @property
    def deciders(self) -> tuple[str, ...]:
        """Return the names of what decides the case instead of checks, metrics and judges; none: these do."""
        return ()

    @property
    def asked_texts(self) -> tuple[str, ...]:
        """Return the texts that the agent may be asked instead of the case's messages; none: it is asked these."""
        return ()

    @property
    def required_calls(self) -> Mapping[str, Collection[str]] | None:
        """Return what has to succeed before each tool, by ids or plain names of tools; None where none is declared."""
        return None

    @property
    def named_servers(self) -> tuple[str, ...]:
        """Return the MCP servers that it names beside those of its case."""
        return ()

    @property
    def is_answered(self) -> bool:
        """Return whether its answer is stored already, so that no runner is asked for one."""
        return False

    def offered_servers(self, case_id: str, profile: Any, declared: Collection[str]) -> Collection[str]:
        """Return the MCP servers that a run is offered beside its case's, none where it does not choose them.

        `profile` is the RunProfile. `declared` are the names of all that files, fixtures and profiles declare.
        """
        return ()

    def optional_servers(self, case_id: str, profile: Any, declared: Collection[str]) -> Collection[str]:
        """Return the offered MCP servers that a run goes on without if they are missing here or do not start."""
        return ()

    def excluded_tools(self, profile: Any) -> Mapping[str, tuple[str, ...]]:
        """Return the names of tools that the run is not offered, by MCP server; the run profile's own names win."""
        return {}
