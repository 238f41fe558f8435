"""pytest hooks, each a line or two that calls a room. Rooms are imported once a session is seen to have cases."""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_agentbench.hookspecs as hookspecs  # not from the package, whose __getattr__ would read its stub
from pytest_agentbench.config.folders import MAX_DEPTH, RECORDED_FOLDERS
from pytest_agentbench.fixtures import (  # noqa: F401  # fixtures are found here
    _agentbench_plan,
    agentbench_case,
    agentbench_mcp_servers,
    agentbench_model,
    agentbench_run,
    agentbench_runner,
    agentbench_workspace,
)
from pytest_agentbench.options import Settings, add_options, add_short_model, read_settings
from pytest_agentbench.session import BEGAN, SessionReport

if TYPE_CHECKING:
    from pytest_agentbench.distributed.sharding import Sharding

SETTINGS = pytest.StashKey[Settings]()
CASES = pytest.StashKey[bool]()
DESCRIBED = pytest.StashKey[bool]()
_REFUSED = pytest.StashKey[bool]()
"""The session has met cases on Windows."""
SESSION = "agentbench-session"
_HEAD_BYTES = 65_536
_GARBAGE = 20_000
"""How many new objects it takes to look for garbage: Python's 700 make it 5 % of a session of 10,000 cases."""
_CASSETTE = re.compile(r"-r[0-9]+\.yaml$")


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
    """Add the short option `--model`, once every plugin and conftest has had its chance to own it."""
    early_config.stash[BEGAN] = time.time_ns()
    _keep_grants(early_config)
    yield
    add_short_model(parser, args)


def _keep_grants(config: pytest.Config) -> None:
    """Write no bytecode in a session near a granted folder: a file that is new there ends the grant."""
    from pytest_agentbench.user_folder import TRUST_FILE, user_folder

    if sys.dont_write_bytecode or not (user_folder() / TRUST_FILE).exists():
        return
    from pytest_agentbench.config.grants import has_grant_near

    if has_grant_near(config.rootpath):
        sys.dont_write_bytecode = True
        config.add_cleanup(functools.partial(setattr, sys, "dont_write_bytecode", False))


def pytest_configure(config: pytest.Config) -> None:
    """Read the options; only the only process, or xdist's controller, keeps the session's report."""
    config.addinivalue_line("markers", "agentbench(case): run this case (id or path) and assert on it by hand")
    config.stash[SETTINGS] = settings = read_settings(config)
    config.stash.setdefault(BEGAN, time.time_ns())  # where a conftest names this plugin
    if settings.suite and config.args_source is not pytest.Config.ArgsSource.ARGS:
        _collect_suite(config, settings)
    # Before a report is read to compare with, and by xdist's controller, which meets no file with cases.
    _ask_plugins(config, "report_sections")
    sharding = _sharding(config, settings)
    if hasattr(config, "workerinput"):
        return
    report = SessionReport(config, settings, sharding)
    config.pluginmanager.register(report, SESSION)
    config.pluginmanager.register(report.lists.others)  # before the terminal, which pytest registers after this
    if config.getoption("dist", "no") != "no":
        from pytest_agentbench.distributed.gateways import Gateways
        from pytest_agentbench.distributed.shares import ControllerLink, ReportPacker, Scheduling

        report.open_budget()
        report.link = ControllerLink(report.spend, report.drain, report.expect)
        config.pluginmanager.register(report.link)
        config.pluginmanager.register(Scheduling(report.link))
        config.add_cleanup(report.link.close)
        config.pluginmanager.register(Gateways())
        config.pluginmanager.register(ReportPacker())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the controller's roots and trusted folders, which grants may change meanwhile."""
    from pytest_agentbench.user_folder import TRUST_FILE, user_folder

    config, settings = node.config, node.config.stash[SETTINGS]
    node.workerinput["agentbench_start"] = str(config.invocation_params.dir)
    # Else the worker decides by the same rule: the rooms would be imported for nothing in a session without cases.
    told = settings.suite or settings.names_root or settings.trust or settings.added_trust
    if told or (user_folder() / TRUST_FILE).exists():
        from pytest_agentbench.collection.roots import SENT, session_roots

        node.workerinput[SENT] = session_roots(config, settings).pack()


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    """Name the session's configuration root, if configuration shows that the session may have cases."""
    from pytest_agentbench.config.root_search import shows_configuration

    asked = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return _describe_roots(config) if shows_configuration(asked, config.invocation_params.dir) else None


def pytest_report_collectionfinish(config: pytest.Config) -> list[str] | None:
    """Name the session's configuration root, unless the header has."""
    is_told = DESCRIBED in config.stash or config.get_verbosity() < 0
    return None if is_told or CASES not in config.stash else _describe_roots(config)


def _describe_roots(config: pytest.Config) -> list[str]:
    from pytest_agentbench.collection.roots import describe_roots

    config.stash[DESCRIBED] = True
    return describe_roots(config, config.stash[SETTINGS])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore cassettes and results of earlier sessions, which are tens of thousands of files without tests.

    The folders `verify` and `workspace` of a case hold its hidden tests and its agent's, not this session's. Links to
    folders are followed as pytest does, but those of guests, and those that lead to a folder around them.
    """
    if collection_path.is_symlink() and collection_path.is_dir():
        from pytest_agentbench.config.folders import leads_around
        from pytest_agentbench.config.root_search import find_nearest

        if leads_around(collection_path):
            return True
        if find_nearest(str(collection_path.parent), None) is not None:  # else there is no guest
            from pytest_agentbench.collection.walk import is_in_guest

            if is_in_guest(collection_path, config, config.stash[SETTINGS]):
                return True
    if collection_path.name in ("verify", "workspace"):
        return True if any((collection_path.parent / name).is_file() for name in ("test.yaml", "test.yml")) else None
    if collection_path.name.endswith(".artifacts"):  # what agents left, whatever folder it was stored in
        return True if collection_path.match("run_*.artifacts") else None
    if collection_path.name == "cassettes":
        return True if _holds_cassettes(collection_path) else None
    if collection_path.name not in ("runs", "evaluations"):  # the folder itself may be the project's own
        return None
    settings = config.stash[SETTINGS]
    shared = settings.store == f"file://{collection_path.parent}"
    return True if shared or collection_path.parent == settings.output else None


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector that is an error for a folder that is nested too deep, else None."""
    if sys.platform == "win32" or len(path.parts) - len(parent.config.rootpath.parts) <= MAX_DEPTH:
        return None
    _prepare_cases(parent.config)  # so that the error ends no session
    from pytest_agentbench.collection.walk import DeepFolder

    deep: DeepFolder = DeepFolder.from_parent(parent, path=path)
    return deep


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector for a case file or a dataset, else None."""
    if not _may_hold_cases(file_path, parent) or not _prepare_cases(parent.config):
        return None
    from pytest_agentbench.collection.items import collect_file

    return collect_file(file_path, parent)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize hand-written tests that name a case by model and repetition."""
    if metafunc.definition.get_closest_marker("agentbench") is not None and _prepare_cases(metafunc.config):
        from pytest_agentbench.collection.marks import parametrize

        parametrize(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Mark the report of a case file that failed, to tell it apart from other files: the other cases still run."""
    report = yield
    if report.failed and CASES in collector.config.stash:
        from pytest_agentbench.collection.items import tell_apart

        tell_apart(collector, report)
    return report


@pytest.hookimpl(wrapper=True)  # around pytest-xdist's, which makes workers of `-n`
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Drop the workers of a dry run, which needs none."""
    if config.getoption("agentbench_dry_run"):
        config.option.numprocesses = 0
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Freeze what was collected: to look for garbage among items, which live to the end, is a good part of the time."""
    collecting = gc.isenabled()
    _ask_plugins(session.config, "case_sources")
    try:
        collected = yield
        _refuse_windows(session.config)
        return collected
    except pytest.UsageError as error:
        _refuse_windows(session.config)
        raise pytest.UsageError(*error.args, *_describe_tables(session.config, str(error))) from error
    finally:
        if collecting and not gc.isenabled():
            gc.enable()
            gc.freeze()
            session.config.add_cleanup(functools.partial(gc.set_threshold, *gc.get_threshold()))
            gc.set_threshold(_GARBAGE)


def _describe_tables(config: pytest.Config, error: str) -> list[str]:
    """Return what to do with each file of CSV or Parquet that pytest was asked for, and of which it made nothing."""
    from pytest_agentbench.sources.names import describe_expected_rows, is_table

    paths = [os.path.join(config.invocation_params.dir, argument) for argument in config.args]
    return [describe_expected_rows(path) for path in paths if is_table(path) and path in error]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Choose by suite, and by name where cases run only when named; a dry run leaves out what is no case."""
    settings = session.config.stash[SETTINGS]
    if CASES in session.config.stash:
        with _import_plainly():
            from pytest_agentbench.collection.start import select_items

        select_items(session, items, dry_run=settings.dry_run)
    elif settings.dry_run:
        items.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the engine; a session without cases gets nothing more."""
    if CASES in session.config.stash:
        from pytest_agentbench.collection.start import start_engine

        start_engine(session, session.config.stash[SETTINGS], session.config.pluginmanager.get_plugin(SESSION))


def _ask_plugins(config: pytest.Config, hook: str) -> None:
    """Ask plugins what they add by a hook that cannot wait until a file with cases is met. Raises UsageError."""
    if not getattr(config.hook, f"pytest_agentbench_{hook}").get_hookimpls():
        return
    from pytest_agentbench.collection.plugins import ask_plugins
    from pytest_agentbench.collection.roots import session_roots
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.sources.names import source_names

    try:
        ask_plugins(config, session_roots(config, config.stash[SETTINGS]), [hook])
        source_names("")  # raises for a name that is there twice
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


def _holds_cassettes(folder: Path) -> bool:
    """Return whether the first file in a folder is a cassette: of a case, or a folder below of a dataset's row."""
    for _ in range(2):
        try:
            with os.scandir(folder) as entries:
                first = next(entries, None)
        except OSError:
            return False
        if first is None:
            return False
        if _CASSETTE.search(first.name):
            return True
        folder = Path(first.path)
    return False


def _collect_suite(config: pytest.Config, settings: Settings) -> None:
    """Collect all cases of the config root for a suite that was given without paths. Raises UsageError."""
    from pytest_agentbench.collection.roots import ROOTS, session_roots
    from pytest_agentbench.errors import ConfigError

    roots = session_roots(config, settings)
    try:
        root = roots.of_suite(settings.suite or "", config.invocation_params.dir)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    config.args, config.args_source = [str(root.path)], pytest.Config.ArgsSource.ARGS
    if roots.own is None:
        del config.stash[ROOTS]  # naming the suite decided which of several is the user's


def _sharding(config: pytest.Config, settings: Settings) -> Sharding | None:
    """Register and return what deselects the other shards, in every process; None where no shard is asked for."""
    if settings.shard is None:
        return None
    from pytest_agentbench.distributed.sharding import Sharding

    config.pluginmanager.register(sharding := Sharding(*settings.shard))
    return sharding


def _prepare_cases(config: pytest.Config) -> bool:
    """Prepare the session, once, when the first file with cases is met. False on Windows, where no case can run."""
    if CASES in config.stash:
        return True
    if sys.platform == "win32":
        config.stash[_REFUSED] = True  # pytest would make an error of collection of what is raised here
        return False
    gc.disable()  # until pytest_collection ends; before the imports, a fifth of whose time looking for garbage took
    with _import_plainly():
        from pytest_agentbench.collection.items import PLANNER
        from pytest_agentbench.collection.planning import make_planner

    config.stash[PLANNER] = planner = make_planner(config, config.stash[SETTINGS])
    if (report := config.pluginmanager.get_plugin(SESSION)) is not None:
        report.warnings += planner.unasked  # before files are read: it may be why they are refused
    config.stash[CASES] = True
    return True


def _refuse_windows(config: pytest.Config) -> None:
    if _REFUSED in config.stash:
        from pytest_agentbench.errors import WINDOWS

        raise pytest.UsageError(WINDOWS)


@contextmanager
def _import_plainly() -> Iterator[None]:
    """Import without pytest's finder, which asks of each module whether it is a test: a fortieth of a short session."""
    finders = sys.meta_path
    # Another list, and not the same one changed: a thread may be going through that
    sys.meta_path = plain = [each for each in finders if type(each).__module__ != "_pytest.assertion.rewrite"]
    try:
        yield
    finally:
        finders[:0] = [each for each in plain if each not in finders]
        sys.meta_path = finders


def _is_recorded(path: Path, parent: pytest.Collector) -> bool:
    """Return whether a file lies in a folder of what sessions recorded, and nobody named it or a folder in there."""
    if parent.session.isinitpath(path):
        return False
    for folder in path.parents:
        if parent.session.isinitpath(folder) or folder == parent.config.rootpath:
            return False
        if folder.name in RECORDED_FOLDERS:
            return True
    return False


def _may_hold_cases(path: Path, parent: pytest.Collector) -> bool:
    """Return whether a file may hold cases: a glance that spares sessions without cases the import of everything else.

    Other tools have files named test.yaml or dataset.yaml too, which never are cases.
    """
    from pytest_agentbench.sources.names import source_names

    if path.suffix == ".py" or not (names := source_names(path.name)):
        return False
    is_asked = parent.session.isinitpath
    if not RECORDED_FOLDERS.isdisjoint(path.parts) and _is_recorded(path, parent):
        return False
    if is_asked(parent.path, with_parents=True) and not any(map(is_asked, (path, *path.parents))):
        return False  # it lies beside what was asked for: pytest asks about it all the same, and drops what it gets
    yaml = path.suffix in (".yaml", ".yml")
    if parent.session.isinitpath(path) or (CASES in parent.config.stash and not yaml):
        return True
    from pytest_agentbench.bounded.files import MAX_TEXT, open_file

    try:
        with open_file(path, MAX_TEXT if yaml else None) as file:
            head = file.read(-1 if yaml else _HEAD_BYTES).replace(b"\0", b"")
            if path.suffix == ".jsonl" and len(head) == _HEAD_BYTES and b"\n" not in head:
                return True  # its first row alone is longer: collecting it will tell
    except OSError:
        return yaml or path.suffix == ".jsonl"  # collecting it will say why
    # A misspelt question leaves the answer
    near = path.suffix == ".jsonl" and b"answer" in head.lower()
    return near or any(word in head for name in names for word in name.words)
