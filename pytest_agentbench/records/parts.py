"""Parts that packs and plugins add to records: frozen models of their own, written under keys of their own.

A part of a case is named by an entry point `case_part NAME`, one of an evaluation by `evaluation_part NAME`; the value
is its model. Wherever a record is written, its parts stand beside its own fields, as if they were some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import Field, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer, model_validator

from pytest_agentbench.extensions import extension_names, find_extension
from pytest_agentbench.records.base import Record

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
        if not isinstance(given, dict) or not (others := given.keys() - cls.model_fields.keys()):
            return given
        names = extension_names(cls.seam)
        parts = dict(given.get("parts") or {})
        for name in others & names:
            if given[name] is not None:
                parts[name] = find_extension(cls.seam, name).model_validate(given[name])  # type: ignore[union-attr]
        taken = names | {name for name in others if given[name] is None}
        return {**{key: value for key, value in given.items() if key not in taken}, "parts": parts}

    @model_serializer(mode="wrap")
    def _spread_parts(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write each part in the place of `parts`, and null for one that is known and not there, as ever."""
        written: dict[str, Any] = {}
        for key, value in write(self).items():
            if key == "parts":
                written |= {**dict.fromkeys(sorted(extension_names(self.seam))), **value}
            else:
                written[key] = value
        return written


class CasePart(Record):
    """What a system adds to a case, and what the engine asks of it. A subclass overwrites what applies to it."""

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
