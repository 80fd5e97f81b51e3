"""The worked example: a shop under click fraud."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Server

from robandit.client.http import Client, ServiceError

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop.py"


@pytest.fixture(scope="module")
def shop() -> Any:
    spec = importlib.util.spec_from_file_location("shop", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shop"] = module  # where its dataclass looks
    spec.loader.exec_module(module)
    return module


@pytest.mark.no_cover
def test_what_is_served_is_what_the_policies_do_alone(
    shop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(tmp_path / "log.db")
    try:
        check_served(shop, f"http://127.0.0.1:{server.port}", capsys)
    finally:
        server.kill()


def check_served(shop: Any, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    shop.main(["--visits", "150", "--seed", "3", "--url", url])
    printed = capsys.readouterr().out
    assert "The dashboard is at" in printed and printed.count("The monitor of the") == 2
    visits = shop.Shop(150, 3, bots=0.7, quiet=0.08)
    for label, setting in shop.SHOWN.items():
        runs = shop.alone([visits], setting, 3)
        (line,) = [line.split() for line in printed.splitlines() if line.strip().startswith(f"{label}:")]
        assert line[-4:] == [f"{number:.0f}" for number in (*runs.rates[0], *runs.regret[0])]
    with Client(url) as client:
        assert [client.status(name).rewards for name in client.bandits()] == [150, 150]


def test_it_can_be_measured(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shop.main(["--visits", "100", "--seeds", "2"])
    assert len(capsys.readouterr().out.splitlines()) == 3 + len(shop.MEASURED)


def test_it_has_a_service_of_its_own(shop: Any) -> None:
    """Its own service is up when it is needed, and gone afterwards."""
    with shop.service(None) as address, Client(address) as client:
        assert client.bandits() == []
    with Client(address, retries=0) as client, pytest.raises(ServiceError, match="no answer"):
        client.bandits()


def test_what_bots_do(shop: Any) -> None:
    visits = shop.Shop(2000, 1, bots=0.7, quiet=0.1)
    bots = np.flatnonzero(visits.bot)
    assert set(visits.phase[bots]) == {1} and set(visits.source[bots]) == {"partner"} and 250 < len(bots) < 310
    rival = visits.offers[..., 4] > 0
    assert all(visits.click(t, k) == rival[t, k] for t in bots[:50] for k in range(8))
    assert (
        visits.means.min() >= 0.0 and visits.means.max() <= 1.0 and (visits.offers**2).sum(axis=-1).max() <= 1.0 + 1e-12
    )
