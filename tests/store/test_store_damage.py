"""Databases with damaged pages: what a damaged page costs, before and after `agentbench store repair`."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from pytest_agentbench.cli import main
from pytest_agentbench.store.database import LARGEST, Documents, open_documents
from pytest_agentbench.store.output_folder import DATABASE
from pytest_agentbench.store.salvage import TABLE_LEAF, open_pages

PAGE = 8192
CASES = 120
OTHER = "runs/suit_other/run_profile_12345678/gpt"
MODEL = "runs/suit_default/run_profile_12345678/gpt"


def content(number: int) -> bytes:
    """A document; each tenth takes several pages, and two are files."""
    length = LARGEST + 1 if number in (40, 41) else 30_000 if number % 10 == 3 else 900
    return b'{"number":%d,"text":"%s"}' % (number, random.Random(number).randbytes(length // 2).hex().encode())


def place(number: int) -> str:
    return f"{OTHER if number % 7 == 0 else MODEL}/case-{number}-{'x' * 60}/run_1.json"


@pytest.fixture
def output(tmp_path) -> Path:
    documents = open_documents(tmp_path)
    for number in range(CASES):
        documents.put(place(number), content(number))
    for number in range(200, 230):  # leaves free pages
        documents.put(place(number), content(number))
    for number in range(200, 230):
        documents.remove(place(number))
    documents.close()
    return tmp_path


def list_pages(output: Path, where: str) -> list[int]:
    with contextlib.closing(sqlite3.connect(output / DATABASE)) as database:
        return [page for (page,) in database.execute(f"SELECT pageno FROM dbstat WHERE {where}")]


def list_free_pages(output: Path) -> list[int]:
    with (output / DATABASE).open("rb") as file:
        trunk = int.from_bytes(file.read(PAGE)[32:36])
        assert trunk
        return [trunk]


DOCUMENTS, INDEX = "name = 'documents' AND pagetype = '%s'", "name = 'sqlite_autoindex_documents_1' AND pagetype = '%s'"
DAMAGE = {
    "rows": DOCUMENTS % "leaf",
    "inner page of the rows": DOCUMENTS % "internal",
    "overflow": DOCUMENTS % "overflow",
    "index": INDEX % "leaf",
    "inner page of the index": INDEX % "internal",
    "folders": "name = 'folders'",
    "index of folders": "name = 'sqlite_autoindex_folders_1'",
    "header": "pageno = 1",
    "free page": None,
    "end": None,
}
FAST = ("rows", "header")
FILLS = {"zeros": lambda _: bytes(PAGE), "noise": lambda page: random.Random(page).randbytes(PAGE)}
NOTHING_LOST = (
    "inner page of the rows", "index", "inner page of the index", "folders", "index of folders", "header", "free page",
)  # fmt: skip


def damage(output: Path, kind: str, fill: str) -> None:
    if kind == "end":
        os.truncate(output / DATABASE, (output / DATABASE).stat().st_size // 2)
        return
    pages = list_pages(output, DAMAGE[kind]) if DAMAGE[kind] else list_free_pages(output)
    with (output / DATABASE).open("r+b") as file:
        for page in pages[len(pages) // 2 :][:1]:
            file.seek((page - 1) * PAGE)
            file.write(FILLS[fill](page))


def read_all(output: Path) -> list[bool]:
    """Which documents are read, each of them whole."""
    documents = open_documents(output)
    found = [documents.read(place(number)) for number in range(CASES)]
    return [each == content(number) for number, each in enumerate(found)]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in DAMAGE]
)
def test_repair_loses_the_documents_of_the_damaged_page_only_and_names_them(output, capsys, kind, fill):
    damage(output, kind, fill)
    before = (output / DATABASE).read_bytes()
    code = main(["store", "repair", "--output", str(output)])
    printed = capsys.readouterr().out.splitlines()
    found = read_all(output)
    lost = [f"lost {place(number)}" for number, is_whole in enumerate(found) if not is_whole]
    if kind == "end":
        assert "lost the last 42 pages of the file" in printed[-2]
    else:
        assert sorted(printed[:-1]) == sorted(lost)
        # Free pages hold removed documents, unless SQLite is built with SECURE_DELETE
        assert kind == "free page" or printed[-1].startswith(f"saved {CASES - len(lost)} documents")
        assert f"lost {len(lost)};" in printed[-1]
    assert code == bool(lost)
    most = 0 if kind in NOTHING_LOST else CASES * 0.6 if kind == "end" else CASES / 10
    assert (kind not in NOTHING_LOST) <= len(lost) <= most
    assert (output / f"{DATABASE}.damaged").read_bytes() == before
    assert open_documents(output).find_damage() is None
    for number in (number for number, is_whole in enumerate(found) if not is_whole):
        open_documents(output).put(place(number), content(number))
    assert all(read_all(output))
    assert main(["store", "repair", "--output", str(output)]) == 0
    assert "is not damaged" in capsys.readouterr().out


def store_run(documents: Documents, number: int) -> None:
    """Stores a document as sessions do, next to one that belongs to it."""
    added = documents.add(place(number), content(number))
    documents.put(place(number).replace("run_1.json", "run_1.fingerprint_input.json"), b"{}")
    if not added:
        documents.put(place(number), content(number))


@pytest.mark.slow
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if kind not in ("header", "end")])
def test_a_damaged_database_takes_the_lost_documents_again(output, kind, fill):
    """Before it is repaired: with one warning, and each document is found once it is stored anew."""
    damage(output, kind, fill)
    documents, warnings = open_documents(output), []
    documents.warn = warnings.append
    missing = [number for number, is_whole in enumerate(read_all(output)) if not is_whole]
    for number in missing:
        folder, _, name = place(number).rpartition("/")
        assert [*documents.find(folder, (name, name))] == []
        documents.store(partial(store_run, documents, number))
    assert all(read_all(output))
    assert len(warnings) == (bool(missing) or kind == "index of folders")
    assert all("agentbench store repair --output" in line for line in warnings)
    documents.close()
    assert all(read_all(output))
    main(["store", "repair", "--output", str(output)])
    assert all(read_all(output))


def test_a_log_that_names_any_page_number_takes_no_time(output):
    frame = (2**32 - 1).to_bytes(4) + (1).to_bytes(4) + bytes(16) + bytes(PAGE)
    Path(f"{output / DATABASE}-wal").write_bytes(
        bytes.fromhex("377f0682") + bytes(4) + PAGE.to_bytes(4) + bytes(20) + frame
    )
    with contextlib.closing(open_pages(output / DATABASE)) as pages:
        assert sum(1 for _ in pages.list_rows(TABLE_LEAF, 5)) >= CASES


def test_a_log_that_a_killed_session_left_is_salvaged_too(output, tmp_path):
    documents = open_documents(output)
    documents.put(place(0), b'{"later":1}')
    (tmp_path / "log").write_bytes(Path(f"{output / DATABASE}-wal").read_bytes())
    (tmp_path / "kept").write_bytes((output / DATABASE).read_bytes())
    documents.close()
    Path(f"{output / DATABASE}-wal").write_bytes((tmp_path / "log").read_bytes())
    (output / DATABASE).write_bytes(bytes(PAGE) + (tmp_path / "kept").read_bytes()[PAGE:])
    main(["store", "repair", "--output", str(output)])
    assert open_documents(output).read(place(0)) == b'{"later":1}'
    assert read_all(output) == [False] + [True] * (CASES - 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "index"])
@pytest.mark.parametrize("command", [["prune"], ["verify"], ["export", "--files"]])
def test_commands_report_a_damaged_database_and_the_repair_command(output, capfd, kind, command):
    damage(output, kind, "zeros")
    before = (output / DATABASE).read_bytes()
    assert main(["store", *command, "--output", str(output)]) == 1
    printed = capfd.readouterr()
    if command != ["export", "--files"]:  # the warning is a line of the log
        assert "agentbench store repair --output" in printed.out + printed.err
    open_documents(output).close()
    assert (output / DATABASE).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no database" * 1_000, b"SQLite format 3\x00" + b"\xff" * 20_000])
def test_a_file_without_documents_is_left_alone(tmp_path, capsys, content):
    (tmp_path / DATABASE).write_bytes(content)
    assert main(["store", "repair", "--output", str(tmp_path)]) == (1 if content else 0)
    assert (tmp_path / DATABASE).read_bytes() == content
    assert os.listdir(tmp_path) == [DATABASE]


@pytest.mark.slow
def test_random_damage_raises_no_error_of_sqlite(output):
    """Whatever is damaged, what is read is whole, and repair saves all but a few documents."""
    whole = (output / DATABASE).read_bytes()
    for seed in range(60):
        draw = random.Random(seed)
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 3])):
            at = draw.randrange(PAGE, len(whole) - 600)
            length = draw.choice([1, 20, 600])
            damaged[at : at + length] = draw.randbytes(length)
        open_documents(output).close()
        for path in output.iterdir():
            if path.is_file():
                path.unlink()
        (output / DATABASE).write_bytes(damaged)
        documents = open_documents(output)
        documents.warn = lambda line: None
        for number in range(CASES):
            documents.read(place(number))
            [*documents.find(place(number).rpartition("/")[0], ("run_1.json", "run_1.aa.json"))]
        documents.put(place(300), b"{}")
        documents.close()
        main(["store", "repair", "--output", str(output)])
        assert sum(read_all(output)) > CASES - 40, seed
