"""pytest hooks, each a line or two that calls a room. Rooms are imported once a session is seen to have cases."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import pytest_agentbench.collecting as collecting
import pytest_agentbench.hookspecs as hookspecs  # not from the package, whose __getattr__ would read its stub
from pytest_agentbench.fixtures import (  # noqa: F401  # pytest finds fixtures in this module
    _agentbench_plan,
    agentbench_case,
    agentbench_mcp_servers,
    agentbench_model,
    agentbench_run,
    agentbench_runner,
    agentbench_workspace,
)
from pytest_agentbench.options import add_options, add_short_model
from pytest_agentbench.session import BEGAN


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hooks by which other plugins may add to this one."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options and ini values."""
    add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Add the short option `--model`, unless another plugin or a conftest has added it."""
    early_config.stash[BEGAN] = time.time_ns()
    collecting.keep_grants(early_config)
    yield
    add_short_model(parser, args)


@pytest.hookimpl(wrapper=True)  # around pytest-xdist's, which makes workers of `-n`
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Drop the workers of a dry run, which needs none."""
    if config.getoption("agentbench_dry_run"):
        config.option.numprocesses = 0
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options and register the session's report."""
    config.addinivalue_line("markers", "agentbench(case): run this case (id or path) and assert on it by hand")
    config.stash.setdefault(BEGAN, time.time_ns())  # unset if a conftest names this plugin
    collecting.configure_session(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send a worker of pytest-xdist the start folder and the roots of the controller."""
    collecting.configure_worker(node)


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    """Name the session's configuration root, if configuration shows that the session may have cases."""
    return collecting.header_lines(config)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str] | None:
    """Name the session's configuration root, unless the header has, and the difference that its columns can show."""
    return collecting.collected_lines(config, items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore cassettes, results of earlier sessions, hidden tests, and links that lead to a folder around them."""
    return collecting.is_ignored(collection_path, config)


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector that is an error for a folder that is nested too deep, else None."""
    return collecting.collect_folder(path, parent)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector for a case file or a dataset, else None."""
    if not collecting.may_contain_cases(file_path, parent) or not collecting.begin_cases(parent.config):
        return None
    from pytest_agentbench.collection.items import collect_file

    return collect_file(file_path, parent)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize hand-written tests that name a case by model and repetition."""
    if metafunc.definition.get_closest_marker("agentbench") is not None and collecting.begin_cases(metafunc.config):
        from pytest_agentbench.collection.marks import parametrize

        parametrize(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Mark the report of a case file that failed, so that the session runs the cases of other files."""
    report = yield
    if report.failed and collecting.CASES in collector.config.stash:
        from pytest_agentbench.collection.items import tell_apart

        tell_apart(collector, report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Refuse cases on Windows, and describe tables of which pytest collected nothing."""
    config = session.config
    collecting.ask_plugins(config, "case_sources")
    try:
        collected = yield
        collecting.refuse_windows(config)
        return collected
    except pytest.UsageError as error:
        collecting.refuse_windows(config)
        raise pytest.UsageError(*error.args, *collecting.describe_tables(config, str(error))) from error
    finally:
        if collecting.CASES in config.stash:
            gc.freeze()  # items live until the end: each later collection of garbage would walk through all of them


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Select items by suite and by name; a dry run deselects tests that are no cases."""
    collecting.select_items(session, items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the engine; a session without cases has none."""
    collecting.start_engine(session)
