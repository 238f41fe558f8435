"""`models.yaml` and `suites/<id>.yaml`: the models there are, and which of them run which cases."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StringConstraints, model_validator

from pytest_agentbench.config.base import (
    ConfigFile,
    RequestParameters,
    Written,
    complain,
    find_temperature_problems,
    require_unique,
)
from pytest_agentbench.config.sections import SectionedFile
from pytest_agentbench.records.base import Record, Slug, Tags, VariableName
from pytest_agentbench.records.case import CassetteMode, Limits, Prices
from pytest_agentbench.records.check_specs import Text


def _off(value: Any) -> Any:
    """YAML 1.1 reads an unquoted `off` as false."""
    return "off" if value is False else value


class ModelEntry(Written):
    """A model: what it is called here, and how to reach it."""

    model_id: Text
    """What --model, suites and judges name."""
    requested_model: Text | None = None
    """The endpoint's name for it; default: model_id."""
    label: str | None = None
    """For people."""
    base_url: Text | None = None
    """The endpoint, such as http://localhost:8000/v1; default: OPENAI_BASE_URL, else the OpenAI client's own."""
    api_key_env: VariableName | None = None
    """Name of the variable that holds the key, never a key; `none` for endpoints without keys. Default: OPENAI_API_KEY,
    which goes to its own hosts only: an endpoint elsewhere needs this field beside `base_url`."""
    provider: Text | None = None
    """A plugin's way to reach it, in place of an OpenAI-compatible endpoint."""
    scripted: StrictBool = False
    """It answers from scripts beside the cases, offline."""
    judge: Text | None = None
    """The model that judges this one's runs, in place of the evaluation profile's."""
    parameters: RequestParameters = Field(default_factory=dict)
    """Request parameters; profile and case win over them."""
    prices: Prices | None = None
    """USD per million tokens."""
    limits: Limits | None = None
    """What the endpoint bears."""
    cassettes: Annotated[CassetteMode | None, BeforeValidator(_off)] = None
    """off, record, replay or auto: what --agentbench-cassettes says for this model, which this wins over."""


class ModelsFile(ConfigFile):
    """The models of a config root."""

    models: Annotated[tuple[ModelEntry, ...], require_unique("model_id")] = ()
    """One entry for each model."""

    def get(self, model_id: str) -> ModelEntry | None:
        """Return the entry of that id, None where there is none."""
        return next((model for model in self.models if model.model_id == model_id), None)


CaseId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class SuiteModel(Written):
    """A model of the suite. Other fields are passed to the runner."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    model_id: Slug
    """Its name in paths and reports, and for --model."""
    label: str | None = None
    """For people."""
    requested_model: Text | None = None
    """The endpoint's name for it, such as openai/gpt-4o-mini."""

    @model_validator(mode="after")
    def _sound_temperature(self) -> Self:
        complain(find_temperature_problems(self.extras))
        return self

    @property
    def extras(self) -> dict[str, Any]:
        """Return the fields that are passed to the runner."""
        return dict(self.model_extra or {})

    @property
    def declared_name(self) -> str | None:
        """`requested_model`, else `openrouter_model`, else `provider/model_name`; None where none is given."""
        extras = self.extras
        name = self.requested_model or extras.get("openrouter_model")
        if name is None and extras.get("provider") and extras.get("model_name"):
            name = f"{extras['provider']}/{extras['model_name']}"
        return None if name is None else str(name)


class CaseSelection(Record):
    """Which cases: include_case_ids > tag filters > exclude_case_ids."""

    include_case_ids: tuple[CaseId, ...] = ()
    """These always; others then enter only through include_tags."""
    exclude_case_ids: tuple[CaseId, ...] = ()
    """Not these."""
    include_tags: Tags = ()
    """Cases with at least one of these tags."""
    exclude_tags: Tags = ()
    """No case with one of these tags."""


class SuiteFile(SectionedFile):
    """A suite: models and the cases that they run."""

    seam: ClassVar[str] = "suite"

    suite_id: Slug
    """Unique under the config root."""
    title: Text
    """For people."""
    models: Annotated[tuple[SuiteModel, ...], require_unique("model_id")] = ()
    """What runs without --model."""
    case_selection: CaseSelection = Field(default_factory=CaseSelection)
    """Which cases run; all, where nothing is said."""

    @classmethod
    def default(cls) -> SuiteFile:
        """Return what holds where a session names none: all cases."""
        return cls(schema_version=1, suite_id="default", title="Default")
