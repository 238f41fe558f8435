import compileall
import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:  # `uv run pytest` in a fresh clone
    pytest.exit("the tests need the packages of the group dev: uv run --group dev pytest -n auto", returncode=4)

pytest_plugins = ["pytester"]
os.environ.pop("GITHUB_ACTIONS", None)  # the tests' own sessions write no annotations and summaries of the outer CI job
# On a busy machine the duration of an example means nothing. A session draws 50 examples, and the next one others
settings.register_profile("any machine", deadline=None, max_examples=50)
settings.load_profile("any machine")
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:  # nohup, `&`. Child processes inherit SIG_IGN, but no handler
        signal.signal(number, lambda number, frame: None)
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Collection makes a million objects that live until the end. The garbage collector scanned them again and again: a
    # third of the time of collection without bytecode, a fifth with it, and again with each full pass while tests run
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000)  # passes after 700 objects, the default, took 4 % of the time of tests


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    # Without bytecode most of collection is compiling tests. Every second worker collects in reverse order, so that two
    # workers compile half of the modules each and read the bytecode of the rest: 23 s instead of 45 s on two cores
    report = yield
    if isinstance(collector, pytest.Directory) and int(WORKER.removeprefix("gw")) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)  # pytest groups items by fixtures afterwards, from the same order in all workers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path)
    # Sessions that tests start read bytecode of modules without rewritten assertions, and write none. Without it each
    # of them compiles the package: 4 s instead of 1 s
    if WORKER == "gw0" and not sys.dont_write_bytecode:
        compileall.compile_dir(Path(__file__).parents[1] / "pytest_agentbench", quiet=1)
    # A module that a test writes twice within a second, in as many bytes, would run from the first one's bytecode. Not
    # set before tests are collected, so that their imports are compiled once for all processes
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for item in items:
        item.add_marker(pytest.mark.timeout(600))  # a test that hangs fails, and the session goes on
