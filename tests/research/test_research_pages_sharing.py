"""Pages are fetched once: by everybody who asks in one session, and by later sessions not at all."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.page_site import PageSite, page_site

from pytest_agentbench.config import NetworkSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.research.pages import PAGES, Pages, PageSettings

SETTINGS = PageSettings(NetworkSettings(allow_private=("127.0.0.1",)))
OTHER_PROCESS = """
import asyncio, pathlib, sys
from pytest_agentbench.config import NetworkSettings
from pytest_agentbench.research.pages import Pages, PageSettings

async def main():
    async with Pages(pathlib.Path(sys.argv[1]), PageSettings(NetworkSettings(allow_private=("127.0.0.1",)))) as pages:
        print("ready", flush=True)
        sys.stdin.readline()
        print(await pages.content(sys.argv[2]), flush=True)

asyncio.run(main())
"""


def contents(output: Path | None, *urls: str, settings: PageSettings = SETTINGS) -> list[str]:
    async def ask() -> list[str]:
        async with Pages(output, settings) as pages:
            return await asyncio.gather(*map(pages.content, urls))

    return asyncio.run(ask())


def test_all_spellings_of_an_address_are_one_page_that_is_fetched_once(tmp_path: Path) -> None:
    with page_site() as site:
        page = f"{site.url}/page/1"
        spellings = (page, f"{page}#part", f" {page}?utm_source=x", f"{page}.")
        found = contents(tmp_path, *spellings, *spellings)
        assert set(found) == {"Owls\n\nAll about owls\n\npage 1"}
        assert site.seen == {"/robots.txt": 1, "/page/1": 1}


def test_the_next_session_fetches_nothing_and_failures_again(tmp_path: Path) -> None:
    with page_site() as site:
        first = contents(tmp_path, f"{site.url}/owls", f"{site.url}/missing", f"{site.url}/missing")
        assert site.seen == {"/robots.txt": 1, "/owls": 1, "/missing": 1}
        assert contents(tmp_path, f"{site.url}/owls", f"{site.url}/missing") == first[:2]
        assert site.seen == {"/robots.txt": 2, "/owls": 1, "/missing": 2}
    offline = contents(tmp_path, f"{site.url}/owls")
    assert offline == first[:1]
    [file] = (tmp_path / PAGES).glob("*/*.json")
    assert json.loads(file.read_text())["url"] == f"{site.url}/owls"


def test_a_file_that_was_cut_off_is_fetched_again(tmp_path: Path) -> None:
    with page_site() as site:
        [first] = contents(tmp_path, f"{site.url}/owls")
        [file] = (tmp_path / PAGES).glob("*/*.json")
        file.write_bytes(file.read_bytes()[:50])
        assert contents(tmp_path, f"{site.url}/owls") == [first]
        assert site.seen["/owls"] == 2


def test_what_is_kept_under_another_address_is_not_taken(tmp_path: Path) -> None:
    with page_site() as site:
        contents(tmp_path, f"{site.url}/page/1")
        [file] = (tmp_path / PAGES).glob("*/*.json")
        contents(tmp_path, f"{site.url}/page/2")
        [other] = set((tmp_path / PAGES).glob("*/*.json")) - {file}
        file.write_bytes(other.read_bytes())
        assert contents(tmp_path, f"{site.url}/page/1") == ["Owls\n\nAll about owls\n\npage 1"]


def test_a_folder_that_takes_no_files_costs_the_next_session_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "research").write_text("in the way")
    with page_site() as site, caplog.at_level(logging.WARNING):
        found = contents(tmp_path, f"{site.url}/page/1", f"{site.url}/page/2", f"{site.url}/page/1")
        assert found[0] == found[2] == "Owls\n\nAll about owls\n\npage 1"
        assert site.seen["/page/1"] == 1
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "pages cannot be kept there, so they will be fetched again: Not a directory"
    ]


@pytest.mark.slow
def test_processes_beside_each_other_fetch_once(tmp_path: Path) -> None:
    with page_site() as site:
        command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path), f"{site.url}/slow"]
        running = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
        ]
        for each in running:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in running:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        site.slow_asked.wait(20)
        site.gate.set()
        said = [each.communicate()[0] for each in running]
        assert said == ["Owls\n\nAll about owls\n\nslow\n"] * 3
        assert site.seen["/slow"] == 1


def test_whoever_gives_up_leaves_the_page_to_the_others(tmp_path: Path) -> None:
    async def ask(site: PageSite) -> str:
        async with Pages(tmp_path, SETTINGS) as pages:
            first = asyncio.create_task(pages.content(f"{site.url}/slow"))
            second = asyncio.create_task(pages.content(f"{site.url}/slow"))
            await asyncio.to_thread(site.slow_asked.wait, 20)
            first.cancel()
            await asyncio.wait([first])
            site.gate.set()
            return await second

    with page_site() as site:
        assert asyncio.run(ask(site)) == "Owls\n\nAll about owls\n\nslow"
        assert site.seen["/slow"] == 1


def test_a_session_that_is_left_leaves_nothing_running(tmp_path: Path) -> None:
    async def leave(site: PageSite) -> set[asyncio.Task[object]]:
        async with Pages(tmp_path, SETTINGS) as pages:
            asking = asyncio.create_task(pages.content(f"{site.url}/slow"))
            await asyncio.to_thread(site.slow_asked.wait, 20)
        await asyncio.wait([asking])
        assert asking.cancelled()
        return asyncio.all_tasks() - {asyncio.current_task()}

    with page_site() as site:
        assert asyncio.run(leave(site)) == set()


def test_connections_are_used_again_and_few_at_once(tmp_path: Path) -> None:
    with page_site() as site:
        settings = PageSettings(SETTINGS.network, concurrency=3)
        contents(tmp_path, *(f"{site.url}/page/{number}" for number in range(30)), settings=settings)
        assert site.most <= 3
        assert site.connections <= 4
        agents = {headers["User-Agent"] for headers in site.headers}
    assert agents == {"pytest-agentbench (research: reads pages that reports cite)"}


def test_a_crawl_delay_is_kept(tmp_path: Path) -> None:
    with page_site(b"User-agent: *\nCrawl-delay: 0.2") as site:
        begun = time.monotonic()
        contents(tmp_path, *(f"{site.url}/page/{number}" for number in range(4)))
        assert time.monotonic() - begun >= 0.6


def test_a_missing_library_is_told_once_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(UnavailableError, match=r"needs pypdf: pip install 'pytest-agentbench\[web\]', or set JINA_API"):
        contents(tmp_path, "http://127.0.0.1/")


def test_network_settings_that_deny_the_web_deny_pages(tmp_path: Path) -> None:
    denied = PageSettings(NetworkSettings(web="deny"))
    with pytest.raises(UnavailableError, match="fetching the pages that are cited is kept from the web"):
        contents(tmp_path, "http://127.0.0.1/", settings=denied)
