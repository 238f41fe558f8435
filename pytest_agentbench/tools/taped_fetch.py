"""Pages of the web that a cassette has or keeps."""

from __future__ import annotations

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.models import Answer, Form, Refusal, Tape
from pytest_agentbench.tools.fetching import Fetch, Page
from pytest_agentbench.tools.web_client import FetchError, Hop

WEB_FETCH = "web_fetch"
"""Who is asked, in cassettes."""


def taped_fetch(fetch: Fetch | None, tape: Tape) -> Fetch:
    """The web through a tape; without a `fetch` the tape alone. A FetchError is kept like a page."""

    async def ask(url: str) -> Page:
        if fetch is None:
            raise UnavailableError(
                "web_fetch needs pip install 'pytest-agentbench[web]', and the cassette does not have this page"
            )
        return await fetch(url)

    async def taped(url: str) -> Page:
        return await tape.play(WEB_FETCH, {"url": url}, lambda: ask(url), _FORM)

    return taped


def _write(page: Page) -> Answer:
    hops = [{"url": hop.url, "address": hop.address or "", "status": str(hop.status)} for hop in page.hops]
    hops[-1] |= {"media_type": page.media_type, "size": str(page.size), "sha256": page.sha256, "text": page.text}
    return Answer(results=tuple(hops))


def _read(answer: Answer, seconds: float) -> Page:
    results = answer.results or ()
    hops = tuple(
        Hop(each.get("url", ""), each.get("address") or None, int(each.get("status", "200"))) for each in results
    )
    last = results[-1] if results else {}
    return Page(
        hops, last.get("media_type", ""), int(last.get("size", "0")), last.get("sha256", ""), last.get("text", "")
    )


def _refusal(error: Exception) -> Refusal | None:
    return Refusal(code="fetch_error", message=str(error)) if isinstance(error, FetchError) else None


_FORM: Form[Page] = Form(_write, _read, _refusal, lambda refusal: FetchError(refusal.message))
