"""The variants of cases: declared by suite, run profile or dataset, added and selected on the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.base import suggest
from pytest_agentbench.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from pytest_agentbench.config.variant_files import FileWithVariants
    from pytest_agentbench.engine.job import Job
    from pytest_agentbench.engine.variants import Variant
    from pytest_agentbench.options import VariantOption

MOST_COLUMNS = 200
"""Columns of one session: models or agents, each in each variant."""
_MOST_PROBLEMS = 20


class VariantOptionError(ConfigError):
    """A wrong --agentbench-variant, which ends the session before anything is collected further."""


@dataclass(frozen=True)
class ChosenVariants:
    """Variants in the order of their columns, and the name of the one that others are compared with.

    `is_empty`: the command line selects variants that other files declare, so that no case runs.
    """

    variants: tuple[Variant, ...] = ()
    reference: str | None = None
    is_empty: bool = False


def choose_variants(files: Iterable[FileWithVariants | None], options: Sequence[VariantOption]) -> ChosenVariants:
    """Return the variants of cases for which these files may declare some.

    Raises VariantOptionError for a wrong option, and ConfigError for two places and for equal variants.
    """
    declaring = [file for file in files if file is not None and file.variants]
    if not declaring and not options:
        return ChosenVariants()
    if len(declaring) > 1:
        places = " and ".join(str(_path_of(file)) for file in declaring)
        raise ConfigError(f"variants: found some in {places}, expected one place: move them into one of the two")
    variants = _declared(declaring[0]) if declaring else {}
    variants |= _added(options)
    if any(option.overrides is None for option in options):
        chosen = {option.name for option in options}
        variants = {name: variant for name, variant in variants.items() if name in chosen}
    if not variants:
        return ChosenVariants(is_empty=True)
    _refuse_equal(variants.values())
    reference = declaring[0].reference_variant if declaring else None
    if reference not in variants:
        reference = next(iter(variants))
    return ChosenVariants(tuple(variants.values()), reference)


def find_unknown_variant(options: Iterable[VariantOption], declared: Iterable[str]) -> str | None:
    """Return the message about a variant that the command line selects and no file declares, or None."""
    known = {*declared, *(option.name for option in options if option.overrides is not None)}
    for option in options:
        if option.name not in known:
            return f"--agentbench-variant: unknown variant {option.name!r}{suggest(option.name, known)}"
    return None


def _declared(file: FileWithVariants) -> dict[str, Variant]:
    from pytest_agentbench.engine.variants import Variant

    return {name: Variant(name, fields, _path_of(file)) for name, fields in file.variants.items()}


def _added(options: Iterable[VariantOption]) -> dict[str, Variant]:
    """Return the variants that the command line declares. Raises VariantOptionError."""
    from pytest_agentbench.config.variants import name_problem, parse_variant
    from pytest_agentbench.engine.variants import Variant

    added = {}
    for option in options:
        if option.overrides is None:
            continue
        if (problem := name_problem(option.name)) is not None:
            raise VariantOptionError(f"--agentbench-variant: {problem}")
        try:
            fields = parse_variant(option.name, option.overrides, option.folder)
        except ConfigError as error:
            raise VariantOptionError(str(error)) from error
        added[option.name] = Variant(option.name, fields)
    return added


def _path_of(file: FileWithVariants) -> Path | None:
    return file.origin.path if file.origin is not None else None


def _refuse_equal(variants: Iterable[Variant]) -> None:
    """Raise ConfigError for two variants with one effect: they would share their runs."""
    first: dict[str, Variant] = {}
    for variant in variants:
        other = first.setdefault(variant.digest, variant)
        if other is not variant:
            raise ConfigError(
                variant.locate(
                    (),
                    f"variants {other.name} and {variant.name} are equal, so that a run would be compared with itself; "
                    "change one, or set aa: true in one to compare runs of equal variants",
                )
            )


def require_columns(count: int) -> None:
    """Raise ConfigError if a session has too many columns."""
    if count > MOST_COLUMNS:
        raise ConfigError(
            f"found {count} columns (models or agents, each in each variant), expected at most {MOST_COLUMNS}"
        )


def find_variant_problems(jobs: Sequence[Job]) -> list[str]:
    """Return the problems of variants that cannot be applied to selected cases, each once with the number of cases.

    Rows are parsed only if a variant changes single fields or prompts.
    """
    from pytest_agentbench.engine.variants import VariantError

    problems: Counter[str] = Counter()
    example: dict[str, str] = {}
    prompted = any(plan.variant is not None and plan.variant.fields.prompt for plan in {job.plan for job in jobs})
    for job in jobs:
        variant = job.plan.variant
        if variant is None or job.repetition > 1:
            continue
        try:
            if prompted:
                variant.require_prompt(job.case)
            if {"prompt", "case"} & variant.effect.keys():
                job.make_case()
        except VariantError as error:
            problems[error.problem] += 1
            example.setdefault(error.problem, job.case_id)
        except (ConfigError, UnavailableError):
            continue  # the item reports it
    return [
        f"{problem} ({count} of the selected cases, such as {example[problem]})"
        for problem, count in problems.most_common(_MOST_PROBLEMS)
    ]


def describe_variants(jobs: Iterable[Job]) -> dict[str, Any]:
    """Return `variants` and `reference_variant` of report.json, {} if no job has a variant."""
    entries: dict[str, Any] = {}
    reference = None
    for plan in dict.fromkeys(job.plan for job in jobs):
        if (name := plan.variant_name) is None or name in entries:
            continue
        entry: dict[str, Any] = {"as_written": {}, "digest": None, "changed": []}
        if plan.variant is not None:
            entry = plan.variant.describe()
        entry["reference"] = plan.reference_name
        if plan.parameters is not None:
            # The digest of the declared part alone would be that of other arms too
            entry |= {"digest": None, "changed": ["agentbench_runner", *entry["changed"]]}
        entries[name] = entry
        if reference is None and name == plan.reference_name:
            reference = name
    if entries:
        return {"variants": entries, "reference_variant": reference or next(iter(entries))}
    return {}
