"""The kit for packs: ours and the sample's pass, and wrong ones are reported."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

import pytest_agentbench as ab
from pytest_agentbench.extensions import GROUP


@pytest.mark.parametrize("name", sorted(entry.name for entry in entry_points(group=GROUP)))
def test_our_packs_pass(name: str) -> None:
    [entry] = entry_points(group=GROUP, name=name)
    ab.check_pack(entry.load())


def test_the_samples_pack_passes() -> None:
    from agentbench_sample.pack import PACK

    ab.check_pack(PACK)


@pytest.mark.parametrize(
    ("pack", "problem"),
    [
        (ab.Pack("p", tools={"date": print}), "tools: .* adds the tool 'date' as print, expected a Tool"),
        (ab.Pack("p", runners={"r": "absent.runner:R"}), "runners: .*cannot be imported: No module named 'absent'"),
        (ab.Pack("p", runners={"llm_probe": print}), "adds the runner 'llm_probe', which exists already"),
    ],
)
def test_a_wrong_pack_is_noticed(pack: ab.Pack, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        ab.check_pack(pack)
