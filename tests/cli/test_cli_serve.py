"""`agentbench serve` as a process prints its address, answers, and ends cleanly."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import pytest

RUN = """
import sys
from pytest_agentbench.cli import main
sys.exit(main(["serve", *sys.argv[1:]]))
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", RUN, *arguments], stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "demo.yaml").write_text("schema_version: 1\nreplies: [{when: Hi, content: Hello.}]")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_on_loopback_until_stopped(folder, stop):
    import openai

    with start(str(folder), "--port", "0") as process:
        base_url = re.search(r"base_url: (http://127\.0\.0\.1:\d+/v1)", process.stdout.readline())[1]
        assert f"export OPENAI_BASE_URL={base_url}" in process.stdout.readline()
        with openai.OpenAI(base_url=base_url, api_key="none") as client:
            reply = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Hi"}])
            assert reply.choices[0].message.content == "Hello."
            process.send_signal(stop)  # while a connection is open
            _, errors = process.communicate(timeout=10)
    assert "Traceback" not in errors
    assert process.returncode == (0 if stop == signal.SIGINT else -stop)


@pytest.mark.slow
def test_only_programs_of_this_machine_and_its_containers_are_answered(folder):
    import httpx2

    with start(str(folder), "--port", "0") as process:
        base_url = re.search(r"base_url: (\S+)", process.stdout.readline())[1]
        with httpx2.Client() as client:

            def status(**headers: str) -> int:
                body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
                return client.post(f"{base_url}/chat/completions", json=body, headers=headers).status_code

            for host in ("localhost:9000", "127.0.0.1", "host.docker.internal:8765", "host.containers.internal"):
                assert status(Host=host) == 200
            for host in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost:80x", "10.0.0.7"):
                assert status(Host=host) == 403
            assert status(Host="localhost:1", Origin="http://localhost:1") == 200
            for origin in ("https://evil.example", "http://localhost:2", "null", "file://"):
                assert status(Host="localhost:1", Origin=origin) == 403
        process.terminate()
        process.communicate(timeout=10)


def refusal(*arguments: str) -> str:
    with start(*arguments) as process:
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 2
    return errors


@pytest.mark.slow
def test_nothing_to_serve(tmp_path):
    assert "no such file or folder" in refusal(str(tmp_path / "nowhere"))
    assert "add a demo.yaml next to a test.yaml" in refusal(str(tmp_path))


@pytest.mark.slow
def test_a_port_that_is_taken(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1:{port}" in refusal(str(folder), "--port", port)
    assert "choose another --port" in refusal(str(folder), "--port", "99999")
