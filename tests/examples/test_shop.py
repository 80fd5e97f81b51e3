"""The worked example: a shop whose partner turns."""

from __future__ import annotations

import importlib.util
import re
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
    sys.modules["shop"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.no_cover
def test_it_tells_the_story(shop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Progress, the bots, and the result over uniform play; the service has learnt every reward."""
    server = Server(tmp_path / "log.db")
    try:
        url = f"http://127.0.0.1:{server.port}"
        shop.main(["--visits", "400", "--seed", "3", "--url", url])
        printed = capsys.readouterr().out
        assert f"The dashboard is at {url}/" in printed
        assert len(re.findall(r"^ +\d+ +\d+ +\d+   \w", printed, re.MULTILINE)) == 10
        assert printed.count("the partner's bots arrive") == 1
        uniform = shop.Shop(400, 3).uniform_regret()
        assert f"Showing any product would lose {uniform:.0f}." in printed
        for label in shop.BANDITS:
            lost, share = re.findall(rf"^  {label} +(\d+), +(\d+) % of that", printed, re.MULTILINE)[0]
            assert int(share) == pytest.approx(100 * int(lost) / uniform, abs=50 / uniform + 1)
        with Client(url) as client:
            assert [client.status(name).rewards for name in client.bandits()] == [400, 400]
            (quorum,) = [one for name in client.bandits() if (one := client.status(name)).belief]
            assert quorum.belief and {one.source for one in quorum.belief.sources} == set(shop.SOURCES)
    finally:
        server.kill()


def test_it_has_a_service_of_its_own(shop: Any) -> None:
    """Its own service is up when it is needed, and gone afterwards."""
    with shop.service(None) as address, Client(address) as client:
        assert client.bandits() == []
    with Client(address, retries=0) as client, pytest.raises(ServiceError, match="no answer"):
        client.bandits()


def test_what_bots_do(shop: Any) -> None:
    visits = shop.Shop(2000, 1)
    bots = np.flatnonzero(visits.bots)
    assert bots.min() >= visits.turns == 500 and {visits.sources[t] for t in bots} == {"partner"}
    assert 280 < len(bots) < 400
    for t in bots[:50]:
        own = [thing["brand"] == "partner" for thing in visits.shelves[t]]
        assert [visits.click(t, k) for k in range(len(own))] == own and visits.regret(t, 0) == 0.0
    rates = [shop.rate(thing) for shelf in visits.shelves for thing in shelf]
    assert min(rates) >= 0.0 and max(rates) <= 1.0
