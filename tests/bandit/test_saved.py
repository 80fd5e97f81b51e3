"""Saved bandits and policies: they go on bit for bit, and a file that was cut or edited is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shops import open_schema, products, schema

import robandit
from robandit import Bandit, Policy
from robandit.policies import POLICIES
from robandit.policies.saved import read_saved, write_saved

MAKERS: dict[str, Callable[[], Bandit]] = {
    "schema": lambda: Bandit(features=schema(), seed=1, exploration=0.2),
    "online": lambda: Bandit(features=open_schema(centre="set"), rewards=(0, 5), seed=2),
    "levels": lambda: Bandit(features=schema(), policy=robandit.MultiLevelWeightedOFUL, seed=3),
    "oful": lambda: Bandit(features=schema(), policy="oful", seed=4),
}


def play(bandit: Bandit, rng: np.random.Generator, rounds: int) -> list[Any]:
    """Decisions, of which some get a reward at once, some late and some never."""
    seen: list[Any] = []
    for _ in range(rounds):
        pick = bandit.choose(products(rng, 5), source=str(rng.choice(["ads", "mail"])))
        seen.append((pick.id, pick.decision_id, pick.value, pick.propensity))
        for name in [name for name in bandit.pending if rng.random() < 0.3]:
            bandit.learn(name, float(rng.integers(2)))
    return [*seen, bandit.estimate(), bandit.pending, bandit.features.counts if rounds > 100 else None]


@pytest.mark.no_cover
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("before", [0, 7, 130])
def test_a_loaded_bandit_goes_on_bit_for_bit(make: Callable[[], Bandit], before: int, tmp_path: Path) -> None:
    bandit, rng = make(), np.random.default_rng(before)
    play(bandit, rng, before)
    bandit.save(tmp_path / "bandit")
    loaded = Bandit.load(tmp_path / "bandit")
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "bandit").read_bytes()
    other = np.random.default_rng()
    other.bit_generator.state = rng.bit_generator.state
    assert play(bandit, rng, 45)[:-1] == play(loaded, other, 45)[:-1]
    bandit.save(tmp_path / "bandit")
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "bandit").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    bandit, path = MAKERS["schema"](), tmp_path_factory.mktemp("saved") / "bandit"
    play(bandit, np.random.default_rng(0), 10)
    bandit.save(path)
    return path.read_bytes()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_was_cut_or_edited_is_refused(data: st.DataObject, whole: bytes, tmp_path: Path) -> None:
    place = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "byte", "more", "less"]))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    broken = {
        "cut": whole[:place],
        "flip": whole[:place] + bytes([whole[place] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[place + 1 :],
        "byte": whole[:place] + bytes([byte]) + whole[place + 1 :],
        "more": whole[:place] + bytes([byte]) + whole[place:],
        "less": whole[:place] + whole[place + 1 :],
    }[how]
    path = tmp_path / "broken"
    path.write_bytes(broken)
    with pytest.raises(ValueError, match="broken (was cut or edited|is no saved bandit|holds)"):
        Bandit.load(path)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "bandit"
    write_saved(path, "bandit", {"a": 1})
    with pytest.raises(TypeError, match="only plain data"):
        write_saved(path, "bandit", {"a": object()})
    with pytest.raises(ValueError, match="Out of range float values"):
        write_saved(path, "bandit", {"a": float("nan")})
    assert read_saved(path, "bandit") == {"a": 1} and list(tmp_path.iterdir()) == [path]


@pytest.mark.no_cover
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plain_data_come_back_as_they_were(tmp_path: Path, content: Any) -> None:
    arrays = {"f": np.array([[1.5, -0.0], [1e-320, 3.0]]), "i": np.array([2**62]), "b": np.array([], dtype=bool)}
    write_saved(tmp_path / "file", "test", {"content": content, "arrays": arrays, "one": np.float64(0.1)})
    found = read_saved(tmp_path / "file", "test")
    assert found["content"] == content and found["one"] == 0.1
    for name, array in arrays.items():
        again = found["arrays"][name]
        assert again.dtype == array.dtype and again.shape == array.shape and again.tobytes() == array.tobytes()
        assert again.flags.writeable


@pytest.mark.no_cover
@pytest.mark.parametrize("name", POLICIES)
def test_a_saved_policy_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {"horizon": 100, "corruption": 5.0}
    kind = POLICIES[name]
    policy = kind(dim=3, noise_range=0.5, seed=1, **{k: v for k, v in more.items() if k in kind.__dataclass_fields__})
    rng = np.random.default_rng(0)
    for _ in range(20):
        policy.update(policy.choose(rng.uniform(-0.5, 0.5, (4, 3)), source="ads"), float(rng.normal()))
    policy.save(tmp_path / "policy")
    for loaded in (kind.load(tmp_path / "policy"), Policy.load(tmp_path / "policy")):
        assert type(loaded) is kind and loaded.state().keys() == policy.state().keys()
        for key, array in policy.state()["arrays"].items():
            assert np.array_equal(loaded.state()["arrays"][key], array)
        actions = rng.uniform(-0.5, 0.5, (6, 3))
        assert np.array_equal(loaded.propensities(actions), policy.propensities(actions))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    robandit.OFUL(dim=2, noise_range=0.5, seed=1).save(path)
    with pytest.raises(ValueError, match=r"holds 'robandit policy' in version 1; here 'robandit bandit' in version 1"):
        Bandit.load(path)
    with pytest.raises(ValueError, match="this is a state of OFUL, which is no Greedy that is known here"):
        robandit.Greedy.load(path)


@pytest.mark.parametrize("text", ["\ud800", "naïve 🎉", "\0", '"\\'])
def test_a_bandit_with_labels_of_any_text_can_be_saved(text: str, tmp_path: Path) -> None:
    features = robandit.Features(action=[robandit.features.Growing("name", slots=1), robandit.features.Hashed("tag")])
    for bandit in (Bandit(seed=1, sources=4), Bandit(features=features, seed=1)):
        offered = [text, "a"] if bandit.features.id else [{"name": "a", "tag": text}, {"name": text, "tag": "b"}]
        bandit.learn(bandit.choose(offered, source=text), 1)
        waits = bandit.choose(offered, source=text)
        bandit.save(tmp_path / "bandit")
        again = Bandit.load(tmp_path / "bandit")
        assert again.pending == [waits.decision_id] and again.estimate() == bandit.estimate()
        assert again.choose(offered, source=text).value == bandit.choose(offered, source=text).value
        bandit.features.save(tmp_path / "features")
        assert robandit.Features.load(tmp_path / "features").names == bandit.features.names
