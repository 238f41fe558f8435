"""Pages that a script has in place of the web, for scripted judges."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_agentbench.research.fact.citations import canonical_url
from pytest_agentbench.research.fact.validating import SCRAPE_FAILED


class ScriptedPages:
    """The texts of a script's `web_fetch` by URL; nothing is fetched."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self._pages = {canonical_url(url): text for url, text in pages.items()}

    async def content(self, url: str) -> str:
        """The page's text, or `scrape failed: <reason>`."""
        return self._pages.get(canonical_url(url), f"{SCRAPE_FAILED}the script has no such page")
