"""Digests of files are those of their present content."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from pytest_agentbench.bounded.digests import digest_file
from pytest_agentbench.bounded.files import FileRefusedError


def test_a_file_is_read_again_after_each_write(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    digests = []
    for text, age in (("a", 0), ("b", 0), ("c", 60), ("d", 61), ("d", 61)):
        file.write_text(text)
        if age:
            os.utime(file, (time.time() - age,) * 2)
        digests.append(digest_file(file))
    assert digests == [hashlib.sha256(text.encode()).hexdigest() for text in "abcdd"]


def test_a_file_over_the_limit_is_refused_though_it_was_digested_before(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("abc")
    os.utime(file, (0, 0))
    digest_file(file)
    with pytest.raises(FileRefusedError, match="more than 2 bytes"):
        digest_file(file, 2)
