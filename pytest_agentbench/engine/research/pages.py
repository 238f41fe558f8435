"""The pages that a research report cites: of a scripted judge's script, of a cassette, or of the web."""

from __future__ import annotations

from pytest_agentbench.config import NetworkSettings
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.research.runs import ResearchRuns
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.taping import RESEARCH_PAGES
from pytest_agentbench.models import Answer, Form, Refusal, Tape
from pytest_agentbench.records import Case
from pytest_agentbench.research.fact.citations import canonical_url
from pytest_agentbench.research.fact.rows import Contents
from pytest_agentbench.research.scripted_pages import ScriptedPages


def cited_pages(services: Services, job: Job, case: Case, tape: Tape | None) -> Contents:
    """Nothing is fetched from where the run profile's network settings let nobody go."""
    if job.plan.research_judge().scripted and (pages := services.scripts.pages(case.case_id)):
        return ScriptedPages(pages)
    web = _Web(services.research, job.plan.run_profile.network)
    return web if tape is None or tape.mode(RESEARCH_PAGES) == "off" else _Taped(web, tape)


class _Web:
    """The session's pages, opened when the first is wanted."""

    def __init__(self, runs: ResearchRuns, network: NetworkSettings) -> None:
        self._runs, self._network = runs, network

    async def content(self, url: str) -> str:
        return await (await self._runs.pages(self._network)).content(url)


class _Taped:
    def __init__(self, pages: Contents, tape: Tape) -> None:
        self._pages, self._tape = pages, tape

    async def content(self, url: str) -> str:
        request = {"url": canonical_url(url)}
        return await self._tape.play(RESEARCH_PAGES, request, lambda: self._pages.content(url), _FORM)


def _unkept(error: Exception) -> Refusal | None:
    return None


_FORM: Form[str] = Form(
    lambda text: Answer(content=text),
    lambda answer, seconds: answer.content or "",
    _unkept,
    lambda refusal: ValueError(refusal.message),
)
