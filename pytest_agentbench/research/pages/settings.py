"""How pages are fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pytest_agentbench.config import NetworkSettings, plain_problem
from pytest_agentbench.errors import ConfigError

KEY_VARIABLE = "JINA_API_KEY"
URL_VARIABLE = "JINA_BASE_URL"
JINA_URL = "https://r.jina.ai/"


@dataclass(frozen=True, slots=True)
class PageSettings:
    """What may be fetched, by whom, how much at once.

    `jina_key` set: the Jina reader at `jina_url` fetches and reads all pages. Else they are fetched from here: at most
    `concurrency` at once and `per_site` of one site, whose requests begin at least `delay` seconds apart. Sites of
    addresses that are not public, which `network.allow_private` has to name, are one's own: they get no such rest. A
    page's requests may take `seconds` together; it may have `most_bytes`, a PDF four times as many.
    """

    network: NetworkSettings = field(default_factory=NetworkSettings)
    jina_key: str | None = field(default=None, repr=False)
    jina_url: str = JINA_URL
    concurrency: int = 50
    per_site: int = 4
    delay: float = 0.5
    seconds: float = 30.0
    most_bytes: int = 5 * 2**20

    @classmethod
    def of(cls, network: NetworkSettings, environ: Mapping[str, str] = os.environ) -> Self:
        """With the Jina reader where the environment has a key for it; JINA_BASE_URL names another address of it.

        Raises ConfigError where that is no URL, or one to which the key would travel unencrypted.
        """
        url = environ.get(URL_VARIABLE) or JINA_URL
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{URL_VARIABLE}: found {url!r}, expected a URL such as {JINA_URL}")
        if environ.get(KEY_VARIABLE) and (problem := plain_problem(url)):
            raise ConfigError(f"{URL_VARIABLE}: {problem}")
        return cls(network, environ.get(KEY_VARIABLE, "").strip() or None, url)
