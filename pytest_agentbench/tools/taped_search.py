"""A web search whose results a cassette has or keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pytest_agentbench.errors import InfrastructureError, UnavailableError
from pytest_agentbench.models import Answer, Form, Refusal, Tape
from pytest_agentbench.tools.base import Search, SearchResult
from pytest_agentbench.tools.search import SearchError

WEB_SEARCH = "web_search"
"""Who is asked, in cassettes."""


def taped_search(search: Search | None, tape: Tape) -> Search:
    """The search through a tape. Without a `search` it has the tape alone.

    What a backend raises becomes a SearchError and is kept like a result, as the model gets to read it; but no
    InfrastructureError.
    """

    async def ask(query: str) -> Sequence[SearchResult]:
        if search is None:
            raise UnavailableError("web_search has no backend, and the cassette does not have this search")
        try:
            return await search(query)
        except (InfrastructureError, SearchError):
            raise
        except Exception as error:
            raise SearchError(f"{type(error).__name__}: {error}") from error

    async def taped(query: str) -> Sequence[SearchResult]:
        return await tape.play(WEB_SEARCH, {"query": query}, lambda: ask(query), _FORM)

    return taped


def _write(results: Sequence[SearchResult]) -> Answer:
    return Answer(results=tuple(asdict(result) for result in results))


def _read(answer: Answer, seconds: float) -> Sequence[SearchResult]:
    return [
        SearchResult(result.get("title", ""), result.get("url", ""), result.get("snippet", ""))
        for result in answer.results or ()
    ]


def _refusal(error: Exception) -> Refusal | None:
    return Refusal(code="search_error", message=str(error)) if isinstance(error, SearchError) else None


_FORM: Form[Sequence[SearchResult]] = Form(_write, _read, _refusal, lambda refusal: SearchError(refusal.message))
