"""How smoothly `robandit play` plays, and whether it keeps its size: pictures a second in a browser, and memory.

    python benchmarks/play.py                   a minute
    python benchmarks/play.py --seconds 600     ten minutes

Four policies play beside their honest twins while lies change every second; at the end of a game it goes back to the
beginning, which keeps an attack. The processor time of a picture says what it costs even where other work slows down
the clock. Chromium must be on the PATH, and Linux below.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Page, sync_playwright

QUIET = "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run --enable-precise-memory-info"
LIES = ("f", "f", "p", "p", "s", "s")  # each key begins a lie or ends it
WARM = 0.25  # of the time, after which memory is compared


class Look(NamedTuple):
    """How it stands, once a second."""

    seconds: float
    pictures: int
    """The pictures so far."""
    server: float
    """Megabytes."""
    page: float
    """Megabytes."""
    served: float
    """Seconds of the processor that the server has used so far."""
    drawn: float
    """Those of the browser, and of what drives it."""


@contextmanager
def playing() -> Iterator[tuple[int, str]]:
    """A game on a free port: its process and its address."""
    command = [sys.executable, "-m", "robandit", "play", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            found = re.search(r"http://\S+/", server.stdout.readline())
            assert found
            yield server.pid, found[0]
        finally:
            server.terminate()


def megabytes(pid: int) -> float:
    """The memory of a process that is in use."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def processor(pids: set[int]) -> float:
    """Seconds of the processor that processes have used."""
    ticks = 0
    for pid in pids:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(found[11]) + int(found[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that they have."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    own = {int(child) for path in threads for child in path.read_text().split()}
    return own.union(*map(descendants, own))


def drive(page: Page, pid: int, seconds: float, speed: str) -> list[Look]:
    """Play for so long, and look once a second."""
    page.select_option("#speed", speed)
    page.evaluate("toggle()")
    start, rows, step = time.monotonic(), list[Look](), 0
    browser = descendants(os.getpid()) - {pid}
    while time.monotonic() - start < seconds:
        page.wait_for_timeout(1000)
        page.keyboard.press(LIES[step % len(LIES)])
        step += 1
        if page.evaluate("state.scene.round === state.game.rounds"):
            page.evaluate("rewind(0).then(() => toggle())")
        heap = page.evaluate("performance.memory.usedJSHeapSize / 2 ** 20")
        pictures, spent = page.evaluate("window.painted"), (processor({pid}), processor(browser))
        rows.append(Look(time.monotonic() - start, pictures, megabytes(pid), heap, *spent))
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seconds", type=float, default=60.0, help="Play for so long (default %(default)g).")
    options.add_argument("--speed", choices=("30", "120", "480"), default="120", help="Rounds a second, at most.")
    options.add_argument("--world", choices=("clicks", "paper"), default="clicks", help="The world to play in.")
    given = options.parse_args()
    with playing() as (pid, address), sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET.split())
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.select_option("#world", given.world)
        while not page.evaluate(f"state.game?.world === '{given.world}' && !state.busy"):
            page.wait_for_timeout(50)
        rows = drive(page, pid, given.seconds, given.speed)
        browser.close()
    report(rows)


def report(rows: list[Look]) -> None:
    """Print the pictures a second, overall and in the slowest ten seconds, what one costs, and the memory."""
    rates = [(b.pictures - a.pictures) / (b.seconds - a.seconds) for a, b in zip(rows, rows[10:], strict=False)]
    later = rows[int(WARM * len(rows)) :]
    half = len(later) // 2
    print(f"pictures a second: {rows[-1].pictures / rows[-1].seconds:.1f}, in the slowest ten seconds {min(rates):.1f}")
    for name, part in (("first", later[:half]), ("second", later[half:])):
        first, last = part[0], part[-1]
        shown = (last.pictures - first.pictures) / 1000.0
        served, drawn = (last.served - first.served) / shown, (last.drawn - first.drawn) / shown
        print(
            f"{name} half after a warm-up: a picture takes {served:.1f} ms of the server, {drawn:.1f} ms of the browser"
        )
        server, page = (max(row[column] for row in part) for column in (2, 3))
        print(f"    at most {server:.0f} MB of the server, {page:.0f} MB of the page")
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.1f}, on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
