"""Files that may declare variants: of a session's cases, or of their own."""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from pytest_agentbench.config.base import ConfigFile, Problems, Scope, complain, scope_of, suggest
from pytest_agentbench.records.base import Later, Text

if TYPE_CHECKING:
    import pytest_agentbench.config.variants
    from pytest_agentbench.config.variants import VariantFields


def _check_variants(variants: "dict[str, VariantFields]") -> "dict[str, VariantFields]":
    if variants:
        from pytest_agentbench.config.variants import find_variants_problems

        complain(find_variants_problems(variants))
    return variants


Variants = Annotated[
    dict[str, Later["pytest_agentbench.config.variants.VariantFields"]], AfterValidator(_check_variants)
]
"""Variants by their names, in the order of their columns."""


class FileWithVariants(ConfigFile):
    """A file that may declare variants of the session's cases."""

    variants: Variants = Field(default_factory=dict)
    """Variants of every case, by name: each case runs in each of them, in this order."""
    reference_variant: Text | None = None
    """The variant that others are compared with; default: the first one."""

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        reference = self.reference_variant
        if reference is not None and reference not in self.variants:
            message = f"unknown variant {reference!r}{suggest(reference, self.variants)}"
            raise Problems([(("reference_variant",), message)])
        return self

    def read_named_files(self, scope: Scope) -> Self:
        """Return the file with the texts that its variants name. Raises ConfigError if one cannot be read."""
        if not self.variants:
            return self
        return self.model_copy(
            update={"variants": {name: fields.read_files(scope) for name, fields in self.variants.items()}}
        )


class CasesWithVariants(FileWithVariants):
    """A file of cases that may declare variants of its own cases."""

    @field_validator("variants")
    @classmethod
    def _require_trust(cls, variants: Any, info: ValidationInfo) -> Any:
        scope = scope_of(info)
        if variants and scope is not None:
            scope.refuse_program("variants, which may change any setting,")
        return variants
