"""`reports.yaml` (`<name>.reports.yaml`): research reports in files or written by runners, and how they are scored."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, ValidationInfo, field_validator, model_validator

from pytest_agentbench.config.base import (
    ConfigFile,
    LocalFile,
    LocalFolder,
    Scope,
    complain,
    known_of,
    resolve_path,
    scope_of,
)
from pytest_agentbench.config.case_context import CaseContext
from pytest_agentbench.config.case_file import KnownRunner, OfferedServers, tools_problems
from pytest_agentbench.config.data_files import find_data_file_problems, match_files
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.packs.research.prompts import ResearchPrompts
from pytest_agentbench.packs.research.records import Cleaning
from pytest_agentbench.packs.research.stages import PART_STAGES, PARTS, UNBOUNDED, Part
from pytest_agentbench.records.base import AtLeastOne, Tags, Text
from pytest_agentbench.records.case import RunnerSpec

_NEEDED = PART_STAGES["poet"].made_of


def _some_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if not parts:
        raise ValueError(f"found none, expected at least one of {', '.join(PARTS)}")
    # In the order of the table, independent of the file's: fingerprints depend on it.
    return tuple(name for name in PARTS if name in parts)


class ReportsFile(ConfigFile):
    """Research reports: their files or their writer, their parts, and their thresholds."""

    name: Text | None = None
    """Begins the case ids; default: the folder's path below the config root, with `<name>` of `<name>.reports.yaml`."""
    description: str = ""
    """For people."""
    reports: tuple[Text, ...] | None = None
    """Files of stored reports, as paths or glob patterns; the file's stem is the model. Without: the runner writes."""
    queries: LocalFile | None = None
    """The queries, one report expected of each; with stored reports they add topic, language and level."""
    criteria: LocalFile | None = None
    """RACE's criteria of each query."""
    references: LocalFile | None = None
    """Reference reports; without them RACE judges each report alone."""
    annotations: LocalFolder | None = None
    """The folder of the experts' hours and rates, levels and token prices."""
    config: LocalFile | None = None
    """The weights, as poet_algorithm_config.json; default: the seed's."""
    knowledge_base: Text | None = None
    """The file of knowledge units, created if missing; default: the config's, else one in the output folder."""
    domain_map: dict[str, Text] = Field(default_factory=dict)
    """From topics or domains of rows to domains of the annotations."""
    default_domain: Text | None = None
    """The domain of reports without a known one; default: none, in compat mode `general`."""
    default_complexity: AtLeastOne | None = None
    """The complexity level of reports without one; default: none, in compat mode 3."""
    parts: Annotated[tuple[Part, ...], AfterValidator(_some_parts)] = PARTS
    """Scored parts: race, fact, efficiency, strategic, interaction, poet; default: all."""
    thresholds: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    """Least values of scores, by their names; a report below one fails."""
    cleaning: Cleaning = "deterministic"
    """Cleaning of an article before RACE: links and references by rules, by a model, or not at all (`none`)."""
    position_swap: StrictBool = False
    """RACE judges in both orders."""
    samples: AtLeastOne = 1
    """How often RACE judges."""
    compat: StrictBool | Literal["drb"] = False
    """The formulas of the original system; `drb`: its other settings too (`cleaning: model`), unless they are given."""
    prompts: ResearchPrompts = None
    """A folder of prompts in place of ours: `<prompt>.<language>.txt`, such as `race_pairwise.en.txt`."""
    runner: KnownRunner = RunnerSpec(type="llm_probe")
    """The runner that writes the reports that are not stored: its type and settings."""
    context: CaseContext = Field(default_factory=dict)
    """Settings for the runner: `llm_probe: {tools: [web_search]}`, your own."""
    mcp_servers: OfferedServers = Field(default_factory=dict)
    """MCP servers whose tools it may call."""
    tags: Tags = ()
    """Tags of every report, in addition to its language, topic and level."""

    @property
    def data_files(self) -> tuple[str, ...]:
        """Return the paths and patterns of all rows that it names."""
        return (*(self.reports or ()), *filter(None, (self.queries, self.criteria, self.references)))

    @model_validator(mode="before")
    @classmethod
    def _set_what_compat_names(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("compat") == "drb" and "race" in (data.get("parts") or PARTS):
            # DeepResearch Bench judges articles that a model has cleaned; the rest are the defaults here too.
            return {"cleaning": "model", **data}
        return data

    @field_validator("reports")
    @classmethod
    def _reports_exist(cls, reports: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        scope = scope_of(info)
        if reports == ():
            raise ValueError("found none, expected at least one path or pattern")
        # Without a scope the file is only checked by itself, as an editor does.
        if scope is None or reports is None:
            return reports
        complain(
            ((at,), text) for at, pattern in enumerate(reports) for text in find_data_file_problems(pattern, scope)
        )
        complain(_shared_stems(reports, scope))
        return reports

    @field_validator("knowledge_base")
    @classmethod
    def _knowledge_base_inside(cls, text: str | None, info: ValidationInfo) -> str | None:
        scope = scope_of(info)
        if text is not None and scope is not None and os.path.isdir(resolve_path(text, scope)):
            raise ValueError(f"found {text!r}, which is a folder, expected a file")
        return text

    @field_validator("thresholds")
    @classmethod
    def _scores_exist(cls, thresholds: Mapping[str, float], info: ValidationInfo) -> Mapping[str, float]:
        complain(_threshold_problems(thresholds, info.data.get("parts", PARTS)))
        return thresholds

    @field_validator("context")
    @classmethod
    def _context_fits_the_runner(cls, value: CaseContext, info: ValidationInfo) -> CaseContext:
        complain(tools_problems(info.data.get("runner"), value, known_of(info)))
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        complain(self._lacks())
        return self

    def _lacks(self) -> Iterator[tuple[Loc, str]]:
        if self.reports is None and self.queries is None:
            yield (), "found neither reports nor queries, expected stored reports, or queries that a runner answers"
        for field in dict.fromkeys(field for stage in PART_STAGES.values() for field in stage.inputs):
            users = [part for part in self.parts if field in PART_STAGES[part].inputs]
            if users and getattr(self, field) is None:
                need = "need" if len(users) > 1 else "needs"
                yield (), f"found no {field}, which {_and(users)} {need}; {_or_without(self.parts, *users)}"
        missing = [name for name in _NEEDED if name not in self.parts]
        if "poet" in self.parts and missing:
            yield ("parts",), f"found poet without {_and(missing)}, which it is made of"
        if self.cleaning == "model" and "race" not in self.parts:
            yield ("cleaning",), "only race judges a cleaned article; remove one of the two"


def _shared_stems(reports: tuple[str, ...], scope: Scope) -> Iterator[tuple[Loc, str]]:
    """Yield files with equal stems, which would be one model twice."""
    first: dict[str, Path] = {}
    for at, pattern in enumerate(reports):
        for path in match_files(pattern, scope.folder):
            # The stem is the model of all reports in the file: two would be mixed under one name.
            other = first.setdefault(path.stem, path)
            if other != path:
                yield (at,), f"found {path} and {other}, which are of one model ({path.stem!r}); rename one"


def _threshold_problems(thresholds: Mapping[str, float], parts: tuple[Part, ...]) -> Iterator[tuple[Loc, str]]:
    stages = PART_STAGES.items()
    parts_by_score = {
        name: part for part, stage in stages for name in stage.metrics if name not in stage.lower_is_better
    }
    for name, least in thresholds.items():
        if name not in parts_by_score:
            names = ", ".join(score for score, part in parts_by_score.items() if part in parts)
            yield (name,), f"found no score of that name, expected one of {names}"
        elif parts_by_score[name] not in parts:
            yield (name,), f"a score of {parts_by_score[name]}, which is not among the parts"
        elif name not in UNBOUNDED and not 0 <= least <= 1:
            yield (name,), f"found {least:g}, expected a number from 0 to 1"


def _or_without(parts: tuple[Part, ...], *gone: Part) -> str:
    kept = [name for name in parts if name not in gone and not (name == "poet" and set(gone) & set(_NEEDED))]
    if kept:
        return f"name them, or leave it out: parts: [{', '.join(kept)}]"
    return "name them"


def _and(names: Any) -> str:
    *most, last = names
    if most:
        return f"{', '.join(most)} and {last}"
    return str(last)
