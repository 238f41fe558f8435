"""Web search backends: SearXNG by URL, Brave and Tavily by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import AgentbenchError, ProviderError
from pytest_agentbench.models import tls_context
from pytest_agentbench.tools.base import Search, SearchResult

if TYPE_CHECKING:
    import httpx2

_RESULTS = 10
_SNIPPET = 500
_SECONDS = 20.0
_BRAVE = "https://api.search.brave.com"
_TAVILY = "https://api.tavily.com"


class SearchError(AgentbenchError):
    """A search backend gave no usable answer this time."""


def configured_search(environ: Mapping[str, str]) -> Search | None:
    """The first backend that the environment sets up, None where it sets up none.

    AGENTBENCH_SEARXNG_URL is the base URL of a SearXNG whose JSON format is enabled; BRAVE_API_KEY and TAVILY_API_KEY
    are keys of those services.
    """
    if url := environ.get("AGENTBENCH_SEARXNG_URL"):
        return searxng(url)
    if key := environ.get("BRAVE_API_KEY"):
        return brave(key)
    if key := environ.get("TAVILY_API_KEY"):
        return tavily(key)
    return None


def searxng(base_url: str) -> Search:
    """A SearXNG instance (https://docs.searxng.org/dev/search_api.html)."""

    async def search(query: str) -> list[SearchResult]:
        parameters = {"q": query, "format": "json"}
        reply = await _ask("SearXNG", lambda client: client.get(f"{_base(base_url)}/search", params=parameters))
        return _results(reply.get("results"), snippet="content")

    return search


def brave(api_key: str, base_url: str = _BRAVE) -> Search:
    """Brave Search (https://api-dashboard.search.brave.com/app/documentation/web-search)."""

    async def search(query: str) -> list[SearchResult]:
        parameters = {"q": query[:400], "count": str(_RESULTS)}  # the service's own limit of a query
        url, headers = f"{_base(base_url)}/res/v1/web/search", {"X-Subscription-Token": api_key}
        reply = await _ask("Brave", lambda client: client.get(url, params=parameters, headers=headers))
        web = reply.get("web")
        return _results(web.get("results") if isinstance(web, dict) else None, snippet="description")

    return search


def tavily(api_key: str, base_url: str = _TAVILY) -> Search:
    """Tavily (https://docs.tavily.com/documentation/api-reference/endpoint/search)."""

    async def search(query: str) -> list[SearchResult]:
        body, headers = {"query": query[:400], "max_results": _RESULTS}, {"Authorization": f"Bearer {api_key}"}
        url = f"{_base(base_url)}/search"
        reply = await _ask("Tavily", lambda client: client.post(url, json=body, headers=headers))
        return _results(reply.get("results"), snippet="content")

    return search


async def _ask(service: str, request: Callable[[httpx2.AsyncClient], Any]) -> dict[str, Any]:
    """The JSON object the service answers. SearchError, or ProviderError where it will refuse every search."""
    import httpx2

    from pytest_agentbench.bounded import MAX_LISTING, ReplyRefusedError, bounded_replies

    hooks = bounded_replies(MAX_LISTING)
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS, verify=tls_context(), event_hooks=hooks) as client:
            response = await request(client)
    except ReplyRefusedError as error:
        raise SearchError(f"{service}: {error}") from error
    except httpx2.HTTPError as error:
        raise SearchError(f"{service} could not be reached ({type(error).__name__})") from error
    if response.has_redirect_location:  # where the query and the service's key are not sent
        raise ProviderError(
            f"web_search: {service} redirects to another address (HTTP {response.status_code}), which is not followed; "
            "name the service's own address",
            code="web_search_refused",
        )
    if response.status_code in (401, 403):
        raise ProviderError(
            f"web_search: {service} refused the request with HTTP {response.status_code}; check its key or settings",
            code="web_search_refused",
        )
    if response.status_code != 200:
        raise SearchError(f"{service} answered HTTP {response.status_code}")
    try:
        reply = response.json()
    except ValueError as error:
        raise SearchError(f"{service} answered something that is not JSON") from error
    return reply if isinstance(reply, dict) else {}


def _base(url: str) -> str:
    return url.rstrip("/")


def _results(found: object, *, snippet: str) -> list[SearchResult]:
    items = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    return [
        SearchResult(str(item.get("title") or ""), str(item.get("url") or ""), str(item.get(snippet) or "")[:_SNIPPET])
        for item in items[:_RESULTS]
    ]
