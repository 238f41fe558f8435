"""Files of columns that were made to fill the memory or the disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from pytest_agentbench.bounded.columns import require_bounded_columns

MIB = 2**20
pytestmark = pytest.mark.slow


def many(count: int, size: int = MIB) -> pyarrow.Table:
    """One text, and so many references to it."""
    references = pyarrow.array([0] * count, pyarrow.int32())
    return pyarrow.table({"question": pyarrow.DictionaryArray.from_arrays(references, ["x" * size])})


def test_a_small_parquet_file_that_unpacks_to_terabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(many(1_000_000), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 40_000
    with pytest.raises(ValueError, match=r"rows\.parquet: found a row group of more than 1,073,741,824 bytes unpacked"):
        require_bounded_columns(path)


def test_many_small_groups_are_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(many(3_000), path, compression="zstd", store_schema=False, row_group_size=100)
    with pytest.raises(ValueError, match="unpack to more than 1,073,741,824 bytes, the most for a file of its size"):
        require_bounded_columns(path)


def test_a_packed_batch_that_takes_all_memory_at_once_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    text = pyarrow.array([b"x" * (300 * MIB)], pyarrow.large_binary())
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    table = pyarrow.table({str(at): text for at in range(4)})
    with pyarrow.ipc.new_stream(path, table.schema, options=options) as writer:
        writer.write_table(table)
    assert path.stat().st_size < MIB
    with pytest.raises(ValueError, match=r"rows\.arrow: found a row group of more"):
        require_bounded_columns(path)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "file.arrow"])
def test_others_are_left_to_be_read(name: str, tmp_path: Path) -> None:
    path, table = tmp_path / name, pyarrow.table({"question": ["one", "two"], "answer": [1, 2]})
    if name == "rows.parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        make = pyarrow.ipc.new_file if name == "file.arrow" else pyarrow.ipc.new_stream
        with make(path, table.schema) as writer:
            writer.write_table(table)
    require_bounded_columns(path)
    path.write_bytes(b"no columns at all")
    require_bounded_columns(path)  # its library says what is wrong with it
