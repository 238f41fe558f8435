"""The settings of a runner: what a layer of them may hold, and what `llm_probe` makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, ValidationError

from pytest_agentbench.config.base import complain
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records import AtLeastOne, Fraction, Seconds


class RunnerSettings(BaseModel):
    """The merged settings of one run as `llm_probe` reads them; other fields are request parameters as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] | None = None
    """Sampling temperature."""
    top_p: Fraction | None = None
    """Nucleus sampling."""
    max_tokens: AtLeastOne | None = None
    """Most tokens to generate."""
    seed: StrictInt | None = None
    """Reproducibility seed."""
    timeout_seconds: Seconds = 30
    """Wall-clock limit of one request."""
    retries: Annotated[StrictInt, Field(ge=0)] = 5
    """Retries of a request after a transient failure."""
    max_turns: AtLeastOne = 8
    """Most requests before a final answer is forced."""

    @property
    def extras(self) -> dict[str, Any]:
        """The fields that `llm_probe` does not know and hands on to the endpoint."""
        return dict(self.model_extra or {})

    @property
    def request_parameters(self) -> dict[str, Any]:
        """What goes into every request: the sampling fields that are given, and the extras.

        A None stands for a parameter of the model's own that the request is to leave out.
        """
        sampling = ("temperature", "top_p", "max_tokens", "seed")
        return {name: getattr(self, name) for name in sampling if name in self.model_fields_set} | self.extras


def settings_problems(layer: Mapping[str, Any]) -> list[tuple[Loc, str]]:
    """What is wrong with one layer of settings. A null is fine: it removes the key."""
    known = {name: layer[name] for name in RunnerSettings.model_fields if layer.get(name) is not None}
    if not known:
        return []
    try:
        RunnerSettings.model_validate(known)
    except ValidationError as error:
        return [
            (tuple(item["loc"]), f"found {item['input']!r}, expected {item['msg'].removeprefix('Input should be ')}")
            for item in error.errors(include_url=False)
        ]
    return []


def _checked(layer: dict[str, Any]) -> dict[str, Any]:
    complain(settings_problems(layer))
    return layer


SettingsLayer = Annotated[dict[str, Any], AfterValidator(_checked)]
