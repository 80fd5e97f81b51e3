"""Plays the shop of examples/shop.py to a service, and takes pictures of its dashboard.

    python benchmarks/draw_dashboard.py docs/figures          # dashboard.png and shop-before, -during and -after.png
    python benchmarks/draw_dashboard.py /tmp/look --looks     # also phone and desk, light and dark

Three bandits have the same visitors: the two of the example, and a quorum that explores beside which a plain OFUL
watches. It needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from robandit import Client

EXAMPLE = Path(__file__).parents[1] / "examples" / "shop.py"
EXPLORER: dict[str, Any] = {"policy": "quorum", "exploration": 0.05}
PHONE, DESK, CARDS, PAGE = 390, 1280, 800, 1080


def example() -> Any:
    """The program of the example."""
    spec = importlib.util.spec_from_file_location("shop", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shop"] = module
    spec.loader.exec_module(module)
    return module


def shoot(browser: Browser, url: str, path: Path, width: int, scheme: Any = "light") -> None:
    """Take a picture of a page, once it shows something."""
    context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
    page = context.new_page()
    page.goto(url)
    page.locator(".card svg path, .panel svg path").first.wait_for(state="attached")
    page.wait_for_timeout(1500)
    page.screenshot(path=path, full_page=True)
    context.close()
    with Image.open(path) as picture:  # few colours do for a page, rare ones among them, in a third of the bytes
        few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path, flush=True)


def play(browser: Browser, client: Client, url: str, options: argparse.Namespace) -> None:
    """Let the visitors come at their pace, and take pictures before, during and after the attack."""
    shop_py = example()
    shop, story = shop_py.Shop(options.visits, options.seed), ("shop-plain", "shop-quorum")
    common = {"features": shop_py.FEATURES, "rewards": "clicks", "horizon": options.visits, "seed": options.seed}
    common |= {"sources": len(shop_py.SOURCES)}
    for label, settings in shop_py.BANDITS.items():
        client.create(f"shop-{label}", **common, exploration=0.0, **settings)
    start, group = time.monotonic(), shop_py.TOGETHER
    pictures = {shop.turns // group - 1: "before", (shop.turns + options.visits // 4) // group - 1: "during"}
    for first in range(0, options.visits, group):
        time.sleep(max(0.0, start + first / options.pace - time.monotonic()))
        for name in story:
            visit(client, shop, name, range(first, first + group))
        if first // group in pictures:
            shoot(browser, f"{url}/", options.folder / f"shop-{pictures[first // group]}.png", CARDS)
    shoot(browser, f"{url}/", options.folder / "shop-after.png", CARDS)


def explore(client: Client, options: argparse.Namespace) -> None:
    """The same visitors, for a bandit that explores and has a shadow."""
    shop_py = example()
    shop = shop_py.Shop(options.visits, options.seed)
    common = {"features": shop_py.FEATURES, "rewards": "clicks", "horizon": options.visits, "seed": options.seed}
    client.create("shop", **common, sources=len(shop_py.SOURCES), **EXPLORER)
    client.change("shop", shadow={"name": "plain", "policy": "oful", "radius_scale": 0.1})
    start = time.monotonic()
    for first in range(0, options.visits, shop_py.TOGETHER):
        time.sleep(max(0.0, start + first / options.pace - time.monotonic()))
        visit(client, shop, "shop", range(first, first + shop_py.TOGETHER))


def visit(client: Client, shop: Any, name: str, visits: range) -> None:
    """Some visitors come, and the shop hears what they clicked on."""
    clicks = {}
    for number in visits:
        chosen = client.decide(name, shop.shelves[number], f"visit-{number}", shop.sources[number])
        clicks[chosen.decision_id] = shop.click(number, chosen.index)
    client.rewards(name, clicks)


def looks(browser: Browser, url: str, folder: Path) -> None:
    """Both pages, on a phone and on a desk, in light and dark."""
    for width in (PHONE, DESK):
        for scheme in ("light", "dark"):
            for name, page in (("all", "/"), ("one", "/#shop")):
                shoot(browser, f"{url}{page}", folder / f"{name}-{width}-{scheme}.png", width, scheme)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--visits", type=int, default=3000)
    parser.add_argument("--pace", type=float, default=50.0, help="visits a second")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--looks", action="store_true", help="take only pictures of one bandit, in all forms")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with example().service(None) as url, Client(url) as client, sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        if not options.looks:
            play(browser, client, url, options)
        explore(client, options)
        if options.looks:
            looks(browser, url, options.folder)
        else:
            shoot(browser, f"{url}/#shop", options.folder / "dashboard.png", PAGE)
        browser.close()


if __name__ == "__main__":
    main()
