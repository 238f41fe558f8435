"""Pages are fetched once: by everybody who asks in one session, and by later sessions not at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.other_user import as_nobody, needs_root
from support.page_site import PageSite, page_site
from support.small_disk import small_disk

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.packs.research.fact import direct_pages as direct
from pytest_agentbench.packs.research.fact.direct_pages import Direct, PageSettings
from pytest_agentbench.packs.research.fact.pages import PAGES, KeptPages, Pages

SETTINGS = PageSettings(NetworkSettings(allow_private=("127.0.0.1",)))
OTHER_PROCESS = """
import asyncio, pathlib, sys
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.packs.research.fact.direct_pages import PageSettings
from pytest_agentbench.packs.research.fact.pages import Pages

async def main():
    async with Pages(pathlib.Path(sys.argv[1]), PageSettings(NetworkSettings(allow_private=("127.0.0.1",)))) as pages:
        print("ready", flush=True)
        sys.stdin.readline()
        for content in await asyncio.gather(*map(pages.content, sys.argv[2:])):
            print(content, flush=True)

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
        texts = contents(tmp_path, *spellings, *spellings)
        assert set(texts) == {"Owls\n\nAll about owls\n\npage 1"}
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


@pytest.mark.slow
def test_a_stored_page_of_another_address_is_not_reused(tmp_path: Path) -> None:
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
        texts = contents(tmp_path, f"{site.url}/page/1", f"{site.url}/page/2", f"{site.url}/page/1")
        assert texts[0] == texts[2] == "Owls\n\nAll about owls\n\npage 1"
        assert site.seen["/page/1"] == 1
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "pages cannot be kept there, so they will be fetched again: Not a directory"
    ]


@contextmanager
def beside(output: Path, many: int, *urls: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that ask for pages when they read a line."""
    command = [sys.executable, "-c", OTHER_PROCESS, str(output), *urls]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(many)]
    try:
        for each in running:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        yield running
    finally:
        for each in running:
            each.kill()
            each.communicate()


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.slow
def test_concurrent_processes_fetch_a_page_once(tmp_path: Path) -> None:
    with page_site() as site, beside(tmp_path, 3, f"{site.url}/slow") as running:
        for each in running:
            begin(each)
        site.slow_asked.wait(20)
        site.gate.set()
        output = [each.communicate()[0] for each in running]
        assert output == ["Owls\n\nAll about owls\n\nslow\n"] * 3
        assert site.seen["/slow"] == 1


@pytest.mark.slow
def test_processes_that_want_many_pages_fetch_each_once(tmp_path: Path) -> None:
    with page_site() as site:
        urls = [f"{site.url}/page/{number}" for number in range(40)]
        with beside(tmp_path, 2, *urls) as running:
            for each in running:
                begin(each)
            output = [each.communicate()[0] for each in running]
        assert output[0] == output[1] == "".join(f"Owls\n\nAll about owls\n\npage {number}\n" for number in range(40))
        assert {site.seen[f"/page/{number}"] for number in range(40)} == {1}


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_its_pages_to_the_others(tmp_path: Path) -> None:
    with page_site() as site, beside(tmp_path, 1, f"{site.url}/owls", f"{site.url}/slow") as [other]:
        begin(other)
        site.slow_asked.wait(20)
        while not list((tmp_path / PAGES).glob("*/*.json")):
            assert other.poll() is None, other.communicate()[0]
            time.sleep(0.01)
        other.kill()
        site.gate.set()
        texts = contents(tmp_path, f"{site.url}/owls", f"{site.url}/slow")
        assert [each.rpartition("\n")[2] for each in texts] == ["They hunt mice.", "slow"]
        assert (site.seen["/owls"], site.seen["/slow"]) == (1, 2)


@needs_root
def test_a_folder_that_is_not_ones_own_is_read_and_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = KeptPages(tmp_path / PAGES)
    with page_site() as site:
        contents(tmp_path, f"{site.url}/page/1")
        key = kept.key(f"{site.url}/page/1", Direct.version)
    kept.close()
    above = [each for each in tmp_path.parents if each.name.startswith(("popen-gw", "pytest-"))]
    for folder in (tmp_path, *above, *tmp_path.rglob("*/")):
        folder.chmod(0o755)

    async def fetch(url: str) -> str:
        return "fetched"

    with as_nobody(), caplog.at_level(logging.WARNING):
        others = KeptPages(tmp_path / PAGES)
        assert others.find(key) == "Owls\n\nAll about owls\n\npage 1"
        assert asyncio.run(others.get("0" * 64, "http://127.0.0.1/", fetch)) == ("fetched", False)
        others.close()
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["Permission denied"]


def test_a_full_disk_costs_the_next_session_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with page_site() as site, small_disk(tmp_path / "disk") as _, caplog.at_level(logging.WARNING):
        contents(tmp_path / "disk", f"{site.url}/page/1")
        with contextlib.suppress(OSError), open(tmp_path / "disk/filling", "wb", 0) as file:
            while file.write(bytes(4096)):
                pass
        texts = contents(tmp_path / "disk", *(f"{site.url}/page/{number}" for number in (1, 2, 3, 2)))
        assert [each.rpartition("\n")[2] for each in texts] == ["page 1", "page 2", "page 3", "page 2"]
        assert [site.seen[f"/page/{number}"] for number in (1, 2, 3)] == [1, 1, 1]
        assert len(list((tmp_path / "disk" / PAGES).glob("*/*"))) == 1
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["No space left on device"]


@pytest.mark.parametrize(
    "planted",
    [
        "a pipe",
        "another's words",
        "no page at all",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("a folder", "a link to itself")),
    ],
)
def test_a_planted_file_in_place_of_a_page_is_not_used(tmp_path: Path, planted: str) -> None:
    with page_site() as site:
        [first] = contents(tmp_path, f"{site.url}/owls")
        [file] = (tmp_path / PAGES).glob("*/*.json")
        said = json.loads(file.read_text())
        file.unlink()
        if planted == "a pipe":
            os.mkfifo(file)
        elif planted == "a folder":
            file.mkdir()
        elif planted == "a link to itself":
            file.symlink_to(file.name)
        else:
            file.write_text(json.dumps({**said, "content": 7} if planted == "no page at all" else {**said, "key": "0"}))
        assert contents(tmp_path, f"{site.url}/owls") == [first]
        assert site.seen["/owls"] == 2


def test_a_page_that_begins_like_a_failure_is_none(tmp_path: Path) -> None:
    with page_site() as site:
        for _ in range(2):
            assert contents(tmp_path, f"{site.url}/claims-failure") == [" scrape failed: so it says"]
        assert site.seen["/claims-failure"] == 1


@pytest.mark.slow
def test_bodies_that_wait_to_be_read_fill_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_MOST_UNREAD", 1)
    with page_site() as site:
        texts = contents(tmp_path, *(f"{site.url}/page/{number}" for number in range(20)))
    assert [each.rpartition(" ")[2] for each in texts] == [str(number) for number in range(20)]


def test_a_page_that_takes_long_to_read_keeps_no_other_from_being_fetched(tmp_path: Path) -> None:
    async def ask(site: PageSite) -> str:
        async with Pages(tmp_path, PageSettings(SETTINGS.network, concurrency=1)) as pages:
            long = asyncio.create_task(pages.content(f"{site.url}/attributes"))
            texts = await pages.content(f"{site.url}/page/1")
            assert not long.done()
        await asyncio.wait([long])
        return texts

    with page_site() as site:
        assert asyncio.run(ask(site)).endswith("page 1")


def test_a_cancelled_request_leaves_the_download_to_other_waiters(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_connections_are_used_again_and_few_at_once(tmp_path: Path) -> None:
    with page_site() as site:
        settings = PageSettings(SETTINGS.network, concurrency=3)
        contents(tmp_path, *(f"{site.url}/page/{number}" for number in range(30)), settings=settings)
        assert site.most <= 3
        assert site.connections <= 4
        agents = {headers["User-Agent"] for headers in site.headers}
    assert agents == {"pytest-agentbench (research: reads pages that reports cite)"}


@pytest.mark.slow
def test_a_crawl_delay_is_kept(tmp_path: Path) -> None:
    with page_site(b"User-agent: *\nCrawl-delay: 0.1") as site:
        begun = time.monotonic()
        contents(tmp_path, *(f"{site.url}/page/{number}" for number in range(4)))
        assert time.monotonic() - begun >= 0.3


def test_a_missing_library_is_reported_once_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(UnavailableError, match=r"needs pypdf: pip install 'pytest-agentbench\[web\]', or set JINA_API"):
        contents(tmp_path, "http://127.0.0.1/")


def test_network_settings_that_deny_the_web_deny_pages(tmp_path: Path) -> None:
    denied = PageSettings(NetworkSettings(web="deny"))
    with pytest.raises(UnavailableError, match="fetching the pages that are cited has no access to the web"):
        contents(tmp_path, "http://127.0.0.1/", settings=denied)
