"""One output folder that two processes use at once: each sees what the other one stores."""

from __future__ import annotations

import pytest

from pytest_agentbench.store.database import LARGEST, Documents
from pytest_agentbench.store.layout import lay_out

FOLDER, NAMES = "runs/suit_default/profile/model/case", ("run_1.json", "run_1.01234567.json")
OTHER_SUITE = "runs/suit_smoke/profile/model/case"


@pytest.fixture
def two(tmp_path):
    """The documents as two processes open them, the first of which has found nothing so far."""
    first, second = Documents(str(tmp_path)), Documents(str(tmp_path))
    first.put("judgements/ab/first.json", b"{}")
    assert first.read(f"{FOLDER}/run_1.json") is None
    assert not [*first.find(FOLDER, NAMES)]
    yield first, second
    first.close()
    second.close()


@pytest.mark.parametrize("size", [10, LARGEST, LARGEST + 1])
@pytest.mark.parametrize("folder", [FOLDER, OTHER_SUITE])
def test_documents_of_another_process_are_found_at_any_size(two, size, folder):
    first, second = two
    content = b"x" * size
    second.put(f"{folder}/run_1.json", content)
    assert [*first.find(FOLDER, NAMES)] == [(f"{folder}/run_1.json", content)]
    assert first.read(f"{folder}/run_1.json") == content
    assert first.size(f"{folder}/run_1.json") == size


@pytest.mark.parametrize("size", [10, LARGEST + 1])
def test_documents_moved_by_another_process_are_found_only_in_their_new_place(two, size):
    first, second = two
    old, new = (f"{FOLDER}/{name}" for name in NAMES)
    for _ in range(2):  # the second time onto what lies there
        first.put(old, b"x" * size)
        modified = first.modified(old)
        second.move(old, new)
        assert [*first.find(FOLDER, NAMES)] == [(new, b"x" * size)]
        assert (first.modified(old), first.modified(new)) == (None, modified)
        assert first.names(FOLDER) == [NAMES[1]]


@pytest.mark.parametrize("size", [10, LARGEST + 1])
def test_moving_a_document_moves_its_laid_out_file(two, size, tmp_path):
    first, second = two
    old, new = (f"{FOLDER}/{name}" for name in NAMES)
    second.put(new, b"y" * size)
    first.put(old, b"x" * size)
    lay_out(first)
    second.move(old, new)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [NAMES[1]]
    assert (tmp_path / new).read_bytes() == b"x" * size
    second.remove(new)
    assert not (tmp_path / FOLDER).exists()
    assert first.names(FOLDER) == []


def test_a_large_document_that_becomes_a_small_one_leaves_no_file(two, tmp_path):
    first, second = two
    path = f"{FOLDER}/run_1.json"
    first.put(path, b"x" * (LARGEST + 1))
    second.put(path, b"small")
    assert first.read(path) == b"small"
    assert not (tmp_path / path).exists()
    second.put(path, b"y" * (LARGEST + 1))
    assert first.read(path) == b"y" * (LARGEST + 1)


def test_moving_a_missing_document_changes_nothing(two):
    first, second = two
    old, new = (f"{FOLDER}/{name}" for name in NAMES)
    second.put(new, b"kept")
    first.move(old, new)
    assert second.read(new) == b"kept"
