"""The folder of a verifier: a copy of the agent's files without those that steer Python, plus the hidden files."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pytest_agentbench.bounded.files import MAX_DOCUMENT, open_file
from pytest_agentbench.models.thoughts import drop_thoughts
from pytest_agentbench.records.case import Case, HiddenFile, Verifier
from pytest_agentbench.workspaces.changes import take_snapshot
from pytest_agentbench.workspaces.confined import PathRefusedError, open_folder
from pytest_agentbench.workspaces.template import copy_tree
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, TreeError, Workspace, walk_tree

_STEERING = re.compile(
    r"(conftest|sitecustomize|usercustomize)(\..*)?|\.?pytest\.(ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml"
    r"|pyvenv\.cfg|\.pdbrc|.*\.(pth|egg-link|dist-info|egg-info)",
    re.IGNORECASE,
)
"""Names of files and folders that Python or pytest execute or obey wherever they find them."""

_COMPILED = re.compile(r"__pycache__|.*\.py[co]", re.IGNORECASE)
"""Compiled files, which Python runs in place of a source; never needed."""

_CODE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
"""A fenced block of code."""

_PROCESSES = ("/proc/", "/dev/")
"""Folders through which a link can lead anywhere, by a process's own folder and open files."""

_MAX_LINKS = 40

Content = Mapping[str, str]
"""Paths below the workspace, with a digest that reveals changes."""


def put_answer(verifier: Verifier, answer: str, target: Workspace) -> None:
    """Write the code of the final answer to the verifier's `answer_file`, replacing an existing file.

    Raises PathRefusedError and OSError.
    """
    if verifier.answer_file is None:
        return
    text = drop_thoughts(answer)
    if (block := _CODE.search(text)) is not None:
        text = block[1]
    path = _normalize_path(verifier.answer_file)
    _clear_path(path, target)
    with target.open_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


def stage_workspace(
    case: Case, verifier: Verifier, run_workspace: Workspace | None, target: Workspace, answer: str | None = None
) -> Content:
    """Fill the empty folder `target` from the files of `run_workspace` (None: no files). Slow: call it on a thread.

    `answer` is the run's final answer, if the solution belongs in this folder.

    Files that steer Python or pytest, and tests that the verifier names, are reset to the case's template or removed.
    The agent's private /tmp is not copied. Then the hidden files are copied over the agent's, and links to them are
    removed. Return the digests of the hidden files. Raises TreeError if the run's files cannot be copied,
    PathRefusedError and OSError if a hidden file cannot, or the disk is full.
    """
    _copy_allowed(case, verifier, run_workspace, target)
    if answer is not None:
        put_answer(verifier, answer, target)
    for hidden in sorted(verifier.files, key=lambda each: _normalize_path(each.target).count("/")):
        path = _normalize_path(hidden.target)
        if hidden.source is not None:
            _put_in_place(hidden.source, path, target)
            continue
        _clear_path(path, target)
        with target.open_write(path) as file:
            file.write(hidden.text.encode("utf-8", "replace"))
    _cut_links(verifier, target)
    return hidden_content(verifier, target)


def copy_workspace(run_workspace: Workspace, target: Workspace) -> None:
    """Copy a run's files, except its private /tmp, into the empty folder `target`.

    Raises the exceptions of `stage_workspace`.
    """
    try:
        copy_tree(run_workspace.path, target)
        _unlock(target.path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise TreeError("it has paths that are too long") from error
        raise
    _remove(target.path / PRIVATE_TMP)


def hidden_content(verifier: Verifier, target: Workspace) -> Content:
    """Return the digests of the files that now are at the hidden files' paths."""
    digests: dict[str, str] = {}
    for hidden in verifier.files:
        path = _normalize_path(hidden.target)
        if stat.S_ISDIR(_mode(target.path / path)):
            digests |= {f"{path}/{below}": digest for below, digest in _list_files(target.path / path).items()}
            continue
        try:
            with target.open_read(path) as file:
                digests[path] = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        except (OSError, PathRefusedError):
            digests[path] = "missing"
    return digests


def source_digest(hidden: HiddenFile) -> str:
    """Return the SHA-256 of a hidden file, or of all files of a hidden folder, including executable bits."""
    if hidden.source is None:
        return hashlib.sha256(hidden.text.encode("utf-8", "replace")).hexdigest()
    if hidden.source.is_dir():
        held = sorted(_list_files(hidden.source).items())
        return hashlib.sha256(repr(held).encode("utf-8", "surrogateescape")).hexdigest()
    with open_file(hidden.source, MAX_DOCUMENT) as file:
        executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return f"{digest} executable" if executable else digest


def _list_files(folder: Path) -> Content:
    """Return the files and links below a folder; not the caches that Python makes."""
    facts = take_snapshot(str(folder)).facts
    return {
        "/".join(names): f"{fact.kind} {fact.sha256} {fact.target} {fact.mode & stat.S_IXUSR}"
        for names, fact in facts.items()
        if fact.kind != "folder" and not any(map(_COMPILED.fullmatch, names))
    }


def _copy_allowed(case: Case, verifier: Verifier, run_workspace: Workspace | None, target: Workspace) -> None:
    """Copy a run's files, except those that the agent must not influence."""
    if run_workspace is not None:
        copy_workspace(run_workspace, target)
    paths = dict.fromkeys(_find_steering(target.path))
    if case.workspace is not None:
        paths |= dict.fromkeys(_find_steering(case.workspace))
    paths |= dict.fromkeys(_deciding_paths(verifier, target.path))
    kept_paths = {_normalize_path(path) for path in verifier.keep}
    for path in paths:
        if path in kept_paths:
            continue
        _clear_path(path, target)
        if case.workspace is not None:
            source = case.workspace / path
            if source.exists() and not _COMPILED.fullmatch(source.name):
                _put_in_place(source, path, target)


def _deciding_paths(verifier: Verifier, root: Path) -> Iterator[str]:
    """Yield the paths of the tests that the verifier names, of its configuration, and of the `__init__.py` files
    from the workspace's root to these tests: pytest imports those before a test.
    """
    if verifier.pytest is None:
        return
    tests = {_normalize_path(name.partition("::")[0]) for name in verifier.pytest.ids}
    yield from sorted(tests)
    if verifier.pytest.config is not None:
        yield _normalize_path(verifier.pytest.config)
    for folder in sorted({above for path in tests for above in PurePosixPath(path).parents}):
        for package in sorted((root / folder).glob("__init__.*")):
            yield str(package.relative_to(root))


def _normalize_path(path: str) -> str:
    return "/".join(name for name in path.split("/") if name not in ("", "."))


def _unlock(root: Path) -> None:
    """Make all folders of a copy writable for this process, even if the agent changed their modes."""
    for folder, folders, _ in os.walk(root):
        for name in folders:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700 | stat.S_IMODE(os.lstat(path).st_mode))


def _find_steering(root: Path) -> Iterator[str]:
    """Yield the paths below `root` of all that has such a name, outermost only. Links are not followed."""
    for folder, folders, files in os.walk(root):
        below = os.path.relpath(folder, root)
        named = [name for name in [*folders, *files] if _STEERING.fullmatch(name) or _COMPILED.fullmatch(name)]
        yield from (_normalize_path(f"{below}/{name}") for name in named)
        # Outermost paths only: removing a folder removes its content.
        folders[:] = [name for name in folders if name not in named]


def _put_in_place(source: Path, path: str, target: Workspace) -> None:
    """Put a file or folder at the path, replacing anything there; non-folders on the way become folders."""
    _clear_path(path, target)
    names = path.split("/")
    if source.is_dir():
        with open_folder(str(target.path), names, create=True, owner=target.owner):
            copy_tree(source, Workspace(target.path / path, target.owner))
        return
    with open_file(source, MAX_DOCUMENT) as content, target.open_write(path) as copy:
        shutil.copyfileobj(content, copy)
        os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(content.fileno()).st_mode) & 0o777)


def _cut_links(verifier: Verifier, target: Workspace) -> None:
    """Remove links from hidden files' paths to the agent's files: otherwise its answer would be the expected one."""
    hidden = tuple(f"{WORKSPACE}/{_normalize_path(file.target)}/" for file in verifier.files)
    links = [entry.path for entry in walk_tree(str(target.path), []) if hidden and entry.kind == "link"]
    for path in links:
        seen = f"{WORKSPACE}/{path}"
        if not seen.startswith(hidden) and f"{_resolve_in_sandbox(seen, target.path)}/".startswith(
            (*hidden, *_PROCESSES)
        ):
            _remove(target.path / path)


def _resolve_in_sandbox(path: str, root: Path) -> str:
    """Resolve a path of the sandbox, following only the links of the workspace at `root`."""
    # Not by `realpath`: it would follow links through this machine's folders, and stop at links that only the
    # sandbox has.
    at: list[str] = []
    ahead, links = path.split("/")[::-1], 0
    while ahead:
        name = ahead.pop()
        if name == "..":
            at = at[:-1]
        elif name not in ("", "."):
            at.append(name)
        real = root.joinpath(*at[1:])
        if name not in ("", ".", "..") and f"/{at[0]}" == WORKSPACE and real.is_symlink():
            links += 1
            if links > _MAX_LINKS:
                return path
            leads_to = os.readlink(real)
            at = [] if leads_to.startswith("/") else at[:-1]
            ahead += leads_to.split("/")[::-1]
    return "/" + "/".join(at)


def _clear_path(path: str, target: Workspace) -> None:
    """Remove the file or folder at the path, and non-folders on the way to it; links are never followed."""
    names = path.split("/")
    for depth in range(1, len(names)):
        above = target.path.joinpath(*names[:depth])
        if not stat.S_ISDIR(_mode(above)):
            _remove(above)
    _remove(target.path / path)


def _mode(path: Path) -> int:
    """Return the mode of the path, or 0 if it does not exist."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _remove(path: Path) -> None:
    if stat.S_ISDIR(_mode(path)):
        shutil.rmtree(path)
    elif _mode(path):
        path.unlink()
