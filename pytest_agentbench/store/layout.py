"""The documented layout: documents of the database written as files, for people and other programs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from pytest_agentbench.bounded.folders import lies_below, make_folder
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.store.database import Documents, is_name


def lay_out(documents: Documents, target: str | None = None) -> int:
    """Write all documents to their places in the layout, below `target` or the output folder; return their number."""
    return sum(_lay_out_folder(documents, folder, target or documents.output) for folder in documents.list_leaves())


def lay_out_used(documents: Documents, others: Iterable[str] = ()) -> int:
    """Write the documents in the folders of `Documents.used`, and in some others, to their places in the layout.

    Returns the number of documents.
    """
    used = {*(documents.used or ()), *others}
    # Two folders above a case's folder is the profile's description, which an earlier session may have stored
    folders = {*used, *(folder.rsplit("/", 2)[0] for folder in used)}
    return sum(_lay_out_folder(documents, folder, documents.output) for folder in sorted(folders))


def _lay_out_folder(documents: Documents, folder: str, target: str) -> int:
    if not documents.exist:
        return 0
    # As a step: otherwise a document that another session displaces meanwhile would be written back
    with documents.writing(create=False) if target == documents.output else contextlib.nullcontext():
        rows = documents.read_folder(folder)
        place = f"{target}/{folder}"
        if not lies_below(target, folder):  # another program may have written the database
            return 0
        for name, modified, content in rows:
            if not is_name(name):
                continue
            if content is None:  # a large document, which is a file in the output folder
                if target == documents.output or (content := documents.read(f"{folder}/{name}")) is None:
                    continue
            elif _is_written(f"{place}/{name}", modified, len(content)):
                continue
            make_folder(place)
            write_atomically(place, name, content)
            os.utime(f"{place}/{name}", ns=(modified, modified))
        return len(rows)


def _is_written(path: str, modified: int, size: int) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (status.st_mtime_ns, status.st_size) == (modified, size)
