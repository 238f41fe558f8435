"""The knowledge base: what reports add is there once, whoever adds it and whatever dies meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from support.small_disk import small_disk

from pytest_agentbench.errors import ConfigError, UnwritableError
from pytest_agentbench.packs.research.knowledge import Contribution, KnowledgeBase, make_contribution, make_unit


def added(task: str, *texts: str, model: str = "gpt", article: str = "text", batch: str | None = None) -> Contribution:
    return make_contribution(model, task, f"prompt of {task}", article, [make_unit(text, 0.5) for text in texts], batch)


def texts(units: list) -> list[str]:
    return [each.text for each in units]


def test_later_reports_of_a_model_know_the_units_of_earlier_ones(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "base.jsonl"
    assert KnowledgeBase(path).contribute(added("1", "Tin melts.", "Lead melts.")) == []
    base = KnowledgeBase(path)
    assert texts(base.contribute(added("2", "tin  MELTS.", "Zinc melts."))) == ["Tin melts.", "Lead melts."]
    assert base.contribute(added("3", "Iron rusts.", model="claude")) == []
    assert texts(base.contribute(added("4"))) == ["tin  MELTS.", "Lead melts.", "Zinc melts."]  # the same unit once
    assert len(path.read_text().splitlines()) == 4


def test_a_report_that_is_scored_again_adds_nothing_and_knows_the_same(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    first, second = added("1", "Tin melts."), added("2", "Lead melts.")
    base = KnowledgeBase(path)
    known = [base.contribute(each) for each in (first, second, first, second)]
    content = path.read_bytes()
    assert known[:2] == known[2:] == [[], list(first.units)]
    again = KnowledgeBase(path)
    assert [again.contribute(each) for each in (second, first)] == [known[1], []]
    assert path.read_bytes() == content


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_reports_of_a_batch_know_the_units_from_before_the_batch(tmp_path: Path, order: tuple[int, ...]) -> None:
    path = tmp_path / "base.jsonl"
    KnowledgeBase(path).contribute(added("0", "Iron rusts."))
    batch = [added(str(n), f"Fact {n}.", batch="a") for n in (1, 2, 3)]
    assert [texts(KnowledgeBase(path).contribute(batch[n])) for n in order] == [["Iron rusts."]] * 3
    changed = added("1", article="another text", batch="b")
    assert texts(KnowledgeBase(path).contribute(changed)) == ["Iron rusts.", *(f"Fact {n + 1}." for n in order if n)]
    late = added("4", batch="a")  # its session was interrupted
    assert texts(KnowledgeBase(path).contribute(late)) == ["Iron rusts."]
    assert len(KnowledgeBase(path).contribute(added("5"))) == 4


def test_another_article_on_the_task_does_not_know_its_own_tasks_units(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "base.jsonl")
    base.contribute(added("1", "Tin melts."))
    assert base.contribute(added("1", "Tin melts.", article="a better text")) == []


def test_other_units_of_the_same_report_are_kept_too(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "base.jsonl")
    base.contribute(added("1", "Tin melts."))
    base.contribute(added("1", "Lead melts."))  # another judge
    assert texts(base.contribute(added("2"))) == ["Tin melts.", "Lead melts."]


def test_units_are_known_for_as_long_as_they_are_retained(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    old = added("1", "Tin melts.")
    KnowledgeBase(path).contribute(old.model_copy(update={"added": old.added - timedelta(days=40)}))
    new = added("2")
    assert KnowledgeBase(path, retention_days=30).contribute(new) == []
    assert texts(KnowledgeBase(path, retention_days=50).contribute(new)) == ["Tin melts."]
    later = new.model_copy(update={"added": new.added + timedelta(days=400)})
    assert texts(KnowledgeBase(path, retention_days=50).contribute(later)) == ["Tin melts."]  # it was entered long ago


@pytest.mark.parametrize("cut", [1, 20, -2])
def test_a_half_written_last_line_is_taken_off_and_named(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "base.jsonl"
    KnowledgeBase(path).contribute(added("1", "Tin melts."))
    whole = path.read_bytes()
    half = added("2", "Lead melts.").model_dump_json().encode()
    path.write_bytes(whole + half[:cut])
    assert texts(KnowledgeBase(path).contribute(added("3"))) == ["Tin melts."]
    assert f"{path}: its last line was half written" in caplog.text
    assert path.read_bytes().startswith(whole)
    assert [json.loads(line)["task_id"] for line in path.read_text().splitlines()] == ["1", "3"]


def test_a_last_line_without_its_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    KnowledgeBase(path).contribute(added("1", "Tin melts."))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert texts(KnowledgeBase(path).contribute(added("2"))) == ["Tin melts."]
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1, 2]", "line: Input should be an object"),
        ("{", "line: Invalid JSON"),
        ('{"model": "gpt"}', "task_id"),
        (added("1", "x").model_dump_json().replace("0.5", "1.5"), "units.0.quality"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "base.jsonl"
    KnowledgeBase(path).contribute(added("1", "Tin melts."))
    with path.open("a") as file:
        file.write(f"\n{line}\n")
    content = path.read_bytes()
    with pytest.raises(ConfigError) as error:
        KnowledgeBase(path).contribute(added("2"))
    assert str(error.value).startswith(f"{path}:3:1: ")
    assert said in str(error.value)
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableError, match=r"base.jsonl: cannot be added to"):
        KnowledgeBase(tmp_path / "file" / "base.jsonl").contribute(added("1"))


WRITER = """
import sys
from pathlib import Path
from pytest_agentbench.packs.research.knowledge import KnowledgeBase, make_contribution, make_unit
path, name = Path(sys.argv[1]), sys.argv[2]
base = KnowledgeBase(path)
for n in range(200):
    base.contribute(make_contribution("gpt", f"{name}-{n}", f"{name} {n}", "text", [make_unit(f"Fact {n % 10}.", 0.5)]))
"""


@pytest.mark.slow
def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    tasks = [json.loads(line)["task_id"] for line in path.read_text().splitlines()]
    assert sorted(tasks) == sorted(f"{name}-{n}" for name in "ab" for n in range(200))
    assert len(KnowledgeBase(path).contribute(added("last"))) == 10


KILLED = """
import resource, signal, sys
from pathlib import Path
from pytest_agentbench.packs.research.knowledge import KnowledgeBase, make_contribution, make_unit
path = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100,) * 2)
KnowledgeBase(path).contribute(make_contribution("gpt", "2", "prompt of 2", "text", [make_unit("Lead melts.", 0.5)]))
"""


@pytest.mark.slow
def test_a_process_that_dies_within_a_line_leaves_the_lines_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "base.jsonl"
    KnowledgeBase(path).contribute(added("1", "Tin melts."))
    whole = path.read_bytes()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert killed.returncode == -signal.SIGXFSZ
    assert len(path.read_bytes()) == len(whole) + 100
    assert texts(KnowledgeBase(path).contribute(added("3"))) == ["Tin melts."]
    assert "half written" in caplog.text
    assert [json.loads(line)["task_id"] for line in path.read_text().splitlines()] == ["1", "3"]


def test_a_full_or_read_only_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as remount:
        path = tmp_path / "disk" / "base.jsonl"
        base = KnowledgeBase(path)
        base.contribute(added("1", "Tin melts."))
        whole = path.read_bytes()
        with pytest.raises(UnwritableError, match=r"base.jsonl: cannot be added to: No space left"):
            base.contribute(added("2", "Lead melts. " * 10_000))
        remount("ro")
        with pytest.raises(UnwritableError, match=r"base.jsonl: cannot be added to: Read-only"):
            KnowledgeBase(path).check()
        remount("rw,size=1m")
        assert texts(base.contribute(added("3", "Zinc melts."))) == ["Tin melts."]
        assert path.read_bytes().startswith(whole)
        assert [json.loads(line)["task_id"] for line in path.read_text().splitlines()] == ["1", "3"]


def test_half_a_surrogate_pair_is_written_as_a_question_mark(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    report = added("1\ud800", "Tin \ud800 melts.", model="g\udcff", article="\ud800")
    assert KnowledgeBase(path).contribute(report) == []
    assert KnowledgeBase(path).contribute(report) == []
    assert texts(KnowledgeBase(path).contribute(added("2", model="g\udcff"))) == ["Tin ? melts."]
    assert len(path.read_text().splitlines()) == 2
