"""Addresses and environment variables by which an agent reaches its run's gateway, and the keys that it sends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import parse_qsl

from pytest_agentbench.errors import ConfigError

NO_KEY = "none"
"""The key of a gateway that requires none: only the run's agent can reach its socket."""

RUN_HEADER = "x-agentbench-run"
"""Names the run by its token, for clients whose key and URL are set once for all runs."""

_HEADERS = (RUN_HEADER, "x-api-key", "x-goog-api-key", "api-key")
_MOST_OF_A_PATH = 200

_ALWAYS = MappingProxyType({"OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
"""Variables that stop two frameworks from contacting their vendors' hosts, which they do regardless of the base URL."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """The address of one run's gateway, for clients of all APIs.

    `key` is the run's token, which expires when the run ends. `model` is the model name to request. `serial` is true if
    no other run shares the process, so that the run may set variables there.
    """

    url: str
    key: str
    model: str
    serial: bool = False

    @property
    def base_url(self) -> str:
        """Return the run's base address, the prefix for all APIs."""
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
        """Return headers that name the run, for clients that all runs share, at `url`."""
        return {RUN_HEADER: self.key}

    def env(self) -> dict[str, str]:
        """Return environment variables by which the clients of a subprocess find the gateway."""
        openai = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), self.openai_base_url)
        anthropic = dict.fromkeys(("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), self.anthropic_base_url)
        google = dict.fromkeys(("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"), self.google_base_url)
        named = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY")
        return {**openai, **anthropic, **google, **dict.fromkeys(named, self.key), **_ALWAYS}

    @contextmanager
    def session_env(self) -> Iterator[None]:
        """Set `env()` in this process inside the block. Raises ConfigError if other runs share the process."""
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


def list_keys(headers: Mapping[str, str], query: str) -> Iterator[str]:
    """Yield the keys of a request, by its headers (their names in lower case) and its query."""
    for name in _HEADERS:
        if value := headers.get(name):
            yield value
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme and (key := value.strip() or scheme):
        yield key
    yield from (value for name, value in parse_qsl(query) if name == "key")


def name_path(path: str, token: str | None) -> str:
    """Return a path for traces and errors: shortened, and without the run's token."""
    bare = path if token is None else path.removeprefix(f"/r/{token}")
    return bare[:_MOST_OF_A_PATH] or "/"
