"""`models.yaml`: the models that sessions and judges name, and how to reach them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool

from pytest_agentbench.config.base import ConfigFile, RequestParameters, Written, unique
from pytest_agentbench.records import CassetteMode, Limits, Prices, Text, VariableName


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

    models: Annotated[tuple[ModelEntry, ...], unique("model_id")] = ()
    """One entry for each model."""

    def get(self, model_id: str) -> ModelEntry | None:
        """The entry of that id, None where there is none."""
        return next((model for model in self.models if model.model_id == model_id), None)
