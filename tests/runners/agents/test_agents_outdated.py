"""`agentbench agents outdated` asks the registries that npm and uv would ask, here a loopback one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from support.bench import Bench

from pytest_agentbench.cli import main
from pytest_agentbench.config.agent_file import Install
from pytest_agentbench.runners.agents.registries import find_package, is_older

NPM, PYPI = "/npm/-/package/%40openai%2Fcodex/dist-tags", "/simple/mini-swe-agent/"


@contextmanager
def registry(replies: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a registry with these replies by path, and the paths that it was asked."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            body = replies.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", paths
        finally:
            server.shutdown()
            thread.join()


def ask(monkeypatch: pytest.MonkeyPatch, bench: Bench, url: str) -> int:
    monkeypatch.chdir(bench.path)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", url.replace("//", "//user:secret@") + "/npm/")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{url}/simple")
    return main(["agents", "outdated", "codex", "mini_swe_agent"])


def test_newer_versions_are_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = ["1.0", "999.10.0", "999.9.0", "1000.0.0rc1"]
    replies = {NPM: json.dumps({"latest": "0.0.1", "alpha": "999.0.0-1"}), PYPI: json.dumps({"versions": versions})}
    with registry(replies) as (url, paths):
        assert ask(monkeypatch, bench, url) == 1
    assert sorted(paths) == [NPM, PYPI]
    shown = capsys.readouterr().out
    first, _, codex, mini = shown.splitlines()
    assert first == f"asking {url} for the versions of 2 packages"
    assert codex.endswith(" 0.0.1")
    assert mini.split()[-2:] == ["999.10.0", "outdated"]


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", "HTTP 404"),
        ("<html>", "the reply is no JSON"),
        ("[" * 100_000, "the reply is no JSON"),
        ('{"versions": ["1.0rc1", 3]}', "the reply names no version"),
        ('{"versions": 3}', "the reply names no version"),
        ('{"latest": 3}', "the reply names no version"),
    ],
    ids=["missing", "html", "deep", "versions", "number", "latest"],
)
def test_a_registry_without_an_answer_is_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reply: str, problem: str
) -> None:
    with registry({NPM: '{"latest": "0.0.1"}', PYPI: reply}) as (url, _):
        assert ask(monkeypatch, bench, url) == 1
    problem = (
        "HTTP 404" if not reply else "the reply is no JSON" if reply[0] in "<" or len(reply) > 99 else "no version"
    )
    assert problem in capsys.readouterr().out.splitlines()[-1]


def test_a_registry_that_is_down_is_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with registry({}) as (url, _):
        pass
    assert ask(monkeypatch, bench, url) == 1
    shown = capsys.readouterr().out
    assert shown.count("no answer: ") == 2
    assert "secret" not in shown


def test_names_are_those_of_the_registry() -> None:
    package = find_package(Install(pypi="My.Agent==1.2"), {})
    assert (package.name, package.pinned, package.url) == ("My.Agent", "1.2", "https://pypi.org/simple/my-agent/")
    assert find_package(Install(npm="tiny@1.0.0"), {}).url == "https://registry.npmjs.org/-/package/tiny/dist-tags"


def test_versions_are_compared_as_numbers() -> None:
    assert is_older("0.9.0", "0.10.0")
    assert not is_older("2.1.332", "2.1.332")
    assert not is_older("1.10", "1.9.9")
    assert is_older("1.0.0-beta", "1.0.0")
