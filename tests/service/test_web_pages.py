"""Web pages of strangers against a service without keys: they read nothing and write nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Page, sync_playwright
from served import FIRST, SHOP, Server, everything
from test_dashboard import in_a_browser
from test_html import BROWSER

EVIL = "rebound.example"
DECISION, REWARD = json.dumps(FIRST | {"decision_id": "theirs"}), '{"decision_id": "first", "reward": -1}'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "log.db")
    try:
        assert one.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
        assert one.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 200
        yield one
    finally:
        one.kill()


class Nothing(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of another site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}/"
        site.shutdown()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page in a browser for which a stranger's name has become the address of this machine."""
    with sync_playwright() as engine:
        args = [
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
        ]
        browser = engine.chromium.launch(executable_path=BROWSER, args=args)
        yield browser.new_page()
        browser.close()


def fetch(page: Page, url: str, **options: Any) -> Any:
    """What a page gets from `fetch`: the status and the text, or the name of the error."""
    script = """async ([url, options]) => { try {
        const answer = await fetch(url, options); return [answer.status, await answer.text()];
    } catch (error) { return error.name; } }"""
    return page.evaluate(script, [url, options])


FORM = """([url, name, value]) => {
    const form = document.createElement("form"), input = document.createElement("input");
    Object.assign(form, { method: "POST", enctype: "text/plain", action: url });
    Object.assign(input, { name, value });
    form.append(input); document.body.append(form); form.submit(); }"""
KINDS = ("text/plain", "application/x-www-form-urlencoded", "application/json")


@in_a_browser
def test_a_page_of_another_origin_writes_nothing(server: Server, elsewhere: str, page: Page) -> None:
    """A browser sends some requests of such a page without asking the service first. None is carried out."""
    before, ours = everything(server), f"http://127.0.0.1:{server.port}/v1/bandits/shop"
    page.goto(elsewhere)
    for path, body in (("decisions", DECISION), ("rewards", REWARD)):
        for kind in KINDS:
            asked = {"method": "POST", "body": body, "headers": {"Content-Type": kind}}
            assert fetch(page, f"{ours}/{path}", mode="no-cors", **asked) == [0, ""]
            assert fetch(page, f"{ours}/{path}", **asked) == "TypeError"
        page.evaluate("([url, body]) => navigator.sendBeacon(url, body)", [f"{ours}/{path}", body])
    assert fetch(page, f"{ours}/log") == "TypeError"
    with page.expect_navigation():
        page.evaluate(FORM, [f"{ours}/rewards", '{"decision_id": "first", "reward', '": -1}'])
    assert everything(server) == before
    assert "another page" in page.inner_text("body")


@in_a_browser
def test_a_name_that_becomes_this_machine_s_opens_nothing(server: Server, page: Page) -> None:
    """DNS rebinding: for the browser, the stranger's page and the service are of one origin."""
    before, origin = everything(server), f"http://{EVIL}:{server.port}"
    page.goto(f"{origin}/health")  # any document of that name
    answers = [
        fetch(page, f"{origin}/v1/bandits/shop/{path}", method="POST", body=body, headers={"Content-Type": kind})
        for path, body in (("decisions", DECISION), ("rewards", REWARD))
        for kind in KINDS
    ]
    paths = ("/v1/bandits", "/v1/bandits/shop", "/v1/bandits/shop/log", "/metrics", "/health", "/")
    answers += [fetch(page, f"{origin}{path}") for path in paths]
    assert everything(server) == before
    assert all(status == 421 and f"--allow-host {EVIL}" in text for status, text in answers), answers
