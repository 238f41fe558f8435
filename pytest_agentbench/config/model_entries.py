"""The models of `models.yaml` and of suites, one entry each: imported for the first that a file has."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from pytest_agentbench.config.base import Problems, Written, complain
from pytest_agentbench.config.sections import RequestParameters, find_high_temperature, find_parameter_problems
from pytest_agentbench.records.base import Record, Seconds, Slug, Text, VariableName
from pytest_agentbench.records.case import (
    ApiName,
    BatchKind,
    CassetteMode,
    Dialect,
    DialectName,
    EndpointHeaders,
    Limits,
    Prices,
    PromptCache,
    Streamed,
    header_variable,
)


def _off(value: Any) -> Any:
    """Return "off" for false: YAML 1.1 reads an unquoted `off` as false."""
    if value is False:
        return "off"
    return value


def _require_scheme(url: str) -> str:
    if not re.match(r"https?://.", url):
        raise ValueError(f"found {url!r}, expected an address with its scheme, such as http://localhost:8000/v1")
    return url


EndpointUrl = Annotated[Text, AfterValidator(_require_scheme)]
ApiDate = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class WireFields(Record):
    """Another protocol of a model, with its address and its key; both default to the model's."""

    base_url: EndpointUrl | None = None
    """The address below which the protocol is served."""
    api_key_env: VariableName | None = None
    """Name of the variable that holds the key, never a key; `none` for endpoints without keys."""


def _spread_wires(wires: Any) -> Any:
    """Return a list of protocols as a mapping."""
    named = isinstance(wires, list) and all(isinstance(name, str) for name in wires)
    if named:
        return {name: {} for name in wires}
    return wires


class EndpointFields(Written):
    """The protocol and dialect of a model's endpoint."""

    api: ApiName | None = None
    """The protocol that it is asked in: chat (Chat Completions, the default), responses (OpenAI's /v1/responses),
    messages (Anthropic's /v1/messages) or gemini (Google's generateContent)."""
    wires: Annotated[dict[ApiName, WireFields] | None, BeforeValidator(_spread_wires)] = None
    """Further protocols that it is served in, a list or a mapping: an agent's requests in these, and in `api`, pass
    through to it as they are; those in others are translated."""
    dialect: DialectName | Literal["auto"] | None = None
    """How its endpoint speaks; auto, the default: by the host of its address."""
    dialect_overrides: Dialect | None = None
    """Differences of its endpoint from others of its dialect."""
    anthropic_version: ApiDate | None = None
    """Version of Anthropic's API, a date, for `api: messages`; default: 2026-10-21, and 2023-06-01 for requests with
    temperature, top_p or top_k, which the newer one refuses."""
    headers: EndpointHeaders | None = None
    """Further headers of its requests; a value `env:VARIABLE` is that of the variable, which goes where keys may go."""
    query: dict[str, str] | None = None
    """Query of its requests, such as `api-version`; one in `base_url` joins it."""
    prompt_cache: PromptCache | None = None
    """Ask its provider to cache prompts: by marks (OpenRouter's `anthropic/`, `api: messages`) or a key (OpenAI)."""


class ModelEntry(EndpointFields):
    """A model: its name here, and the way to reach it."""

    model_id: Text
    """Its name in --model, suites and judges."""
    requested_model: Text | None = None
    """The endpoint's name for it; default: model_id."""
    label: str | None = None
    """For people."""
    base_url: EndpointUrl | None = None
    """The endpoint, such as http://localhost:8000/v1; default: OPENAI_BASE_URL, else the OpenAI client's own; with
    `api: messages` Anthropic's, with `api: gemini` Google's."""
    api_key_env: VariableName | None = None
    """Name of the variable that holds the key, never a key; `none` for endpoints without keys. Default:
    OPENAI_API_KEY, with `api: messages` ANTHROPIC_API_KEY, with `api: gemini` GEMINI_API_KEY, which go to their
    own hosts only: another endpoint needs this field next to `base_url`. With `headers` that take a value from a
    variable: none.
    """
    provider: Text | None = None
    """A plugin's way to reach it, in place of an OpenAI-compatible endpoint."""
    scripted: StrictBool = False
    """It answers offline, from scripts in the folders of cases."""
    judge: Text | None = None
    """The model that judges this one's runs, in place of the evaluation profile's."""
    parameters: RequestParameters = Field(default_factory=dict)
    """Request parameters; profile and case win over them."""
    prices: Prices | None = None
    """USD per million tokens."""
    limits: Limits | None = None
    """Rate limits of the endpoint."""
    cassettes: Annotated[CassetteMode | None, BeforeValidator(_off)] = None
    """off, record, replay or auto: --agentbench-cassettes for this model. It wins over the option."""
    stream: Streamed | None = None
    """Ask for replies in a stream: true, false (the default), or auto: if a request may take over a minute, or if
    stall_seconds is set. Profile and case win over it.
    """
    stall_seconds: Seconds | None = None
    """Longest silence in the middle of a streamed reply; default: 60."""
    batch: BatchKind | None = None
    """Put requests into batches, at half the price, within a day: auto (by host), openai, anthropic or gemini."""

    @property
    def variables(self) -> list[str]:
        """Return the names of the variables that it takes keys from."""
        named = (self.api_key_env, *(wire.api_key_env for wire in (self.wires or {}).values()))
        return [name for name in (*named, *map(header_variable, (self.headers or {}).values())) if name]

    @model_validator(mode="after")
    def _check_api(self) -> Self:
        # `provider` of a suite's model is a part of its name
        if not (self.scripted or (self.provider and not isinstance(self, SuiteModel))):
            return self
        who = "scripts answer" if self.scripted else f"the provider {self.provider} asks"
        found = {"api": self.api if self.api != "chat" else None, "wires": [*(self.wires or ())]}
        complain(
            [
                ((name,), f"found {value!r}, expected none: {who} without an endpoint; leave it out")
                for name, value in found.items()
                if value
            ]
        )
        return self

    @model_validator(mode="after")
    def _check_version(self) -> Self:
        # A suite's model may have its `api` from models.yaml
        spoken = {self.api or "chat", *(self.wires or ())}
        if self.batch == "anthropic":
            spoken.add("messages")
        if self.anthropic_version is None or "messages" in spoken or isinstance(self, SuiteModel):
            return self
        said = f"found {self.anthropic_version!r}, which only `api: messages` has; leave it out, or set api: messages"
        raise Problems([(("anthropic_version",), said)])

    @model_validator(mode="after")
    def _check_temperature(self) -> Self:
        how = (self.dialect, self.base_url, self.dialect_overrides, self.api)
        problem = find_high_temperature(self.parameters, *how)
        if problem is not None:
            raise Problems([(("parameters", "temperature"), problem)])
        return self


class SuiteModel(ModelEntry):
    """A suite's model: fields of models.yaml, which win over its entry there. Other fields are request fields."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    model_id: Slug
    """Its name in paths and reports, and for --model."""
    requested_model: Text | None = None
    """The endpoint's name for it, such as openai/gpt-5.4-mini."""
    provider: Text | None = None
    """Before `model_name`: the first part of the endpoint's name for it."""
    model_name: Text | None = None
    """The endpoint's name for it after `provider/`, where neither requested_model nor openrouter_model is given."""
    openrouter_model: Text | None = None
    """The endpoint's name for it, where requested_model is not given."""
    primary_params: RequestParameters = Field(default_factory=dict)
    """Request fields; they win over all others of the model."""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        problems = find_parameter_problems(self.request_fields)
        if self.provider is not None and self.declared_name is None:
            problems.append((("provider",), "found no model_name, which it belongs to; give the suite's model both"))
        complain(problems)
        return self

    @property
    def request_fields(self) -> dict[str, Any]:
        """Return the fields that are no field of ours."""
        return dict(self.model_extra or {})

    @property
    def declared_name(self) -> str | None:
        """Return `requested_model`, else `openrouter_model`, else `provider/model_name`, else None."""
        named = self.requested_model or self.openrouter_model
        if named is not None or self.model_name is None:
            return named
        if self.provider is None:
            return self.model_name
        return f"{self.provider}/{self.model_name}"
