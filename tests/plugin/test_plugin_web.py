"""Sessions whose agents fetch pages of the web: a script's, a cassette's, and real ones on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from support.bench import check
from support.fault_endpoint import FaultEndpoint


class Site(BaseHTTPRequestHandler):
    """One page, which leads to another."""

    def do_GET(self):
        self.server.seen.append(self.path)
        if self.path == "/":
            self.send_response(301)
            self.send_header("Location", "/page")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>France</title><p>Its capital is <b>Paris</b>.")

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def site():
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url_of(site):
    return f"http://127.0.0.1:{site.server_port}/"


def fetching(bench, url, **fields):
    """A case whose agent may fetch pages, and a scripted one does fetch `url`."""
    tools = {"llm_probe": {"tools": ["web_fetch"]}}
    messages = [{"role": "user", "content": "The capital of France?"}]
    bench.case("one", input={"messages": messages, "context": tools}, **fields)
    calls = [{"name": "web_fetch", "arguments": {"url": url}}]
    steps = [{"tool_calls": calls}, {"content": "It says Paris."}]
    bench.write(
        "cases/one/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}], "web_fetch": {url: "Paris!"}}
    )


def trace(bench):
    [path] = (bench.path / "outputs" / "runs").rglob("run_1.json")
    return json.loads(path.read_text())["trace"]


def fetched(bench):
    """The `web_fetch` events of the one run, and what its tool answered."""
    events = trace(bench)
    facts = [event["data"] for event in events if event["type"] == "runner" and event["name"] == "web_fetch"]
    return facts, [event["content"] for event in events if event["type"] == "tool_result"]


def test_a_script_has_pages(bench):
    fetching(bench, "https://example.org/France")
    finished = bench.run("--model=demo")
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    facts, [answer] = fetched(bench)
    assert answer == "https://example.org/France\nHTTP 200, text/plain, 6 bytes\n\nParis!"
    assert facts[0]["requests"] == [{"url": "https://example.org/France", "address": None, "status": 200}]


def test_a_page_that_the_script_lacks_is_named(bench):
    fetching(bench, "https://example.org/a")
    path = bench.path / "cases/one/demo.yaml"
    path.write_text(path.read_text().replace("https://example.org/a: ", "https://example.org/b: "))
    bench.run("--model=demo")
    _, [answer] = fetched(bench)
    assert "no scripted page 'https://example.org/a' in case 'one'; add it to web_fetch in" in answer


def test_the_profile_may_keep_agents_from_the_web(bench):
    fetching(bench, "https://example.org/")
    bench.profile("off", network={"web": "deny"})
    finished = bench.run("--model=demo", "--agentbench-run-profile=off")
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert (
        "web_fetch has no access to the web: the run profile has `network: {web: deny}`"
        in finished.runs["one[demo]"]["message"]
    )


def test_other_hosts_than_the_profiles_are_refused_to_scripts_too(bench):
    fetching(bench, "https://example.org/")
    bench.profile("few", network={"hosts": ["example.com"]})
    bench.run("--model=demo", "--agentbench-run-profile=few")
    facts, [answer] = fetched(bench)
    assert facts == []
    assert (
        answer == "error: web_fetch: RefusedError: example.org is not an allowed host of the run profile (example.com)"
    )


@pytest.mark.slow
def test_the_policy_is_part_of_runs_that_may_reach_the_web(bench):
    fetching(bench, "https://example.org/")
    bench.case("two")
    bench.write("cases/two/demo.yaml", {"schema_version": 1, "replies": [{"content": "Paris"}]})

    def fingerprints(**network):
        bench.profile("net", network=network)
        finished = bench.run("--model=demo", "--agentbench-run-profile=net")
        assert set(finished.outcomes.values()) == {"passed"}, finished.text
        return {row["case_id"]: row["fingerprint"] for row in finished.runs.values()}

    default, public, few = fingerprints(), fingerprints(web="public"), fingerprints(hosts=["example.org"])
    assert public == default
    assert few["one"] != default["one"]
    assert few["two"] == default["two"]


def test_a_profile_with_a_wrong_policy_is_an_error_with_its_line(bench):
    fetching(bench, "https://example.org/")
    bench.profile("net", network={"hosts": ["https://example.org"]})
    finished = bench.run("--model=demo", "--agentbench-run-profile=net")
    assert "net.yaml:" in finished.text
    assert "without scheme, port and path" in finished.text


def calls(url):
    function = {"name": "web_fetch", "arguments": json.dumps({"url": url})}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


@pytest.mark.slow
def test_pages_are_recorded_and_replayed(bench, site, monkeypatch):
    url = url_of(site)

    def answer(body):
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        return {"role": "assistant", "content": results[0]} if results else calls(url)

    fetching(bench, url)
    bench.profile("net", network={"allow_private": ["127.0.0.1"]})
    options = ("--model=gpt", "--agentbench-run-profile=net", "--agentbench-no-reuse")
    with FaultEndpoint(answer=answer) as endpoint:
        bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        recorded = bench.run(*options, "--agentbench-cassettes=record")
        assert recorded.outcomes == {"one[gpt]": "passed"}, recorded.text
    seen = fetched(bench)
    assert seen[0][0]["requests"] == [
        {"url": url, "address": "127.0.0.1", "status": 301},
        {"url": f"{url}page", "address": "127.0.0.1", "status": 200},
    ]
    assert "France\n\nIts capital is Paris." in seen[1][0]
    assert site.seen == ["/", "/page"]
    cassette = yaml.safe_load((bench.path / "cases/one/cassettes/gpt-r1.yaml").read_text())
    assert [each["asked"] for each in cassette["exchanges"]] == ["gpt", "web_fetch", "gpt"]
    replayed = bench.run(*options, "--agentbench-cassettes=replay")
    assert replayed.outcomes == {"one[gpt]": "passed"}, replayed.text
    assert fetched(bench) == seen
    assert len(site.seen) == 2


def test_private_addresses_are_refused_by_default(bench, site):
    url = url_of(site)

    def answer(body):
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        return {"role": "assistant", "content": results[0]} if results else calls(url)

    fetching(bench, url, deterministic_checks=[check("refused", kind="regex_match", pattern="is refused")])
    with FaultEndpoint(answer=answer) as endpoint:
        bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        assert bench.run("--model=gpt").outcomes == {"one[gpt]": "passed"}
    assert site.seen == []
