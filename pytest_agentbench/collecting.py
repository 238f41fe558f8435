"""Steps of pytest's hooks that every session takes, with or without cases. Rooms are imported when a case is met."""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.config.folders import MAX_DEPTH, RECORDED_FOLDERS
from pytest_agentbench.options import Settings, read_settings
from pytest_agentbench.session import SessionReport

if TYPE_CHECKING:
    from pytest_agentbench.distributed.sharding import Sharding

SETTINGS = pytest.StashKey[Settings]()
CASES = pytest.StashKey[bool]()
"""Set once the session has met a file with cases, or a test with the marker `agentbench`."""
_DESCRIBED = pytest.StashKey[bool]()
"""Set once the configuration root is printed."""
_REFUSED = pytest.StashKey[bool]()
"""Set once the session has met cases on Windows."""
SESSION = "agentbench-session"
"""The name of the plugin that keeps the session's report."""
_HEAD_BYTES = 65_536
"""Bytes of a dataset that are searched for the keys of a case."""
_GARBAGE_THRESHOLD = 20_000
"""New objects after which Python searches for garbage in a session with cases. Its own, lower number costs more CPU."""
_CASSETTE = re.compile(r"-r[0-9]+\.yaml$")


# -- the session


def keep_grants(config: pytest.Config) -> None:
    """Write no bytecode in a session near a granted folder, because a new file in the folder ends its grant."""
    from pytest_agentbench.user_folder import TRUST_FILE, user_folder

    if sys.dont_write_bytecode or not (user_folder() / TRUST_FILE).exists():
        return
    from pytest_agentbench.config.grants import has_grant_near

    if has_grant_near(config.rootpath):
        sys.dont_write_bytecode = True
        config.add_cleanup(functools.partial(setattr, sys, "dont_write_bytecode", False))


def configure_session(config: pytest.Config) -> None:
    """Read the options. Register the session's report, unless this process is a worker of xdist.

    Raises pytest.UsageError for options and plugins that contradict each other.
    """
    config.stash[SETTINGS] = settings = read_settings(config)
    if settings.suite and config.args_source is not pytest.Config.ArgsSource.ARGS:
        _collect_suite(config, settings)
    # Before a baseline report is read, and in xdist's controller too, which never meets a file with cases
    ask_plugins(config, "report_sections")
    sharding = _add_sharding(config, settings)
    if hasattr(config, "workerinput"):
        return
    report = SessionReport(config, settings, sharding)
    config.pluginmanager.register(report, SESSION)
    config.pluginmanager.register(report.lists.others)  # before the terminal, which pytest registers after this
    if config.getoption("dist", "no") != "no":
        _link_workers(config, report)


def _link_workers(config: pytest.Config, report: SessionReport) -> None:
    """Register the plugins of xdist's controller."""
    from pytest_agentbench.distributed.gateways import Gateways
    from pytest_agentbench.distributed.shares import ControllerLink, ReportPacker, Scheduling

    report.open_budget()
    report.link = ControllerLink(report.spend, report.drain, report.expect)
    config.pluginmanager.register(report.link)
    config.pluginmanager.register(Scheduling(report.link))
    config.add_cleanup(report.link.close)
    config.pluginmanager.register(Gateways())
    config.pluginmanager.register(ReportPacker())


def configure_worker(node: Any) -> None:
    """Send a worker of xdist the controller's roots and trusted folders, because grants may change meanwhile."""
    from pytest_agentbench.user_folder import TRUST_FILE, user_folder

    config, settings = node.config, node.config.stash[SETTINGS]
    node.workerinput["agentbench_start"] = str(config.invocation_params.dir)
    # Without any of these the worker decides by the same rules: a session without cases need not import the rooms
    names_roots = settings.suite or settings.names_root or settings.trust or settings.added_trust
    if names_roots or (user_folder() / TRUST_FILE).exists():
        from pytest_agentbench.collection.roots import SENT, session_roots

        node.workerinput[SENT] = session_roots(config, settings).pack()


def _collect_suite(config: pytest.Config, settings: Settings) -> None:
    """Collect all cases of the suite's config root, if pytest got no paths. Raises pytest.UsageError."""
    from pytest_agentbench.collection.roots import ROOTS, session_roots
    from pytest_agentbench.errors import ConfigError

    roots = session_roots(config, settings)
    try:
        root = roots.of_suite(settings.suite or "", config.invocation_params.dir)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    config.args, config.args_source = [str(root.path)], pytest.Config.ArgsSource.ARGS
    if roots.own is None:
        del config.stash[ROOTS]  # the suite has decided which of several roots is the user's


def _add_sharding(config: pytest.Config, settings: Settings) -> Sharding | None:
    """Register and return the plugin that deselects other shards, in every process; None without a shard."""
    if settings.shard is None:
        return None
    from pytest_agentbench.distributed.sharding import Sharding

    config.pluginmanager.register(sharding := Sharding(*settings.shard))
    return sharding


def ask_plugins(config: pytest.Config, hook: str) -> None:
    """Register additions of plugins by a hook that is needed before the first case. Raises pytest.UsageError."""
    hooks = [name for name in (hook, "packs") if getattr(config.hook, f"pytest_agentbench_{name}").get_hookimpls()]
    if not hooks:
        return
    from pytest_agentbench.collection.plugins import ask_plugins
    from pytest_agentbench.collection.roots import session_roots
    from pytest_agentbench.errors import ConfigError

    try:
        ask_plugins(config, session_roots(config, config.stash[SETTINGS]), hooks)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


def header_lines(config: pytest.Config) -> list[str] | None:
    """Return the lines of the header that name the root, None unless the folder has a configuration."""
    from pytest_agentbench.config.root_search import shows_configuration

    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    if shows_configuration(paths, config.invocation_params.dir):
        return _describe_roots(config)
    return None


def collected_lines(config: pytest.Config, items: list[pytest.Item]) -> list[str] | None:
    """Return the lines after collection: the root of a session with cases, unless the header named it, and the
    difference that its columns can show. None for a quiet session and for one without cases.
    """
    if config.get_verbosity() < 0 or CASES not in config.stash:
        return None
    from pytest_agentbench.collection.start import describe_columns

    roots = [] if _DESCRIBED in config.stash else _describe_roots(config)
    return [*roots, *describe_columns(items)]


def _describe_roots(config: pytest.Config) -> list[str]:
    from pytest_agentbench.collection.roots import describe_roots

    config.stash[_DESCRIBED] = True
    return describe_roots(config, config.stash[SETTINGS])


# -- files and folders


def is_ignored(path: Path, config: pytest.Config) -> bool | None:
    """Return True for a folder that pytest must not collect, None for any other file or folder.

    Ignored are cassettes and results of earlier sessions (tens of thousands of files without tests), the folders
    `verify` and `workspace` of a case (their tests are not this session's), links of a guest to folders, and links to
    a folder around them.
    """
    name = path.name
    if path.is_symlink() and path.is_dir() and _ignores_link(path, config):
        return True
    if name in ("verify", "workspace"):
        return any((path.parent / file).is_file() for file in ("test.yaml", "test.yml")) or None
    if name.endswith(".artifacts"):  # files of agents, in any output folder
        return path.match("run_*.artifacts") or None
    if name == "cassettes":
        return _contains_cassettes(path) or None
    if name in ("runs", "evaluations"):  # a folder of this name may be the project's own
        settings = config.stash[SETTINGS]
        return path.parent == settings.output or settings.store == f"file://{path.parent}" or None
    return None


def _ignores_link(link: Path, config: pytest.Config) -> bool:
    from pytest_agentbench.config.folders import leads_around
    from pytest_agentbench.config.root_search import find_nearest

    if leads_around(link):
        return True
    if find_nearest(str(link.parent), None) is None:  # without a configuration there is no guest
        return False
    from pytest_agentbench.collection.walk import is_in_guest

    return is_in_guest(link, config, config.stash[SETTINGS])


def _contains_cassettes(folder: Path) -> bool:
    """Return whether the first file of a folder is a cassette: of a case, or one level below of a dataset's row."""
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


def collect_folder(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector that fails for a folder that is nested too deep, None for any other folder."""
    if sys.platform == "win32" or len(path.parts) - len(parent.config.rootpath.parts) <= MAX_DEPTH:
        return None
    begin_cases(parent.config)  # the plugins for cases report the error without ending the session
    from pytest_agentbench.collection.walk import DeepFolder

    folder: DeepFolder = DeepFolder.from_parent(parent, path=path)
    return folder


def may_contain_cases(path: Path, parent: pytest.Collector) -> bool:
    """Return whether a file may contain cases, by its name and by words in its first 64 KiB (all of a YAML file).

    This look spares sessions without cases the import of all rooms. Other tools also name files test.yaml or
    dataset.yaml, which are no cases.
    """
    from pytest_agentbench.sources.names import source_names

    if path.suffix == ".py" or not (names := source_names(path.name)):
        return False
    is_argument = parent.session.isinitpath
    if not RECORDED_FOLDERS.isdisjoint(path.parts) and _is_recorded(path, parent):
        return False
    if is_argument(parent.path, with_parents=True) and not any(map(is_argument, (path, *path.parents))):
        return False  # pytest also asks about files next to its arguments, and drops their collectors
    is_yaml = path.suffix in (".yaml", ".yml")
    if is_argument(path) or (CASES in parent.config.stash and not is_yaml):
        return True
    from pytest_agentbench.bounded.files import MAX_TEXT, open_file

    try:
        with open_file(path, MAX_TEXT if is_yaml else None) as file:
            head = file.read(-1 if is_yaml else _HEAD_BYTES).replace(b"\0", b"")
            if path.suffix == ".jsonl" and len(head) == _HEAD_BYTES and b"\n" not in head:
                return True  # the first row is longer than the head: its collector reads it
    except OSError:
        return is_yaml or path.suffix == ".jsonl"  # the collector reports why the file cannot be read
    # A row with a misspelt `question` still has an `answer`: its collector reports the misspelling
    has_answer = path.suffix == ".jsonl" and b"answer" in head.lower()
    return has_answer or any(name.may_hold(head) for name in names)


def _is_recorded(path: Path, parent: pytest.Collector) -> bool:
    """Return whether a file is in a folder of recorded results, and no argument names the file or a folder below."""
    if parent.session.isinitpath(path):
        return False
    for folder in path.parents:
        if parent.session.isinitpath(folder) or folder == parent.config.rootpath:
            return False
        if folder.name in RECORDED_FOLDERS:
            return True
    return False


def describe_tables(config: pytest.Config, error: str) -> list[str]:
    """Return the remedy for each CSV or Parquet file among pytest's arguments that the error names."""
    from pytest_agentbench.sources.names import describe_expected_rows, is_table

    paths = [os.path.join(config.invocation_params.dir, argument) for argument in config.args]
    return [describe_expected_rows(path) for path in paths if is_table(path) and path in error]


# -- the first case


def begin_cases(config: pytest.Config) -> bool:
    """Make the session's planner, once. Return False on Windows, which cannot run cases."""
    if CASES in config.stash:
        return True
    if sys.platform == "win32":
        config.stash[_REFUSED] = True  # pytest turns an exception raised here into an error of one file
        return False
    # Items live until the end, so frequent searches for garbage find none: they take 4-8 % of the CPU of a session that
    # reuses 2,000 runs.
    if 0 < gc.get_threshold()[0] < _GARBAGE_THRESHOLD:  # a conftest.py may have set its own, or 0 for never
        config.add_cleanup(functools.partial(gc.set_threshold, *gc.get_threshold()))
        gc.set_threshold(_GARBAGE_THRESHOLD)
    with import_plainly():
        from pytest_agentbench.collection.items import PLANNER
        from pytest_agentbench.collection.planning import make_planner

    config.stash[PLANNER] = planner = make_planner(config, config.stash[SETTINGS])
    if (report := config.pluginmanager.get_plugin(SESSION)) is not None:
        report.warnings += planner.unasked  # before files are read, because it may explain why they are refused
    config.stash[CASES] = True
    return True


def refuse_windows(config: pytest.Config) -> None:
    """Raise pytest.UsageError if the session has met cases on Windows."""
    if _REFUSED in config.stash:
        from pytest_agentbench.errors import WINDOWS

        raise pytest.UsageError(WINDOWS)


def select_items(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Select the items of the suite, of named cases, and of a dry run."""
    settings = session.config.stash[SETTINGS]
    if CASES in session.config.stash:
        with import_plainly():
            from pytest_agentbench.collection.start import select_items

        select_items(session, items, dry_run=settings.dry_run)
    elif settings.dry_run:
        items.clear()


def start_engine(session: pytest.Session) -> None:
    """Start the engine of a session with cases."""
    if CASES in session.config.stash:
        from pytest_agentbench.collection.start import start_engine

        start_engine(session, session.config.stash[SETTINGS], session.config.pluginmanager.get_plugin(SESSION))


@contextmanager
def import_plainly() -> Iterator[None]:
    """Import in the block without pytest's finder, which checks each module for tests: 2.5 % of a short session."""
    finders = sys.meta_path
    # A new list, because another thread may be iterating over the old one
    sys.meta_path = plain = [finder for finder in finders if type(finder).__module__ != "_pytest.assertion.rewrite"]
    try:
        yield
    finally:
        finders[:0] = [finder for finder in plain if finder not in finders]
        sys.meta_path = finders
