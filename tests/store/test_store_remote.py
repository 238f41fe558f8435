from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.s3_server import S3Server
from support.stored import Stored
from test_store_artifacts import artifact, evaluation

from pytest_agentbench.collection.store_plugins import StoreWait
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.errors import InfrastructureError, UnreachableError
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.options import parse_store
from pytest_agentbench.records.run import OutputArtifact
from pytest_agentbench.secrets.redaction import strip_credentials
from pytest_agentbench.store.artifacts import Store
from pytest_agentbench.store.documents import find_whole_archive
from pytest_agentbench.store.remote import BATCH, Remote, Upload
from pytest_agentbench.store.remote_results import pull_evaluation, pull_run, share_evaluation, share_run

RUN_PROFILE = RunProfile(schema_version=1, run_profile_id="p", title="P")
EVALUATION_PROFILE = EvaluationProfile(schema_version=1, evaluation_profile_id="e", title="E")
INPUT = b'{"messages":["hello"]}'
KEY, VERDICT = fingerprint(INPUT), "e" * 64


class Machine:
    """An output folder in front of a store, with the store of one model. `told` are its warnings."""

    def __init__(self, output: Path, url: str, suite: str | None = None) -> None:
        self.store = Store(output, remote=url)
        self.told: list[str] = []
        self.store.warn = self.told.append
        self.model_store = self.store.of_model(suite, RUN_PROFILE, EVALUATION_PROFILE, "gpt")
        self.output, self.remote = output, self.store.remote
        assert self.remote is not None
        self.remote.open()

    def run(self, text: str = "4", **fields):
        """A run made here and brought to the store."""
        made = artifact(text, **{"key": KEY, **fields})
        self.model_store.write_run(made, INPUT)
        share_run(self.model_store, made, made=True)
        return made

    def judge(self, run, **fields):
        given = {"judged": True, "fingerprint": VERDICT, "run_id": run.run_id, **fields}
        self.model_store.write_evaluation(run.repetition, made := evaluation(**given), [{"text": "judge\nthis"}])
        share_evaluation(self.model_store, run, made, made=True)
        return made

    def pull(self, *, case_id="sum", unsuccessful=False, counts=lambda run: True):
        key = (self.model_store, case_id, 1, KEY, INPUT)
        return asyncio.run(pull_run(*key, counts=counts, unsuccessful=unsuccessful))

    def pull_verdict(self, run) -> bool:
        return asyncio.run(pull_evaluation(self.model_store, run, VERDICT))

    def close(self) -> None:
        assert self.remote.close() is None


@pytest.fixture
def machine(tmp_path, url):
    """Makes machines; those that are still open at the end are closed."""
    with contextlib.ExitStack() as stack:

        def make(name: str, **fields) -> Machine:
            made = Machine(tmp_path / name, url, **fields)
            stack.callback(made.remote.close)
            return made

        yield make


@pytest.fixture
def shared(tmp_path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def url(shared) -> str:
    return f"file://{shared}"


def test_a_run_and_its_verdict_come_to_another_machine(tmp_path, machine):
    first, second = machine("a"), machine("b", suite="smoke")
    assert second.pull() is None
    verdict = first.judge(run := first.run())
    first.close()
    assert second.pull() == run
    assert second.pull_verdict(run)
    assert second.model_store.find_run("sum", 1, KEY)[0] == run
    assert second.model_store.find_evaluation(run, VERDICT)[0] == verdict
    prompt = Stored(tmp_path / "b", f"{second.model_store.evaluations}/sum/judge_1.prompt.user.json")
    assert prompt.json() == [{"text": "judge\nthis"}]
    covered = Stored(tmp_path / "b", f"{second.model_store.runs}/sum/run_1.fingerprint_input.json")
    assert covered.read_bytes() == INPUT
    assert second.told == []


def test_a_run_that_does_not_count_stays_where_it_is(machine):
    first, second = machine("a"), machine("b")
    late = first.run(status="timed_out")
    first.close()
    assert second.pull() is None
    assert second.pull(unsuccessful=True, counts=lambda run: run.status == "failed") is None
    assert second.pull(unsuccessful=True) == late


def test_a_success_and_a_failure_of_one_fingerprint_do_not_meet(machine):
    first, second, third = map(machine, "abc")
    good = first.run(run_id="good")
    first.close()
    second.run(run_id="bad", status="provider_error")
    second.close()
    assert third.pull(unsuccessful=True) == good


def test_a_verdict_on_another_run_is_not_taken(machine):
    first, second = machine("a"), machine("b")
    first.judge(first.run())
    first.close()
    assert not second.pull_verdict(artifact(key=KEY, run_id="another"))
    assert not second.pull_verdict(artifact(key=KEY, run_id="r1", case_id="other"))


def test_an_object_that_contradicts_its_name_is_not_used(tmp_path, machine, shared):
    first = machine("a")
    first.judge(run := first.run())
    first.close()
    (path,), (verdict,) = shared.rglob("run_1.*.jsonl"), shared.rglob("final_result_1.*.jsonl")
    good, judged = path.read_bytes(), verdict.read_bytes()
    second = machine("b")
    for old, new in ((b'"case_id":"sum"', b'"case_id":"other"'), (b'"repetition":1', b'"repetition":7')):
        path.write_bytes(good.replace(old, new))
        assert second.pull() is None
    for run_id in ("../../x", "a/b", ""):
        path.write_bytes(good.replace(b'"run_id":"r1"', f'"run_id":"{run_id}"'.encode()))
        assert second.pull() is None
    verdict.write_bytes(judged.replace(b'"case_id":"sum"', b'"case_id":"other"'))
    assert not second.pull_verdict(run)
    assert not (tmp_path / "b").exists()


def test_errors_are_no_verdict(tmp_path, machine, shared, url):
    first = machine("a")
    first.judge(first.run(), outcome="error", fingerprint=None)
    first.close()
    assert not (shared / "evaluations").exists()


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:100], lambda content: b"\0" * 64])
def test_a_damaged_object_counts_as_missing_and_is_replaced(tmp_path, machine, shared, url, damage):
    first = machine("a")
    first.run()
    first.close()
    (path,) = shared.rglob("run_1.*.jsonl")
    path.write_bytes(damage(path.read_bytes()))
    second = machine("b")
    assert second.pull() is None
    assert second.told[0].startswith(f"{url}/runs/run_profile_")
    assert "cannot be read, so it counts as missing" in second.told[0]
    again = second.run(run_id="again")
    second.close()
    assert machine("c").pull() == again


def test_an_object_of_a_newer_version_stops_the_case(tmp_path, machine, shared, url):
    first = machine("a")
    first.run()
    first.close()
    (path,) = shared.rglob("run_1.*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"schema_version":2', b'"schema_version":7'))
    with pytest.raises(InfrastructureError, match=r"run_1\.\w+\.jsonl: found schema_version 7, expected at most 2"):
        machine("b").pull()


def test_the_archive_of_a_run_is_downloaded_with_the_run(tmp_path, machine):
    first, second = machine("a"), machine("b", suite="smoke")
    path = first.model_store.write_workspace("sum", 1, "r1", lambda file: file.write(b"packed") and None)
    first.run(workspace=path)
    first.close()
    run = second.pull()
    assert run.workspace.startswith("runs/suit_smoke/")
    assert find_whole_archive(tmp_path / "b", run.workspace).read_bytes() == b"packed"
    assert second.model_store.find_run("sum", 1, KEY)[0] == run


def test_a_run_whose_archive_is_gone_comes_without(tmp_path, machine, shared):
    first, second = machine("a"), machine("b")
    first.run(workspace=first.model_store.write_workspace("sum", 1, "r1", lambda file: file.write(b"packed") and None))
    first.close()
    for file in shared.rglob("*.tar"):
        file.unlink()
    assert find_whole_archive(tmp_path / "b", second.pull().workspace) is None


def test_a_workspace_that_leads_elsewhere_is_neither_fetched_nor_sent(tmp_path, machine, shared):
    (tmp_path / "secret").write_text("mine")
    digest = hashlib.sha256(b"mine").hexdigest()[:16]
    (tmp_path / f"workspace.r1.{digest}.tar").write_text("mine")
    for path in ("../secret", f"../workspace.r1.{digest}.tar", f"runs/../../workspace.r1.{digest}.tar"):
        first = machine("a")
        first.run(workspace=path)
        first.close()
        second = machine("b")
        share_run(second.model_store, second.pull(), made=True)
        second.close()
        assert [file.suffix for file in shared.rglob("run_1*")] == [".jsonl"]
    assert len(list(tmp_path.rglob("*.tar"))) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and FIFOs")
@pytest.mark.parametrize("place", ["link", "folder link", "fifo", "folder"])
@pytest.mark.parametrize("suffix", [".jsonl", ".tar", "verdict"])
def test_an_object_that_is_no_plain_file_counts_as_missing(tmp_path, machine, shared, url, place, suffix):
    first, second = machine("a"), machine("b")
    path = first.model_store.write_workspace("sum", 1, "r1", lambda file: file.write(b"packed") and None)
    first.judge(run := first.run(workspace=path))
    first.close()
    (file,) = shared.rglob("final_result_1*" if suffix == "verdict" else f"run_1*{suffix}")
    aside = tmp_path / "aside"
    if place == "folder link":
        shutil.copytree(file.parent, aside)
        shutil.rmtree(file.parent)
        file.parent.symlink_to(aside)
    else:
        file.rename(aside)
        make = {"link": partial(file.symlink_to, aside), "fifo": partial(os.mkfifo, file), "folder": file.mkdir}
        make[place]()
    if suffix == "verdict":
        assert not second.pull_verdict(run)
    else:
        assert second.pull() is None
    [warning] = second.told
    assert warning.startswith(f"{url}/{file.relative_to(shared).as_posix()[:40]}")
    found = "a folder" if place == "folder" else "a pipe" if place == "fifo" else "a link"
    assert f"found {found}" in warning
    assert "counts as missing" in warning


@pytest.mark.parametrize("kept", ["workspace", "output"])
def test_a_kept_object_whose_content_does_not_have_the_hash_of_its_name_makes_the_run_anew(machine, shared, kept):
    first, second = machine("a"), machine("b")
    if kept == "workspace":
        first.run(
            workspace=first.model_store.write_workspace("sum", 1, "r1", lambda file: file.write(b"packed") and None)
        )
    else:
        uri = first.model_store.write_output("sum", 1, "r1", "report.md", b"packed")
        left = OutputArtifact(artifact_id="out/report.md", artifact_type="workspace_file", uri=uri)
        first.run(output_artifacts=(left,))
    first.close()
    (file,) = (path for path in shared.rglob("run_1*") if path.suffix != ".jsonl")
    file.write_bytes(b"forged")
    assert second.pull() is None
    [warning] = second.told
    assert f"{file.name}: its content does not have the SHA-256 of its name" in warning
    again = second.run(run_id="again")
    second.close()
    assert machine("c").pull() == again


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_no_object_is_written_through_a_link(tmp_path, machine, shared):
    (aside := tmp_path / "aside").mkdir()
    first = machine("a")
    (shared / "runs").symlink_to(aside)
    first.run()
    assert "found a link" in first.remote.close()
    assert not [*aside.iterdir()]


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_link_in_the_place_of_an_object_is_replaced_by_an_offer(tmp_path, machine, shared):
    first = machine("a")
    run = first.run()
    first.close()
    (file,) = shared.rglob("run_1*.jsonl")
    file.rename(tmp_path / "aside")
    file.symlink_to(tmp_path / "aside")
    second = machine("a")
    share_run(second.model_store, run, made=False)
    second.close()
    assert not file.is_symlink()
    assert machine("b").pull() == run


def test_single_files_that_a_run_left_come_with_it_too(tmp_path, machine, shared):
    first, second = machine("a"), machine("b", suite="smoke")
    uri = first.model_store.write_output("sum", 1, "r1", "Mein Bericht.md", b"# Report")
    left = OutputArtifact(artifact_id="out/Mein Bericht.md", artifact_type="workspace_file", uri=uri)
    elsewhere = left.model_copy(update={"uri": "../secret"})
    first.run(output_artifacts=(left, elsewhere))
    first.close()
    (tmp_path / "secret").write_text("mine")
    run = second.pull()
    assert run.output_artifacts[0].uri.startswith("runs/suit_smoke/")
    assert (tmp_path / "b" / run.output_artifacts[0].uri).read_bytes() == b"# Report"
    assert run.output_artifacts[1] == elsewhere
    assert len(list(shared.rglob("run_1*"))) == 2
    assert second.model_store.find_run("sum", 1, KEY)[0] == run


# -- what is offered


def parcels(count: int, text: str, prefix: str = "runs/p") -> list[Upload]:
    return [Upload(prefix, ((f"{prefix}/case{n}/run_1.jsonl", text.encode),)) for n in range(count)]


@pytest.mark.parametrize("count", [1, BATCH - 1, BATCH, 3 * BATCH + 5])
def test_offers_go_only_where_nothing_is(url, shared, count):
    remote = opened(url)
    for parcel in parcels(count, "first")[::2]:
        remote.send(parcel)
    assert remote.close() is None
    remote = opened(url)
    for parcel in parcels(count, "second"):
        remote.offer(parcel)
    assert remote.close() is None
    found = {path.parent.name: path.read_text() for path in (shared / "runs").rglob("*.jsonl")}
    assert found == {f"case{n}": "second" if n % 2 else "first" for n in range(count)}


def test_files_that_are_gone_before_their_upload_are_left_out(url, shared):
    remote = opened(url)
    remote.send(Upload("runs/p", (("runs/p/archive.tar", lambda: None), ("runs/p/run.jsonl", lambda: b"run"))))
    remote.send(Upload("runs/p", (("runs/p/gone.jsonl", lambda: None),)))
    assert remote.close() is None
    assert [path.name for path in (shared / "runs").rglob("*")] == ["p", "run.jsonl"]


def test_a_long_upload_is_reported_once(url, shared, monkeypatch):
    monkeypatch.setattr("pytest_agentbench.store.remote.PATIENCE", 0.01)
    remote, go_on, said = opened(url), threading.Event(), []

    def say(text: str) -> None:
        said.append(text)
        go_on.set()

    remote.send(Upload("runs/p", (("runs/p/late.jsonl", lambda: b"late" if go_on.wait(60) else None),)))
    for parcel in parcels(BATCH, "more"):
        remote.offer(parcel)
    assert remote.close(say) is None
    assert len(said) == 1
    assert re.match(rf"waiting until \d+ results? (is|are) in the store {url}; after Ctrl-C", said[0])
    assert (shared / "runs/p/late.jsonl").read_text() == "late"


def test_ctrl_c_ends_the_wait_and_reports_unsent_results(url, monkeypatch):
    monkeypatch.setattr("pytest_agentbench.store.remote.PATIENCE", 0.01)
    remote, go_on, told = opened(url), threading.Event(), []
    remote.send(Upload("runs/p", (("runs/p/late.jsonl", lambda: b"late" if go_on.wait(60) else None),)))

    class Reporter:
        def ensure_newline(self) -> None:
            pass

        def write_line(self, text: str) -> None:
            raise KeyboardInterrupt

    session = StoreWait(remote, told.append, Reporter()).pytest_runtestloop()
    next(session)
    with pytest.raises(KeyboardInterrupt):
        session.send(True)
    go_on.set()
    assert told == [remote.describe_unsent()]


def test_failed_uploads_are_retried_at_the_end(url, shared):
    remote = opened(url)
    hidden = shared.rename(shared.with_name("hidden"))
    came_back = []

    def read() -> bytes:
        if came_back:
            hidden.rename(shared)
        came_back.append(True)
        return b"here"

    remote.send(Upload("runs/p", (("runs/p/a.jsonl", read),)))
    for parcel in parcels(40, "late"):
        remote.send(parcel)
    assert remote.close() is None
    assert len(list((shared / "runs").rglob("*.jsonl"))) == 41


def test_failed_uploads_are_counted(url, shared):
    remote = opened(url)
    shutil.rmtree(shared)
    for parcel in parcels(3, "lost"):
        remote.send(parcel)
    for parcel in parcels(2 * BATCH, "lost", "runs/q"):
        remote.offer(parcel)
    said = remote.close()
    assert said is not None
    assert said.startswith(f"{3 + 2 * BATCH} results are not in the store {url}: {shared} was removed or replaced")


def test_a_folder_whose_mount_is_gone_is_no_store_without_results(url, shared, machine):
    there = machine("a")
    shared.rename(shared.with_name("mounted"))
    shared.mkdir()
    with pytest.raises(UnreachableError, match=r"cannot be searched for paid runs: .* was removed or replaced"):
        there.pull()
    there.run()
    shared.rmdir()
    shared.with_name("mounted").rename(shared)


def opened(url: str) -> Remote:
    remote = Remote(url)
    remote.open()
    return remote


# -- addresses


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b//", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
        ("file:///mnt/team", "file:///mnt/team"),
    ],
)
def test_urls(text, url):
    assert parse_store(text) == url


@given(st.text(alphabet="ab:/@?#.&= ", max_size=20), st.sampled_from(["s3://", "gs://", "file://", ""]))
def test_a_secret_in_a_url_is_never_shown(rest, scheme):
    for text in (f"{scheme}user:hunter2@{rest}", f"{scheme}bucket/x?token=hunter2{rest}"):
        with pytest.raises(argparse.ArgumentTypeError) as refused:
            parse_store(text)
        assert "hunter2" not in str(refused.value)


def test_errors_show_no_credentials_of_urls():
    said = strip_credentials("GET 'https://me:pw@host:9/b/x?X-Amz-Signature=abc&y' failed, http://host/plain is fine")
    assert said == "GET 'https://[redacted]@host:9/b/x?[redacted]' failed, http://host/plain is fine"


# -- a real server


WRITER = """
import sys
from pytest_agentbench.store.remote import Remote
from pytest_agentbench.store.remote import Upload as Parcel

remote = Remote(sys.argv[1])
remote.open()
for n in range(50):
    content = (sys.argv[2] * 20_000).encode()
    remote.send(Parcel("runs/p", ((f"runs/p/case{n}/run_1.jsonl", lambda content=content: content),)))
sys.exit(remote.close())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "file"])
def test_four_writers_leave_whole_objects(tmp_path, shared, kind):
    with S3Server(tmp_path / "s3") as server:
        url = server.url("x") if kind == "s3" else f"file://{shared}"
        environ = os.environ | server.environ
        command = [sys.executable, "-c", WRITER, url]
        writers = [subprocess.Popen([*command, letter], env=environ) for letter in "abcd"]
        assert [writer.wait(60) for writer in writers] == [0] * 4
        root = tmp_path / "s3/bench/x" if kind == "s3" else shared
        contents = [path.read_text() for path in (root / "runs").rglob("*") if path.is_file()]
    assert len(contents) == 50
    assert all(len(content) == 20_000 and len(set(content)) == 1 for content in contents)
