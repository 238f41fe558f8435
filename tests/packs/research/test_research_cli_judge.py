"""The judge of `agentbench research`: which one it is, what each request has, what its failures do."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.fault_endpoint import Choose, always, in_order
from support.race_judge import RaceJudge

from pytest_agentbench.cli import main
from pytest_agentbench.models.ledger import Ledger
from pytest_agentbench.packs.research.call import show_progress


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three queries in `data`; what is declared stands beside that folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rows = [{"id": n, "prompt": f"{name}, worth {n}?"} for n, name in enumerate(("Tea", "Coffee", "Milk"), 3)]
    Path("data/queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def select(*options: str) -> int:
    return main(["research", "select-queries", "--input_file", "data/queries.jsonl", *options])


def scores() -> list[dict[str, Any]]:
    return json.loads(Path("data/query_scores.json").read_text())


def profile(*judges: dict[str, Any]) -> None:
    found = {"schema_version": 1, "evaluation_profile_id": "strict", "title": "Strict", "judges": judges}
    Path("evaluation_profiles").mkdir(exist_ok=True)
    Path("evaluation_profiles/strict.yaml").write_text(json.dumps(found))


def only(fault: Choose, words: str) -> Choose:
    """The fault for requests whose message has these words."""
    return lambda message, nth: fault(message, nth) if words in message else "ok"


def test_the_judge_of_a_profile_is_asked_with_its_options(judge: RaceJudge) -> None:
    main_judge = {"judge_id": "main", "type": "llm_probe", "model": "strict-judge"}
    profile({"judge_id": "none", "type": "llm_probe"}, main_judge)
    assert select("--profile", "strict") == 0
    assert {request.body["model"] for request in judge.requests} == {"strict-judge"}
    assert all("temperature" not in request.body for request in judge.requests)
    profile({**main_judge, "temperature": 0.2, "request_options": {"seed": 7}})
    assert select("--profile", "strict") == 0
    assert len(judge.requests) == 6
    assert all((each.body["temperature"], each.body["seed"]) == (0.2, 7) for each in judge.requests[3:])
    assert select("--profile", "strict") == 0
    assert len(judge.requests) == 6
    assert select("--profile", "strict", "--judge", "another") == 0
    assert all("temperature" not in request.body for request in judge.requests[6:])
    assert len(judge.requests) == 9


def test_a_parameter_of_the_model_asks_anew_and_its_price_does_not(judge: RaceJudge) -> None:
    def declared(**fields: Any) -> None:
        entry = {"model_id": "mine", "requested_model": "big", "base_url": judge.base_url, "api_key_env": "none"}
        Path("models.yaml").write_text(json.dumps({"schema_version": 1, "models": [{**entry, **fields}]}))

    declared()
    assert select("--judge", "mine", "--limit", "1") == 0
    declared(prices={"input_per_1m": 1, "output_per_1m": 1}, limits={"max_concurrency": 2})
    assert select("--judge", "mine", "--limit", "1") == 0
    assert len(judge.requests) == 1
    declared(parameters={"temperature": 0.5})
    assert select("--judge", "mine", "--limit", "1") == 0
    assert len(judge.requests) == 2
    assert judge.requests[1].body["temperature"] == 0.5


def test_profiles_that_name_no_judge(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    profile({"judge_id": "own", "type": "of_a_plugin", "model": "x"})
    assert select("--profile", "strict") == 1
    assert "found no judge of type llm_probe with a model" in capsys.readouterr().err
    assert select("--profile", "nobody") == 1
    assert "there is no evaluation profile 'nobody'" in capsys.readouterr().err
    assert judge.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["429-retry-after", "500", "cut", "cut-body"])
def test_a_transient_fault_is_retried_and_does_not_change_scores(judge: RaceJudge, fault: str) -> None:
    judge.choose = only(in_order(fault), "Coffee")
    assert select() == 0
    assert judge.faults == {"ok": 3, fault: 1}
    assert [each["scoring_result"]["overall_score"] for each in scores()] == [3, 4, 5]


@pytest.mark.parametrize(
    ("fault", "requests", "said"),
    [
        ("401", 1, "Incorrect API key provided"),
        # The form of reply may be what is refused: it is asked for once more without
        ("404", 2, "The model does not exist"),
        ("400", 2, "Unsupported parameter"),
    ],
)
def test_a_refusal_fails_its_row_alone_and_only_that_is_asked_again(
    judge: RaceJudge, fault: str, requests: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    judge.choose = only(lambda message, nth: fault, "Coffee")
    assert select("--export_selected") == 1
    assert [each.get("query_number") for each in scores()] == [3, 4, 5]
    assert said in scores()[1]["select_error"]
    out, err = capsys.readouterr()
    assert re.search(rf"^select: 4: .*{said}", err, re.MULTILINE)
    assert out.splitlines()[3].split() == ["select", "3", "2", "1"]
    assert len(judge.requests) == 2 + requests
    judge.choose = lambda message, nth: "ok"
    assert select("--export_selected") == 0
    assert len(judge.requests) == 3 + requests
    assert "select_error" not in scores()[1]


def test_costs_are_reported_even_if_the_results_cannot_be_written(
    judge: RaceJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(reply: Any, shown: dict[str, str], before: int) -> Any:
        if Path("results").is_dir():
            Path("results").rmdir()
            Path("results").touch()
        return reply

    judge.says["select"] = said
    assert select("--output_dir", "results") == 1
    out, err = capsys.readouterr()
    assert "results/query_scores.json: cannot be written" in err
    lines = [line.split()[:2] for line in out.splitlines()]
    assert lines[1:4] == [["select", "3"], ["judge", "requests"], ["select", "3"]]
    assert select() == 0
    assert len(judge.requests) == 3


@pytest.mark.slow
def test_the_configuration_bounds_how_long_a_request_takes(
    judge: RaceJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    judge.choose = in_order("hang")
    Path("config.json").write_text('{"system_settings": {"timeout_seconds": 0.2}}')
    assert select("--config", "config.json") == 0
    assert judge.faults == {"hang": 3, "ok": 3}
    assert "ignored: " not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "nobody reads"])
def test_stderr_that_takes_nothing_ends_no_stage(judge: RaceJudge, how: str) -> None:
    judge.choose = only(always("401"), "Tea")
    reads, writes = os.pipe()
    os.close(reads)
    words = [sys.executable, "-m", "pytest_agentbench.cli", "research", "select-queries"]
    words += ["--input-file", "data/queries.jsonl"]
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *words] if how == "closed" else words
    settings = {**os.environ, **judge.environ}
    ended = subprocess.run(command, env=settings, stdout=subprocess.PIPE, stderr=writes, text=True, check=False)
    os.close(writes)
    assert ended.returncode == 1
    assert ["select", "3", "2", "1"] in [line.split() for line in ended.stdout.splitlines()]
    assert len(scores()) == 3


def on_a_terminal(*command: str, environ: dict[str, str]) -> str:
    """What a command writes to stderr where that is a terminal of 200 columns."""
    mine, theirs = pty.openpty()
    program = [sys.executable, "-m", "pytest_agentbench.cli", "research", *command]
    settings = {**os.environ, **environ, "COLUMNS": "200", "TERM": "xterm"}
    with subprocess.Popen(program, env=settings, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        try:
            while more := os.read(mine, 4096):
                said += more
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(mine)
    assert process.returncode == 1, said
    return said.decode()


@pytest.mark.slow
def test_a_terminal_shows_a_bar_and_failures_word_for_word(judge: RaceJudge) -> None:
    rows = [json.dumps({"id": f"[/b] :{n}:", "prompt": f"Query {n}, worth 4?"}) for n in range(1, 100)]
    Path("data/queries.jsonl").write_text("\n".join([*rows, '{"id": ":tea:"}', ""]))
    said = on_a_terminal("select-queries", "--input-file", "data/queries.jsonl", environ=judge.environ)
    assert "select: line 100: data/queries.jsonl:100:1: found None as the query's text" in said
    assert "100/100" in said
    assert "1 failed" in said


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_may_be_of_any_model(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with show_progress("race gpt[/b]", 1, Ledger(())) as shown:
        shown.note_failure("[red]:100:", told=False)
    assert "race gpt[/b]" in terminal.getvalue()
    assert "race gpt[/b]: [red]:100:\n" in terminal.getvalue()
