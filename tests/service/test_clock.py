"""A clock that is set, while the service runs or while it does not, closes no window early, and stops none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from served import check_fold, offer, working

from robandit.service.clock import GRACE, SLEW, ServiceClock, ticks
from robandit.service.hub import Hub
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.types import BanditSettings, Feedback

DAY = 86_400.0
SETTINGS = BanditSettings(dim=3, noise_range=0.5, reward_window=DAY)


class Machine:
    """A machine whose clock can be set. Real time goes on by itself."""

    def __init__(self, path: Path) -> None:
        self.wall, self.real, self._path = 1e9, 0.0, path

    def start(self) -> Hub:
        return Hub(SQLiteStore(self._path, clock=lambda: self.wall), ticks=lambda: self.real)

    async def wait(self, seconds: float) -> None:
        self.wall, self.real = self.wall + seconds, self.real + seconds

    async def set(self, by: float) -> None:
        self.wall += by


def rewards(hub: Hub, name: str) -> Callable[[], Any]:
    return lambda: hub.reward("shop", [Feedback(decision_id=name, reward=0.1)])


@pytest.mark.no_cover
@pytest.mark.parametrize("jump", [DAY, -DAY, 400 * DAY])
def test_a_jump_changes_no_window(jump: float, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "log.db")
    hub = machine.start()
    found = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *(partial(hub.decide, "shop", offer(name)) for name in ("one", "two")),
        lambda: machine.set(jump),
        hub.close_windows,
        rewards(hub, "one"),
        lambda: machine.set(-jump),  # and somebody sets it right
        lambda: hub.decide("shop", offer("three")),
        lambda: machine.wait(0.85 * DAY),
        hub.close_windows,
        rewards(hub, "three"),
        lambda: machine.wait(0.3 * DAY),
        hub.close_windows,
        rewards(hub, "two"),
    )
    assert [found[i][0].status for i in (5, 10, 13)] == ["accepted", "accepted", "expired"]
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_a_clock_that_was_ahead_stops_no_window(tmp_path: Path) -> None:
    """A run with a clock a day ahead; then it is set right. Windows close after their time, across restarts."""
    machine = Machine(tmp_path / "log.db")
    machine.wall += DAY
    hub = machine.start()
    working(hub, lambda: hub.create("shop", SETTINGS, 7), lambda: hub.decide("shop", offer("one")))
    hub.stop()
    machine.wall -= DAY
    hub = machine.start()
    found = working(
        hub,
        lambda: hub.decide("shop", offer("two")),
        lambda: machine.wait(0.85 * DAY),
        rewards(hub, "one"),
        lambda: machine.wait(0.3 * DAY),
        hub.close_windows,
        rewards(hub, "two"),
    )
    assert found[2][0].status == "accepted" and found[5][0].status == "expired"
    assert abs(hub.clock() - machine.wall) < DAY * (1.0 - SLEW)  # it comes back slowly
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_a_start_with_a_clock_ahead_leaves_an_hour(tmp_path: Path) -> None:
    """Nobody can tell a jump from a long stop. So windows stay open for a while after a start."""
    machine = Machine(tmp_path / "log.db")
    hub = machine.start()
    names = ("one", "two")
    working(hub, lambda: hub.create("shop", SETTINGS, 7), *(partial(hub.decide, "shop", offer(name)) for name in names))
    hub.stop()
    machine.wall += 30 * DAY
    hub = machine.start()
    found = working(
        hub,
        hub.close_windows,
        lambda: machine.wait(0.8 * GRACE),
        hub.close_windows,
        rewards(hub, "one"),
        lambda: machine.wait(0.4 * GRACE),
        hub.close_windows,
        rewards(hub, "two"),
    )
    assert found[3][0].status == "accepted" and found[6][0].status == "expired"
    assert hub.clock() == pytest.approx(machine.wall)
    hub.stop()


def test_the_clock_flows() -> None:
    wall, real = [0.0], [0.0]
    clock = ServiceClock(lambda: wall[0], lambda: real[0])
    for step, jump in ((1.0, 50.0), (5.0, -200.0), (1000.0, 0.0), (0.0, 7.0), (1e6, 0.0)):
        before = clock()
        real[0], wall[0] = real[0] + step, wall[0] + step + jump
        assert (1.0 - SLEW) * step - 1e-9 <= clock() - before <= (1.0 + SLEW) * step + 1e-9
    assert clock() == pytest.approx(wall[0])
    real[0] -= 5.0  # no tick goes back, and if one does, the time does not
    assert clock() == pytest.approx(wall[0])
    assert ticks() <= ticks()
