"""How smoothly `robandit play` plays, and whether it keeps its size: pictures a second in a browser, and memory.

    python benchmarks/play.py                   a minute
    python benchmarks/play.py --seconds 600     ten minutes

Four policies play beside their honest twins while lies change every second; at the end of a game it goes back to the
beginning, which keeps an attack. Chromium must be on the PATH.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

QUIET = "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run --enable-precise-memory-info"
LIES = ("f", "f", "p", "p", "s", "s")  # each key begins a lie or ends it
WARM = 0.25  # of the time, after which memory is compared


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


def drive(page: Page, pid: int, seconds: float, speed: str) -> list[tuple[float, int, float, float]]:
    """Play for so long. Each second: the time, the pictures so far, and the memory of the server and of the page."""
    page.select_option("#speed", speed)
    page.evaluate("toggle()")
    start, rows, step = time.monotonic(), list[tuple[float, int, float, float]](), 0
    while time.monotonic() - start < seconds:
        page.wait_for_timeout(1000)
        page.keyboard.press(LIES[step % len(LIES)])
        step += 1
        if page.evaluate("state.scene.round === state.game.rounds"):
            page.evaluate("rewind(0).then(() => toggle())")
        heap = page.evaluate("performance.memory.usedJSHeapSize / 2 ** 20")
        rows.append((time.monotonic() - start, page.evaluate("window.painted"), megabytes(pid), heap))
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


def report(rows: list[tuple[float, int, float, float]]) -> None:
    """Print the pictures a second, overall and in the slowest ten seconds, and the memory in the middle and at last."""
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(rows, rows[10:], strict=False)]
    later = rows[int(WARM * len(rows)) :]
    half = len(later) // 2
    print(f"pictures a second: {rows[-1][1] / rows[-1][0]:.1f}, in the slowest ten seconds {min(rates):.1f}")
    for name, column in (("server", 2), ("page", 3)):
        first, last = (max(row[column] for row in part) for part in (later[:half], later[half:]))
        print(f"{name}: at most {first:.0f} MB in the first half after a warm-up, {last:.0f} MB in the second")


if __name__ == "__main__":
    main()
