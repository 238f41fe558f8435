"""Annotations of seed 003: an expert's time and cost by domain, the difficulty of tasks, the price of tokens.

Each file is read in both spellings: flat, or nested below a name; `avg_task_time_hours` or
`expert_time_hours`, `avg_hourly_rate_usd` or `expert_hourly_rate_usd`, `input_price_per_1k` or `input_cost_per_1k`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, TypeAdapter

from pytest_agentbench.config.base import Scope, suggest, validate
from pytest_agentbench.config.documents import Document, read_document
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.records import DefaultField
from pytest_agentbench.records.base import Record

SAME_DOMAINS = {"medical": "healthcare", "healthcare": "medical"}
"""The two files of the seed name one domain differently."""

_MAX_AMOUNT = 1e9
"""Maximum of hours, rates and prices: with more, results would overflow."""
Positive = Annotated[float, Field(gt=0, le=_MAX_AMOUNT, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=_MAX_AMOUNT, allow_inf_nan=False)]


class _Entry(Record):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class DomainExpert(_Entry):
    """An expert of a domain: hours for a task, USD per hour."""

    avg_task_time_hours: NotNegative = Field(validation_alias=AliasChoices("avg_task_time_hours", "expert_time_hours"))
    avg_hourly_rate_usd: NotNegative = Field(
        validation_alias=AliasChoices("avg_hourly_rate_usd", "expert_hourly_rate_usd")
    )


class ComplexityLevel(_Entry):
    """A level: the multiplier of an expert's hours, and the difficulty, 1-5.

    A file without multipliers does not change the hours; without difficulties, the levels' numbers are used.
    """

    description: str = ""
    name: str | None = None
    expert_time_multiplier: Positive = 1.0
    difficulty_score: Annotated[float, Field(ge=0, le=5)] | None = None


class TokenPrice(_Entry):
    """USD per thousand tokens."""

    input_price_per_1k: NotNegative = Field(validation_alias=AliasChoices("input_price_per_1k", "input_cost_per_1k"))
    output_price_per_1k: NotNegative = Field(validation_alias=AliasChoices("output_price_per_1k", "output_cost_per_1k"))


class TaskType(_Entry):
    """A type of task: the hours that an expert takes."""

    expert_time_hours: NotNegative
    complexity_level: int | None = None


class ExpertType(_Entry):
    """A kind of expert: USD per hour."""

    hourly_rate_usd: NotNegative


def _unnest(name: str) -> BeforeValidator:
    """Return the content below `name` if the file nests it; its other fields only describe the file."""

    def below(data: Any) -> Any:
        nested = data.get(name) if isinstance(data, dict) else None
        if isinstance(nested, dict):
            return nested
        return data

    return BeforeValidator(below)


_WHEN_READ = ConfigDict(defer_build=True)

FILES: dict[str, TypeAdapter[Any]] = {
    "domain_expert_data.json": TypeAdapter(Annotated[dict[str, DomainExpert], _unnest("domains")], config=_WHEN_READ),
    "complexity_level_data.json": TypeAdapter(
        Annotated[dict[int, ComplexityLevel], _unnest("complexity_levels")], config=_WHEN_READ
    ),
    "token_pricing_data.json": TypeAdapter(
        Annotated[dict[str, TokenPrice], _unnest("pricing_models")], config=_WHEN_READ
    ),
    "task_type_data.json": TypeAdapter(Annotated[dict[str, TaskType], _unnest("task_types")], config=_WHEN_READ),
    "expert_type_data.json": TypeAdapter(Annotated[dict[str, ExpertType], _unnest("expert_types")], config=_WHEN_READ),
}
REQUIRED = tuple(FILES)[:3]


@dataclass(frozen=True)
class Annotations:
    """Annotation files of a folder."""

    folder: Path
    domains: Mapping[str, DomainExpert]
    levels: Mapping[int, ComplexityLevel]
    prices: Mapping[str, TokenPrice]
    task_types: Mapping[str, TaskType] = field(default_factory=dict)
    expert_types: Mapping[str, ExpertType] = field(default_factory=dict)

    def knows_domain(self, name: str) -> bool:
        """Return whether there is a domain of that name, or of its other one."""
        return name in self.domains or SAME_DOMAINS.get(name) in self.domains

    def domain(self, name: str) -> DomainExpert:
        """Return the expert of a domain of that name, or of its other one. Raises ConfigError: there is no default."""
        # The exact name first: a file may have both, with different figures.
        expert = self.domains.get(name) or self.domains.get(SAME_DOMAINS.get(name, name))
        if expert is None:
            raise self._make_unknown(REQUIRED[0], "domain", name, self.domains)
        return expert

    def level(self, number: int) -> ComplexityLevel:
        """Return the level of a number. Raises ConfigError for one that is not there."""
        if number not in self.levels:
            raise self._make_unknown(REQUIRED[1], "complexity level", str(number), map(str, self.levels))
        level = self.levels[number]
        if level.difficulty_score is not None:
            return level
        # Files without difficulties number their levels from the easiest to the hardest.
        return level.model_copy(update={"difficulty_score": number})

    def level_number(self, name: int | str, names: Mapping[str, int]) -> int:
        """Return the number of a level that a row gives as a number, or by a name of `names` or of the file.

        Raises ConfigError for one that is not there.
        """
        # Names of the configuration come last, so that they take precedence over the file's.
        numbers = {**{level.name: number for number, level in self.levels.items() if level.name}, **names}
        # CSV and spreadsheets give the level as "3".
        number = int(name) if isinstance(name, int) or name.isdecimal() else numbers.get(name)
        if number is None or number not in self.levels:
            raise self._make_unknown(REQUIRED[1], "complexity level", str(name), [*map(str, self.levels), *numbers])
        return number

    def price(self, model: str) -> TokenPrice:
        """Return the price of a model. Raises ConfigError for an unknown model: `default` does not count."""
        if model not in self.prices:
            raise self._make_unknown(REQUIRED[2], "model", model, self.prices)
        return self.prices[model]

    def _make_unknown(self, file: str, what: str, name: str, known: Any) -> ConfigError:
        return ConfigError(f"{self.folder / file}: unknown {what} {name!r}{suggest(name, list(known))}")


GENERAL = "general"
_GENERAL_EXPERT = DomainExpert(avg_task_time_hours=2.0, avg_hourly_rate_usd=100.0)
_COMPAT_LEVEL = 3


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Domain and complexity level of a task, None if unknown. `defaults` names the fields with default values."""

    domain: str | None
    level: int | str | None
    defaults: tuple[DefaultField, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskDefaults:
    """Domain and complexity level of tasks without their own. None: there is no default."""

    domain: str | None = None
    level: int | None = None

    @classmethod
    def choose(cls, domain: str | None, level: int | None, *, compat: bool) -> TaskDefaults:
        """Return the values that a user has set, in compat mode the original's in place of those not set."""
        if compat and domain is None:
            domain = GENERAL
        if compat and level is None:
            level = _COMPAT_LEVEL
        return cls(domain, level)

    def complete(self, annotations: Annotations) -> Annotations:
        """Return the annotations, with the original's expert for the default domain `general` if they have none."""
        if self.domain != GENERAL:
            return annotations
        return replace(annotations, domains={GENERAL: _GENERAL_EXPERT, **annotations.domains})

    def place(
        self,
        domain: str | None,
        topic: str | None,
        level: int | str | None,
        domain_map: Mapping[str, str],
        knows_domain: Callable[[str], bool],
    ) -> TaskPlace:
        """Return the place of a task from its row. A topic that is not a domain is replaced by a default domain.

        An unknown domain is a mistake in the row, and is not replaced.
        """
        # An empty text counts as none: CSV has no other way to leave a field out.
        name = domain or topic
        mapped = domain_map.get(name, name) if name else None
        defaults: list[DefaultField] = []
        if self.domain is not None and (mapped is None or not (domain or knows_domain(mapped))):
            mapped = self.domain
            defaults.append("domain")
        if level is None and self.level is not None:
            level = self.level
            defaults.append("complexity_level")
        return TaskPlace(mapped, level, tuple(defaults))


def read_annotations(folder: Path) -> Annotations:
    """Return the five files of a folder, of which three must be there.

    Raises ConfigError with all that is wrong with them.
    """
    data: dict[str, Any] = {}
    problems: list[str] = []
    # All files before the first error is raised: who mends them wants to hear everything at once.
    for name, kind in FILES.items():
        path = folder / name
        if not path.is_file():
            if name in REQUIRED:
                problems.append(f"{path}: is missing, expected the files {', '.join(REQUIRED)}")
            continue
        try:
            data[name] = validate(_require_mapping(read_document(path)), kind, Scope(str(folder)))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return Annotations(folder, *(data.get(name, {}) for name in FILES))


def _require_mapping(document: Document) -> Document:
    if not isinstance(document.data, dict):
        raise ConfigError(f"{document.path}:1:1: found no object, expected one with an entry for each name")
    return document
