"""Find a run's changes of its workspace: facts before and after, changed files, and unified diffs of texts."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Literal

from pytest_agentbench.records.run import FileChange, FileFacts
from pytest_agentbench.workspaces.confined import PathRefusedError, open_file, open_folder
from pytest_agentbench.workspaces.workspace import (
    MAX_TREE_BYTES,
    PRIVATE_TMP,
    Names,
    TreeEntry,
    Workspace,
    kind_of,
    walk_tree,
)

_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Facts of all entries below a folder, by their names.

    `unseen` are the paths of unreadable folders, "" for the folder itself.
    """

    facts: Mapping[Names, FileFacts]
    unseen: tuple[str, ...] = ()


EMPTY = Snapshot({})
"""The snapshot of an empty folder."""


def take_snapshot(folder: str) -> Snapshot:
    """Return the facts of a folder's content, except its private temporary folder.

    Unreadable files, and files after the first 512 MB, have no hash. Raises TreeError for too many files.
    """
    facts: dict[Names, FileFacts] = {}
    unseen: list[str] = []
    room = MAX_TREE_BYTES
    for entry in walk_tree(folder, unseen, skip=PRIVATE_TMP):
        mode = stat.S_IMODE(entry.stat.st_mode)
        if entry.kind == "file":
            size, sha256 = entry.stat.st_size, None
            # Whole files only: a hash of a part would be equal for files that differ after it
            if size <= room:
                size, sha256 = _hash_file(entry, room)
                room -= size
            facts[entry.names] = FileFacts(kind="file", mode=mode, size=size, sha256=sha256)
        elif entry.kind == "link":
            facts[entry.names] = FileFacts(kind="link", mode=mode, target=_link_target(entry))
        else:
            facts[entry.names] = FileFacts(kind=entry.kind, mode=mode)
    # An unreadable folder exists, and must not count as removed
    for path in filter(None, unseen):
        with suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(f"{folder}/{path}")
            facts[tuple(path.split("/"))] = FileFacts(kind=kind_of(status), mode=stat.S_IMODE(status.st_mode))
    return Snapshot(facts, tuple(unseen))


def digest_snapshot(snapshot: Snapshot) -> str:
    """Return the SHA-256 of all facts. It is equal for folders with equal content, and for copies.

    Only the owner's permissions count, because other permissions depend on the umask of the checkout.
    """
    total = hashlib.sha256()
    for names, facts in sorted(snapshot.facts.items(), key=lambda item: item[0]):
        row = (storable_text("/".join(names)), facts.kind, facts.mode & 0o700, facts.size, facts.sha256, facts.target)
        total.update(repr(row).encode())
    return total.hexdigest()


def storable_text(name: str) -> str:
    """Return a path or a link's target as text that can be stored. Bytes that are not UTF-8 become escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _hash_file(entry: TreeEntry, room: int) -> tuple[int, str | None]:
    """Return the bytes that were read and their hash, None for an unreadable file or one that grew beyond `room`."""
    try:
        file = os.fdopen(open_file(entry.folder, entry.names[-1], linked=True), "rb", buffering=0)
    except (PathRefusedError, OSError):
        return entry.stat.st_size, None
    hashed, size = hashlib.sha256(), 0
    with file:
        while chunk := file.read(_CHUNK):
            hashed.update(chunk)
            size += len(chunk)
            if size > room:
                return size, None
    return size, hashed.hexdigest()


def _link_target(entry: TreeEntry) -> str | None:
    try:
        return storable_text(os.readlink(entry.names[-1], dir_fd=entry.folder))
    except OSError:  # the link was replaced
        return None


MAX_CHANGES = 1_000
"""Maximum changes stored for a run."""

MAX_TEXT = 256 * 2**10
"""Maximum bytes of a text that is compared line by line."""

MAX_DIFF = 20_000
"""Maximum characters of one file's diff."""

MAX_DIFFS = 200_000
"""Maximum characters of all diffs of a run."""

_MAX_STEPS = 50_000_000  # one or two seconds for a text that an agent wrote to slow the comparison
_CONTEXT = 3

Change = Literal["added", "removed", "modified", "renamed", "mode"]
Facts = Mapping[Names, FileFacts]


def compare_snapshots(
    before: Snapshot, after: Snapshot, old: Path | None, new: Workspace, wanted: Collection[str] = ()
) -> tuple[list[FileChange], int]:
    """Return the changes, sorted by path, and the number of omitted ones. Changes of `wanted` paths have precedence.

    `new` is the workspace and `old` the folder it was a copy of. Their texts are read if they still match the
    snapshots.
    """
    every = sorted(_find_changes(before, after), key=lambda change: (change[1].path not in wanted, change[0]))
    room = MAX_DIFFS
    changes: list[FileChange] = []
    for names, change in every[:MAX_CHANGES]:
        if change.change in ("added", "removed", "modified"):
            change = _add_diff("/".join(names), change, old, new, min(room, MAX_DIFF))
            room -= len(change.diff or "")
        changes.append(change)
    return sorted(changes, key=lambda change: change.path.split("/")), len(every) - len(changes)


def _find_changes(before: Snapshot, after: Snapshot) -> Iterator[tuple[Names, FileChange]]:
    removed = {names: facts for names, facts in before.facts.items() if names not in after.facts}
    added = {names: facts for names, facts in after.facts.items() if names not in before.facts}
    # A folder needs no change of its own if its content has changes
    parents = {names[:-1] for names in (*removed, *added)}
    for old, names in _find_renames(removed, added):
        yield names, _make_change("renamed", names, removed.pop(old), added.pop(names), renamed_from=_stored_path(old))
    for names, facts in removed.items():
        if names not in parents and not any(_stored_path(names).startswith(f"{folder}/") for folder in after.unseen):
            yield names, _make_change("removed", names, facts, None)
    for names, facts in added.items():
        if names not in parents:  # otherwise its new content shows that it is new
            yield names, _make_change("added", names, None, facts)
    for names, old_facts in before.facts.items():
        new_facts = after.facts.get(names)
        if new_facts is not None and (kind := _change_kind(old_facts, new_facts)) is not None:
            yield names, _make_change(kind, names, old_facts, new_facts)


def _make_change(
    kind: Change, names: Names, before: FileFacts | None, after: FileFacts | None, renamed_from: str | None = None
) -> FileChange:
    return FileChange(path=_stored_path(names), change=kind, before=before, after=after, renamed_from=renamed_from)


def _stored_path(names: Names) -> str:
    return storable_text("/".join(names))


def _find_renames(removed: Facts, added: Facts) -> list[tuple[Names, Names]]:
    """Return the pairs of old and new paths of renamed files. Each file is used once.

    Empty files are all equal, so they do not count.
    """
    gone: dict[str, list[Names]] = defaultdict(list)
    for names, facts in sorted(removed.items(), key=_names_of, reverse=True):  # `pop` then takes the first by name
        if facts.sha256 is not None and facts.size:
            gone[facts.sha256].append(names)
    pairs = ((gone.get(facts.sha256 or ""), names) for names, facts in sorted(added.items(), key=_names_of))
    return [(olds.pop(), names) for olds, names in pairs if olds]


def _names_of(item: tuple[Names, FileFacts]) -> Names:
    return item[0]


def _change_kind(old: FileFacts, new: FileFacts) -> Change | None:
    """Return how one path differs, or None. A file without a hash has unknown content, so it counts as modified."""
    unknown = new.kind == "file" and new.sha256 is None
    if unknown or (old.kind, old.size, old.sha256, old.target) != (new.kind, new.size, new.sha256, new.target):
        return "modified"
    if old.mode != new.mode:
        return "mode"
    return None


class _NoDiffError(Exception):
    """Raised if there is no diff of a text; the message is the reason."""


def _add_diff(path: str, change: FileChange, old: Path | None, new: Workspace, room: int) -> FileChange:
    """Return the change with its diff in at most `room` characters; links, folders and the like have none."""
    if not any(facts is not None and facts.kind == "file" for facts in (change.before, change.after)):
        return change
    if room <= 0:
        return change.model_copy(update={"note": "not shown: too much text was changed"})
    try:
        old_lines = _read_lines(
            path, change.before, old, linked=True
        )  # a template is trusted, so hard links are allowed
        lines = _diff_lines(old_lines, _read_lines(path, change.after, new.path, linked=False))
    except _NoDiffError as reason:
        return change.model_copy(update={"note": str(reason)})
    number = len(list(takewhile(lambda end: end <= room, accumulate(map(len, lines)))))
    cut = len(lines) - number
    note = f"the diff is cut: {cut:,} more lines" if cut else None
    return change.model_copy(update={"diff": "".join(lines[:number]) or None, "note": note})


def _read_lines(path: str, facts: FileFacts | None, root: Path | None, *, linked: bool) -> list[str]:
    """Return the lines of a text with their ends. `linked` allows files with several hard links.

    Raises _NoDiffError if the file is not text, too large, unreadable or changed.
    """
    if facts is None or facts.kind != "file":
        return []
    if facts.sha256 is None:
        raise _NoDiffError("not compared: it was not read")
    if facts.size is None or facts.size > MAX_TEXT:
        raise _NoDiffError(f"over {MAX_TEXT // 1024} kB")
    try:
        content = b"" if root is None else _read_content(root, path, linked=linked)
        text = content.decode()
    except UnicodeDecodeError:
        raise _NoDiffError("binary") from None
    except (PathRefusedError, OSError) as error:
        raise _NoDiffError(f"not compared: {error}") from error
    if hashlib.sha256(content).hexdigest() != facts.sha256:
        raise _NoDiffError("not compared: its content changed after the run ended")
    if "\0" in text:
        raise _NoDiffError("binary")
    # Not splitlines, which also splits at form feeds and Unicode's separators
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def _read_content(root: Path, path: str, *, linked: bool) -> bytes:
    *folders, name = path.split("/")
    with (
        open_folder(str(root), folders) as folder,
        os.fdopen(open_file(folder, name, linked=linked), "rb") as file,
    ):
        return file.read(MAX_TEXT + 1)


def _diff_lines(old: list[str], new: list[str]) -> list[str]:
    """Return the lines of a unified diff. Raises _NoDiffError where finding it takes too long."""
    # Equal beginnings and ends are removed first, because difflib takes time for equal lines as well
    before = _count_common_lines(old, new)
    after = _count_common_lines(old[before:][::-1], new[before:][::-1])
    ours, theirs = old[before : len(old) - after], new[before : len(new) - after]
    if _count_diff_steps(ours, theirs) > _MAX_STEPS:
        raise _NoDiffError(f"not compared: {len(ours):,} lines became {len(theirs):,} others")
    aligned = difflib.SequenceMatcher[str]()
    aligned.opcodes = [  # type: ignore[attr-defined]  # the middle's, between the equal ends
        ("equal", 0, before, 0, before),
        *(
            (tag, *(before + index for index in where))
            for tag, *where in difflib.SequenceMatcher(None, ours, theirs).get_opcodes()
        ),
        ("equal", len(old) - after, len(old), len(new) - after, len(new)),
    ]
    return [line for group in aligned.get_grouped_opcodes(_CONTEXT) for line in _hunk_lines(group, old, new)]


def _hunk_lines(group: Sequence[tuple[str, int, int, int, int]], old: list[str], new: list[str]) -> Iterator[str]:
    (_, old_start, _, new_start, _), (_, _, old_stop, _, new_stop) = group[0], group[-1]
    yield f"@@ -{_hunk_range(old_start, old_stop)} +{_hunk_range(new_start, new_stop)} @@\n"
    for tag, old_start, old_stop, new_start, new_stop in group:
        if tag == "equal":
            yield from (_mark_missing_newline(f" {line}") for line in old[old_start:old_stop])
        else:
            yield from (_mark_missing_newline(f"-{line}") for line in old[old_start:old_stop])
            yield from (_mark_missing_newline(f"+{line}") for line in new[new_start:new_stop])


def _hunk_range(start: int, stop: int) -> str:
    """Return lines in the form of a hunk's header, counted from 1. An empty range names the line before."""
    lines = stop - start
    if lines == 1:
        return f"{start + 1}"
    if lines:
        return f"{start + 1},{lines}"
    return f"{start},0"


def _count_diff_steps(old: list[str], new: list[str]) -> int:
    """Return an upper bound of difflib's steps: all pairs of equal lines for each common block, except popular ones."""
    # With 200 lines or more difflib ignores lines that make up over 1 % of them (its `autojunk`)
    popular = len(new) // 100 + 1 if len(new) >= 200 else len(new)
    of_old = Counter(old)
    pairs = sum(count * of_old[line] for line, count in Counter(new).items() if count <= popular)
    return min(len(old), len(new)) * pairs


def _count_common_lines(one: list[str], other: list[str]) -> int:
    """Return the number of equal lines at the beginning of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _mark_missing_newline(line: str) -> str:
    if line.endswith("\n"):
        return line
    return f"{line}\n\\ No newline at end of file\n"
