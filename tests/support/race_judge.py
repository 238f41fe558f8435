"""Serve a judge on loopback that selects queries, makes criteria, cleans and compares articles by their texts.

    with RaceJudge() as judge: ...  # judge.environ names it to the command line; judge.asked counts requests by stage

A query `... worth 4` gets 4 in all seven dimensions, an article `... of quality 8` gets 8 by every criterion.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

_BLOCK = re.compile(
    r"^<<<DATA (?P<boundary>\S+) (?P<label>[^\n]*)>>>\n(?P<text>.*?)\n<<<END (?P=boundary)>>>", re.M | re.S
)
_LABELS = {"查询": "query", "文章": "article", "文章1": "article 1", "文章2": "article 2", "评估标准": "criteria"} | {
    "陈述": "statements",
    "网页": "page",
    "已有知识": "known knowledge",
}

Shown = dict[str, str]
Say = Callable[[Any, Shown, int], Any]
"""Return a text or JSON for the judge's own reply, its input by label, and the number of earlier equal requests."""


class RaceJudge(FaultEndpoint):
    """A judge. `says` replaces the reply at a stage; a reply with `content` is a message."""

    def __init__(self, **says: Say) -> None:
        super().__init__(answer=self._answer)
        self.says = says
        self.asked: Counter[str] = Counter()
        self.shown: list[tuple[str, Shown]] = []
        self._before: Counter[tuple[str, str]] = Counter()

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        stage = body["response_format"]["json_schema"]["name"].removeprefix("research_")
        prompt = body["messages"][1]["content"]
        blocks = {each["label"]: each["text"] for each in _BLOCK.finditer(prompt)}
        shown = {_LABELS.get(label, label): text for label, text in blocks.items()}
        shown["task"] = prompt[max(each.end() for each in _BLOCK.finditer(prompt)) :]
        self.asked[stage] += 1
        self.shown.append((stage, shown))
        before = self._before[stage, prompt]
        self._before[stage, prompt] += 1
        reply = getattr(self, f"_{stage}")(shown)
        said = self.says[stage](reply, shown, before) if stage in self.says else reply
        if isinstance(said, dict) and "content" in said:
            return {"role": "assistant", **said}
        return {"role": "assistant", "content": said if isinstance(said, str) else json.dumps(said)}

    def _select(self, shown: Shown) -> dict[str, Any]:
        worth = int(re.search(r"worth (\d)", shown["query"])[1])
        scores = {letter: {"reason": "Read.", "score": worth} for letter in "ABCDEFG"}
        return {**scores, "domain": "finance", "complexity_level": 3}

    def _weights(self, shown: Shown) -> dict[str, Any]:
        return {"reasoning": "Thought.", "weights": dict(zip(RACE_DIMENSIONS, (0.4, 0.3, 0.2, 0.1), strict=True))}

    def _criteria(self, shown: Shown) -> dict[str, Any]:
        named = shown["task"].strip().splitlines()[1].split(":")[0].split("：")[0]
        weights = {"first": 0.7, "second": 0.3}
        return {
            "criteria": [
                {"criterion": f"{named}, {which}", "explanation": "Look.", "weight": weight}
                for which, weight in weights.items()
            ]
        }

    def _clean(self, shown: Shown) -> dict[str, Any]:
        return {"article": re.sub(r"\s?\[\d+\]", "", shown["article"]).partition("\n# References")[0]}

    def _race(self, shown: Shown) -> dict[str, Any]:
        reply: dict[str, list[dict[str, Any]]] = {}
        for line in shown["criteria"].splitlines():
            if line.startswith("# "):
                entries = reply.setdefault(line[2:], [])
            elif line.startswith("- "):
                entries.append({"criterion": line[2:], "analysis": "Read.", **_scores(shown)})
        return reply


def _scores(shown: Shown) -> dict[str, float]:
    if "article" in shown:
        return {"target_score": _quality(shown["article"])}
    return {f"article_{n}_score": _quality(shown[f"article {n}"]) for n in (1, 2)}


def _quality(article: str) -> float:
    return float(re.search(r"of quality ([\d.]*\d)", article)[1])
