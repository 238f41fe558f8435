"""The whole pipeline over real reports with a scripted judge: every number that comes out is worked out by hand here.

The two reports of `poet_gpt` come with what the original made of the first one: 20 citations, the pages that they cite
and a label for each. The judge on loopback says these again. The original lost the second report without a word; here
the judge's replies on it are cut off at first, so that it is lost by name, and a second call takes only that up.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.fault_endpoint import FaultEndpoint, last_user

from pytest_agentbench.cli import main

DATA = Path(__file__).parents[3] / "shared" / "data" / "research"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data: {DATA} is not there")

REPORTS = DATA / "poet_gpt" / "raw_data" / "gpt.jsonl"
TITLES = {1: "瑞基奥仑赛注射液医保收录及报销情况调研", 2: "钱币状湿疹国际研究进展与政策落地"}
WEATHER = "今天天气怎么样？"
DIMENSIONS = ("comprehensiveness", "insight", "instruction_following", "readability")

VALUES = {1: 5, 2: 4, 3: 2}
"""Of the queries: the third is none of the reports', and not worth one."""
WEIGHTS = {
    # Means of the five samples: 1: (3 x .4 + 2 x .2) / 5 = .32, .3, .2, (3 x .1 + 2 x .3) / 5 = .18; 2: all alike.
    1: [(0.4, 0.3, 0.2, 0.1)] * 3 + [(0.2, 0.3, 0.2, 0.3)] * 2,
    2: [(0.25, 0.35, 0.25, 0.15)] * 5,
}
SCORES = {
    # (article, reference) by the criteria of each dimension, which weigh .6 and .4.
    1: [[(8, 6), (7, 6)], [(6, 8), (6, 4)], [(9, 7), (9, 2)], [(5, 7), (10, 7)]],
    2: [[(5, 5), (5, 5)], [(4, 6), (4, 6)], [(8, 4), (3, 4)], [(6, 6), (6, 6)]],
}
STRATEGIC = {1: (4, 5, 4, 3, 3, 3, 4, 4), 2: (3, 3, 3, 3, 2, 3, 2, 3)}
STRATEGIC_NAMES = (
    *("multi_step_reasoning", "domain_expertise", "synthesis_capability", "independence"),
    *("knowledge_extraction", "knowledge_organization", "knowledge_reuse_potential", "knowledge_quality"),
)
KNOWLEDGE = {
    1: [("瑞基奥仑赛注射液定价约129万元/针。", 0.9), ("恶性肿瘤属于浙江省门诊特殊病种。", 0.5)],
    2: [("钱币状湿疹的治疗原则与一般湿疹相似。", 0.8), ("瘙痒。", 0.2)],
}
CITED_BY_2 = [
    (
        "Dupilumab用于钱币状湿疹的II期临床试验是DUPINUM研究。",
        "http://clinicaltrials.gov/study/NCT04600362",
        "supported",
    ),
    ("DUPINUM研究在欧洲进行。", "http://clinicaltrials.gov/study/NCT04600362", "supported"),
    ("DUPINUM研究已经结束。", "http://clinicaltrials.gov/study/NCT04600362", "unsupported"),
    ("Tralokinumab于2021年7月在欧盟获批。", "https://news.yaozh.com/archive/36557.html", "supported"),
    ("KHK-4083已进入国际III期临床。", "https://pubmed.ncbi.nlm.nih.gov/40548467/", "unknown"),
]
PAGES_OF_2 = {
    "http://clinicaltrials.gov/study/NCT04600362": "DUPINUM\n\nDupilumab in nummular eczema\n\nPhase II, in Europe.",
    "https://news.yaozh.com/archive/36557.html": "Tralokinumab\n\n\n\n2021年7月在欧盟获批。",
}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, found: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found), encoding="utf-8")


class Judge:
    """What a model says to each request. It knows the report by its query, its title or its statements."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()
        self.cuts_replies_on: int | None = 2
        self._reports = {row["id"]: row for row in rows(REPORTS)}
        [validated] = rows(DATA / "poet_gpt" / "fact" / "validated.jsonl")
        self._citations = {
            1: [{key: each[key] or "" for key in ("fact", "ref_idx", "url")} for each in validated["citations"]],
            2: [{"fact": fact, "ref_idx": "", "url": url} for fact, url, _ in CITED_BY_2],
        }
        self._labels = {fact: (2, label) for fact, _, label in CITED_BY_2}
        for page in validated["citations_deduped"].values():
            for fact, said in zip(page["facts"], page["validate_res"], strict=True):
                self._labels[fact] = (1, said["result"])

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        stage = body["response_format"]["json_schema"]["name"].removeprefix("research_")
        text = last_user({"messages": body["messages"][:2]})
        row = self._row(text)
        self.asked[stage, row] += 1
        if stage == "extract" and row == self.cuts_replies_on:
            return {"role": "assistant", "content": '{"citations": [{"fact": "Dupil'}
        said = getattr(self, stage)(row, text)
        return {"role": "assistant", "content": json.dumps(said, ensure_ascii=False)}

    def _row(self, text: str) -> int:
        marks = {number: [TITLES[number], report["prompt"]] for number, report in self._reports.items()}
        marks[3] = [WEATHER]
        for fact, (number, _) in self._labels.items():
            marks[number].append(fact)
        [found] = [number for number, texts in marks.items() if any(each in text for each in texts)]
        return found

    def select(self, row: int, text: str) -> dict[str, Any]:
        scores = {letter: {"reason": "Read.", "score": VALUES[row]} for letter in "ABCDEFG"}
        return {**scores, "domain": "healthcare", "complexity_level": {1: 4, 2: 3, 3: 1}[row]}

    def weights(self, row: int, text: str) -> dict[str, Any]:
        sample = WEIGHTS[row][self.asked["weights", row] - 1]
        return {"reasoning": "For whoever asks.", "weights": dict(zip(DIMENSIONS, sample, strict=True))}

    def criteria(self, row: int, text: str) -> dict[str, Any]:
        [name] = [
            name
            for name, chinese in zip(DIMENSIONS, ("全面性", "洞察力", "指令遵循", "可读性"), strict=True)
            if chinese in text
        ]
        pairs = zip(self._texts(name), (0.6, 0.4), strict=True)
        return {"criteria": [{"criterion": text, "explanation": "", "weight": weight} for text, weight in pairs]}

    def race(self, row: int, text: str) -> dict[str, Any]:
        return {
            name: [
                {"criterion": text, "analysis": "Compared.", "article_1_score": target, "article_2_score": reference}
                for text, (target, reference) in zip(self._texts(name), scores, strict=True)
            ]
            for name, scores in zip(DIMENSIONS, SCORES[row], strict=True)
        }

    def extract(self, row: int, text: str) -> dict[str, Any]:
        return {"citations": self._citations[row]}

    def deduplicate(self, row: int, text: str) -> dict[str, Any]:
        return {"kept": list(range(len(self._statements(text))))}

    def validate(self, row: int, text: str) -> dict[str, Any]:
        labels = [self._labels[fact][1] for fact in self._statements(text)]
        return {"results": [{"idx": n, "reason": "", "result": label} for n, label in enumerate(labels)]}

    def strategic(self, row: int, text: str) -> dict[str, Any]:
        return {
            name: {"reason": "Read.", "score": score}
            for name, score in zip(STRATEGIC_NAMES, STRATEGIC[row], strict=True)
        }

    def knowledge(self, row: int, text: str) -> dict[str, Any]:
        return {"units": [{"text": text, "quality": quality} for text, quality in KNOWLEDGE[row]], "reused": []}

    def _texts(self, name: str) -> tuple[str, str]:
        return f"{name}: whole", f"{name}: exact"

    def _statements(self, text: str) -> list[str]:
        return [json.loads(line)["fact"] for line in text.splitlines() if line.startswith('{"idx": ')]


QUALITY = {
    # .7 RACE + .3 citation accuracy. RACE is T / (T + R) of the weighted totals:
    # 1: T = .32 x 7.6 + .3 x 6 + .2 x 9 + .18 x 7 = 7.292, R = .32 x 6 + .3 x 6.4 + .2 x 5 + .18 x 7 = 6.1
    # 2: T = .25 x 5 + .35 x 4 + .25 x 6 + .15 x 6 = 5.05, R = .25 x 5 + .35 x 6 + .25 x 4 + .15 x 6 = 5.25
    1: 0.7 * 7.292 / 13.392 + 0.3 * 12 / 18,
    2: 0.7 * 5.05 / 10.3 + 0.3 * 3 / 4,
}
RACE = {1: 7.292 / 13.392, 2: 5.05 / 10.3}
RACE_DIMENSIONS = {1: (7.6 / 13.6, 6 / 12.4, 9 / 14, 0.5), 2: (0.5, 0.4, 0.6, 0.5)}
EFFICIENCY = {
    # An expert of health care takes 2.8 h at 250 USD, x 1.5 at level 4, x 1 at level 3; the agent 1/3 h and .087 USD.
    1: 0.4 * (4.2 - 1 / 3) / 4.2 + 0.3 * (1050 - 0.087) / 1050 + 0.3 * 0.95,
    2: 0.4 * (2.8 - 1 / 3) / 2.8 + 0.3 * (700 - 0.087) / 700 + 0.3 * 0.95,
}
STRATEGIC_VALUE = {1: 0.6 * 16 / 20 + 0.4 * 14 / 20, 2: 0.6 * 12 / 20 + 0.4 * 10 / 20}
POET = {number: 0.3 * EFFICIENCY[number] + 0.5 * QUALITY[number] + 0.2 * STRATEGIC_VALUE[number] for number in (1, 2)}


class Reader:
    """The Jina reader on loopback. It has the pages that the original read, and those of the second report."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        [scraped] = rows(DATA / "poet_gpt" / "fact" / "scraped.jsonl")
        self._pages = {url: page["url_content"] for url, page in scraped["citations_deduped"].items()} | PAGES_OF_2
        reader = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                url = json.loads(self.rfile.read(int(self.headers["content-length"])))["url"]
                reader.read[url] += 1
                page = reader._pages.get(url)
                title, description, content = ([*(page or "").split("\n\n", 2), "", ""])[:3]
                said = {"data": {"title": title, "description": description, "content": content}}
                data = json.dumps(said if page else {"readableMessage": "There is no such page."}).encode()
                self.send_response(200 if page else 422)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Reader:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name of the reports' pages has an address, and nothing but loopback is connected to."""
    resolve, connect = socket.getaddrinfo, socket.socket.connect

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        known = host in ("127.0.0.1", "localhost", None)
        return resolve(host if known else "8.8.8.8", port, *args, **options)

    def only(self: socket.socket, address: Any) -> None:
        assert isinstance(address, str | bytes) or address[0] == "127.0.0.1", f"connects to {address}"
        connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", only)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seed's layout, as far as it is there before the first call; the current folder."""
    reports = rows(REPORTS)
    queries = [*(report["prompt"] for report in reports), WEATHER]
    titles = ["医保报销", "诊疗指南", "天气"]
    raw = "\n\n".join(
        f'#### **Query {number}: {title}**\n\n"{query}"'
        for number, (title, query) in enumerate(zip(titles, queries, strict=True), 1)
    )
    (tmp_path / "query_analysis").mkdir()
    (tmp_path / "query_analysis" / "raw_query.md").write_text(raw, encoding="utf-8")
    write_rows(tmp_path / "data/test_data/raw_data/gpt.jsonl", reports)
    references = [{"id": each["id"], "prompt": each["prompt"], "article": "参考报告。"} for each in reports]
    write_rows(tmp_path / "data/reference/reference.jsonl", references)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("only_loopback")
def test_the_pipeline_gives_the_numbers_that_are_worked_out(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = Judge()
    with FaultEndpoint(answer=judge.answer) as endpoint, Reader() as reader:
        for name, value in {
            "OPENAI_BASE_URL": endpoint.base_url,
            "OPENAI_API_KEY": "sk-judge",
            "OPENAI_MODEL": "judge-1",
            "JINA_API_KEY": "jina-key",
            "JINA_BASE_URL": reader.url,
            "ENABLE_QUERY_SELECTION": "true",
            "TARGET_MODELS": "gpt",
        }.items():
            monkeypatch.setenv(name, value)
        command = ["research", "run", "--annotation_dir", str(DATA / "poet_annotation_seed_format")]

        assert main(command) == 1
        first = capsys.readouterr()
        asked, read = Counter(judge.asked), Counter(reader.read)
        _check_the_first_call(project, first.out, first.err, asked)

        judge.cuts_replies_on = None
        assert main(command) == 0
        second = capsys.readouterr()
    # What was answered is not asked for again. The second report's three pages are new: two can be read, one of which
    # backs several statements.
    assert judge.asked - asked == {("extract", 2): 1, ("deduplicate", 2): 1, ("validate", 2): 2}
    assert reader.read - read == dict.fromkeys({url for _, url, _ in CITED_BY_2}, 1)
    assert all(scored == total for total, scored, _ in _table(second.out).values())
    _check_the_scores(project)
    _check_the_parts(project)


def _check_the_first_call(project: Path, out: str, err: str, asked: Counter[tuple[str, int]]) -> None:
    """The citations of the second report are lost, and so is its composite; all else is there."""
    assert _table(out) == {
        "select": (3, 3, 0),
        "criteria": (2, 2, 0),
        "race": (2, 2, 0),
        **dict.fromkeys(("extract", "deduplicate", "scrape", "validate", "stat"), (2, 1, 1)),
        **dict.fromkeys(("efficiency", "strategic", "interaction"), (2, 2, 0)),
        "poet": (2, 1, 1),
    }
    assert "extract: 2: no verdict in 3 replies" in err
    assert "poet: 2: no composite: fact: failed in extract" in err
    assert asked == {
        ("select", 1): 1,
        ("select", 2): 1,
        ("select", 3): 1,
        **{("weights", row): 5 for row in (1, 2)},
        **{("criteria", row): 4 for row in (1, 2)},
        **{(stage, row): 1 for stage in ("race", "strategic", "knowledge") for row in (1, 2)},
        # Row 1 has 20 statements on 8 pages, three of which back several, and one statement without an address.
        ("extract", 1): 1,
        ("extract", 2): 3,
        ("deduplicate", 1): 3,
        ("validate", 1): 8,
    }
    said = (project / "results/fact/gpt/fact_result.txt").read_text().splitlines()
    assert said[:3] == (DATA / "poet_gpt/fact/fact_result.txt").read_text().splitlines()
    detailed, missing = json.loads((project / "results/poet/gpt/gpt_poet_summary.json").read_text())["results"]
    assert detailed["overall_poet_score"] == pytest.approx(POET[1])
    assert (missing["overall_poet_score"], missing["quality_score"], missing["fact_accuracy"]) == (None, None, None)
    assert (missing["race_score"], missing["strategic_score"]) == pytest.approx((RACE[2], STRATEGIC_VALUE[2]))


def _check_the_scores(project: Path) -> None:
    document = json.loads((project / "results/poet/gpt/gpt_poet_summary.json").read_text())
    assert [document[name] for name in ("n_total", "n_scored", "n_failed")] == [2, 2, 0]
    for number, row in enumerate(document["results"], 1):
        expected = {
            "overall_poet_score": POET[number],
            "efficiency_score": EFFICIENCY[number],
            "quality_score": QUALITY[number],
            "strategic_score": STRATEGIC_VALUE[number],
            "race_score": RACE[number],
            "fact_accuracy": {1: 12 / 18, 2: 3 / 4}[number],
            "cost_saving_usd": {1: 4.2 * 250 - 0.087, 2: 2.8 * 250 - 0.087}[number],
            "automation_rate": 0.95,
            "knowledge_units_created": {1: 2, 2: 1}[number],  # a unit below .3 is not kept
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected)
        told = {
            "task_id": number,
            "model_name": "gpt",
            "domain": "healthcare",
            "complexity_level": {1: 4, 2: 3}[number],
        }
        assert row == {**row, **told}


def _check_the_parts(project: Path) -> None:
    results = project / "results"
    # Means of two rows: (7.6 / 13.6 + 1 / 2) / 2 = .5294, (6 / 12.4 + .4) / 2 = .4419, (9 / 14 + .6) / 2 = .6214,
    # (1 / 2 + 1 / 2) / 2 = .5000, (7.292 / 13.392 + 5.05 / 10.3) / 2 = .5174
    scores = [line.split(": ")[1] for line in (results / "race/gpt/race_result.txt").read_text().splitlines()]
    assert scores == ["0.5294", "0.4419", "0.6214", "0.5000", "0.5174"]
    for row in rows(results / "race/gpt/raw_results.jsonl"):
        assert tuple(row[name] for name in DIMENSIONS) == pytest.approx(RACE_DIMENSIONS[row["id"]])
    # Row 1: 12 of 18 known citations hold, 2 are unknown; row 2: 3 of 4, 1 is unknown. Means, then 15 of 22.
    said = dict(line.split(": ") for line in (results / "fact/gpt/fact_result.txt").read_text().splitlines())
    assert {name: float(said[name]) for name in ("total_citations", "total_valid_citations", "valid_rate")} == {
        "total_citations": (18 + 4) / 2,
        "total_valid_citations": (12 + 3) / 2,
        "valid_rate": 15 / 22,
    }
    # Supported citations per 1,000 words: of 3,819 and of 4,263.
    assert float(said["supported_per_1000_words"]) == pytest.approx((12 / 3.819 + 3 / 4.263) / 2)
    efficiency = json.loads((results / "efficiency/gpt/efficiency_report.json").read_text())["results"]
    assert [row["time_saving"] for row in efficiency] == pytest.approx([58 / 63, 37 / 42])
    strategic = json.loads((results / "strategic/gpt/strategic_report.json").read_text())["results"]
    assert [row["knowledge_creation_value"] for row in strategic] == pytest.approx([0.9 + 0.5, 0.8])
    # An expert is slower: 1; the share of the cost that is saved; neither errors nor satisfaction were recorded.
    interaction = json.loads((results / "web_interaction/gpt/web_interaction_report.json").read_text())["results"]
    assert [list(row["efficiency"].values()) for row in interaction] == [
        [1.0, pytest.approx((1050 - 0.087) / 1050), 0.95, None, None],
        [1.0, pytest.approx((700 - 0.087) / 700), 0.95, None, None],
    ]
    # Quality x difficulty / 5; the levels' difficulties are 4 and 3.
    adaptability = [row["complexity_adaptability"] for row in strategic]
    assert adaptability == pytest.approx([QUALITY[1] * 4 / 5, QUALITY[2] * 3 / 5])


def _table(out: str) -> dict[str, tuple[int, ...]]:
    """Rows, scored and failed by stage, as the end summary has them."""
    lines = out[out.index("stage ") : out.index("judge ")].splitlines()[1:]
    return {line.split()[0]: tuple(map(int, line.split()[1:])) for line in lines}
