"""Events as stores keep them, and as lines of JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robandit.wire.events import Decided, Event, Rewarded, as_line, decode, encode, pack

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6)


def decided(name: str, numbers: list[float], offered: bytes | None) -> Decided:
    return Decided(
        id=name, round=3, at=0.1, actions=[name], index=0, features=numbers, sigma=0.5, level=0, propensity=0.5,
        source=name, offered=offered,
    )  # fmt: skip


@pytest.mark.no_cover
@given(st.text(max_size=8), NUMBERS)
def test_what_is_packed_is_the_same_event_bit_for_bit(name: str, numbers: list[float]) -> None:
    """Whatever its names are, and whatever bytes its numbers have: line feeds among them."""
    feeds = np.frombuffer(b"\n" * 16).tobytes()
    for event in (decided(name, numbers, None), decided(name, numbers, np.array(numbers).tobytes() + feeds)):
        assert decode(pack(event)) == event == decode(encode(event))
        assert as_line(pack(event)) == encode(event) and b"\n" not in encode(event)
    reward = Rewarded(id=name, at=0.1, reward=numbers[0])
    assert as_line(pack(reward)) == pack(reward) == encode(reward)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_may_end_as_lines_do(end: bytes) -> None:
    event: Event = decided("a", [1.0], b"12345678")
    assert decode(encode(event) + end) == event
    assert json.loads(encode(event))["offered"] == "MTIzNDU2Nzg="
