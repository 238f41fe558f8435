from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.packs.mcp_bench.synthesis.checks import find_lost_numbers


@pytest.mark.parametrize(
    ("detailed", "fuzzy"),
    [
        ("inlet 80°C, outlet 60 °C, flow 0.5 kg/s", "we have 80 in, 60 out, and .5 kg/s"),
        ("1. Add 12.\n2. Multiply by 3.\n3) Report.", "take 12 times 3"),
        ("Repeat steps 3–5 and step 6 for 40 kg", "for 40 kg"),
        ("First (1) add 7, then (2) add 9.", "7 and 9"),
        ("a price of $2,000 and 10 000 ft", "2000 dollars, 10,000 feet"),
        ("over 6 months and 14 sensors", "six months, fourteen sensors"),
        ("3 位医生和 12 台设备", "三位医生,十二台设备"),
        ("values [120,150,200]", "120, 150 and 200"),
        ("2500000 people", "2.5 million people"),
        ("1.5e-3 mol", "0.0015 mol"),
        ("between 09:00 and 17:30", "9 am to 5:30 pm"),
        ("convert to a percentage (multiply by 100) the ratio 3/8", "3/8 in percent"),
        ("matrix M1 and x**2 with x=4", "x is 4"),
        ("a vector [1.2, -0.8]", "1.2 and –0.8"),
        ("5", "5"),
    ],
)
def test_numbers_that_are_kept(detailed: str, fuzzy: str) -> None:
    assert find_lost_numbers(detailed, fuzzy) == []


@pytest.mark.parametrize(
    ("detailed", "fuzzy", "lost"),
    [
        ("80 °C and 60 °C", "about 80", ["60"]),
        ("0.5 kg/s", "5 kg/s", ["0.5"]),
        ("below 85 %, then below 85 % again", "too low", ["85"]),
        ("1. Heat to 350 °F.", "1 thing: heat it", ["350"]),
        ("at 17:30", "at half past", ["17:30"]),
        ("10 000 ft", "10 ft and 0 more", ["10 000"]),
        ("a mass of 1.73", "1.7 or so", ["1.73"]),
    ],
)
def test_numbers_that_are_lost(detailed: str, fuzzy: str, lost: list[str]) -> None:
    assert find_lost_numbers(detailed, fuzzy) == lost


numbers = st.decimals(min_value=0, max_value=10**9, places=3).map(lambda number: f"{number:f}")


@given(st.lists(numbers, min_size=1))
def test_a_text_keeps_its_own_numbers_in_any_order(values: list[str]) -> None:
    detailed = "; ".join(f"value {value} kg" for value in values)
    assert find_lost_numbers(detailed, " and ".join(reversed(values))) == []


@pytest.mark.slow
@given(st.lists(numbers, min_size=1, unique=True), st.data())
def test_every_missing_number_is_reported(values: list[str], data: st.DataObject) -> None:
    left_out = data.draw(st.sampled_from(values))
    kept = " and ".join(value for value in values if value != left_out)
    assert find_lost_numbers(" and ".join(values), kept) == [left_out]


@given(st.text(), st.text())
def test_any_text_can_be_checked(detailed: str, fuzzy: str) -> None:
    assert find_lost_numbers(detailed, detailed) == []
    find_lost_numbers(detailed, fuzzy)


SLOWER = [pytest.param(piece, marks=pytest.mark.slow) for piece in ("1 ", "1.", "一", "step 1, ", "1e5 ")]


@pytest.mark.parametrize("piece", ["1,", "12:3", "1) ", *SLOWER])
def test_a_long_text_takes_no_longer_than_it_is_long(piece: str) -> None:
    assert find_lost_numbers(piece * 20_000, piece * 20_000) == []
