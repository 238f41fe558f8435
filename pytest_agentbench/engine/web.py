"""The web as one run has it: its model's script, a cassette, or the real one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_agentbench.config import NetworkSettings
from pytest_agentbench.engine.services import Services
from pytest_agentbench.records import Case, Model
from pytest_agentbench.tools import (
    WEB_FETCH,
    WEB_SEARCH,
    Fetch,
    Hop,
    Page,
    Search,
    SearchResult,
    taped_fetch,
    taped_search,
    web_fetcher,
)

if TYPE_CHECKING:
    from pytest_agentbench.models import Scripts, Tape


def web_search(services: Services, case: Case, model: Model, tape: Tape | None) -> Search | None:
    """What the tool of that name asks; None where nothing is set up."""
    if model.scripted:
        return _scripted_search(services.scripts, case)
    if tape is None or tape.mode(WEB_SEARCH) == "off":
        return services.registry.search
    return taped_search(services.registry.search, tape)


def web_fetch(
    services: Services, case: Case, model: Model, network: NetworkSettings, tape: Tape | None
) -> Fetch | None:
    """What the tool of that name asks; None where its library is not installed."""
    if WEB_FETCH not in case.tools:
        return None
    if model.scripted:
        return _scripted_fetch(services.scripts, case)
    fetch = web_fetcher(network, services.threads.run)
    return fetch if tape is None or tape.mode(WEB_FETCH) == "off" else taped_fetch(fetch, tape)


def _scripted_search(scripts: Scripts, case: Case) -> Search:
    """The web as the case's script has it."""

    async def search(query: str) -> list[SearchResult]:
        return [SearchResult(hit.title, hit.url, hit.snippet) for hit in scripts.search(case.case_id, query)]

    return search


def _scripted_fetch(scripts: Scripts, case: Case) -> Fetch:
    async def fetch(url: str) -> Page:
        text = scripts.page(case.case_id, url)
        body = text.encode()
        return Page((Hop(url, None, 200),), "text/plain", len(body), hashlib.sha256(body).hexdigest(), text)

    return fetch
