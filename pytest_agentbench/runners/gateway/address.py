"""Tell an agent in this process, or one that is started by it, where its run's model is asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.runners.gateway.keys import RUN_HEADER

_ALWAYS = MappingProxyType({"OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
"""Without these, two frameworks ask hosts of their own, whatever the base URL."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Hold where one run's model is asked, in any dialect.

    `key` is the run's token, void when the run ends. `model` is the name to ask for. `serial` says that the run is
    alone in its process, so that it may set variables there.
    """

    url: str
    key: str
    model: str
    serial: bool = False

    @property
    def base_url(self) -> str:
        """Return the run's own address, which all dialects begin with."""
        return f"{self.url}/r/{self.key}"

    @property
    def openai_base_url(self) -> str:
        """Return the `base_url` of OpenAI's clients."""
        return f"{self.base_url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """Return the `base_url` of Anthropic's clients, which add `/v1`."""
        return self.base_url

    @property
    def google_base_url(self) -> str:
        """Return the `base_url` of Google's clients, which add `/v1beta`."""
        return self.base_url

    @property
    def headers(self) -> dict[str, str]:
        """Return headers that name the run, for clients that are made once for all runs, at `url`."""
        return {RUN_HEADER: self.key}

    def env(self) -> dict[str, str]:
        """Return the variables by which clients find the gateway, for a subprocess."""
        openai = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), self.openai_base_url)
        anthropic = dict.fromkeys(("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), self.anthropic_base_url)
        google = dict.fromkeys(("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"), self.google_base_url)
        named = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY")
        return {**openai, **anthropic, **google, **dict.fromkeys(named, self.key), **_ALWAYS}

    @contextmanager
    def session_env(self) -> Iterator[None]:
        """Set `env()` in this process inside the block. Raises ConfigError where other runs would see it."""
        if not self.serial:
            raise ConfigError(
                "environment variables are the whole process's, and other runs are in flight: pass base_url and key to "
                "the client, or set `runner: {env: serial}`"
            )
        before = {name: os.environ.get(name) for name in self.env()}
        os.environ.update(self.env())
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
