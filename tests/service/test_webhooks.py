"""Webhooks, told by a service in a process of its own: to a server that takes, fails, hangs, drips and redirects."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from served import Server, check_fold, working
from test_alarms import SHOP, acknowledge, prove
from test_belief import LIE, SETTINGS, visits
from test_life import store

from robandit.cli import main
from robandit.service.hub import Hub
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, Item, LogEntry, append
from robandit.service.web import hooks
from robandit.service.web.hooks import Hook, HookError, read_hooks
from robandit.service.web.notifier import TRY_FOR
from robandit.wire.events import Delivered

SECRET = b64encode(bytes(range(32))).decode()
TOKEN = "T0KEN-in-the-address"
IMPATIENT = """
import sys
from robandit.cli import main
from robandit.service.web import hooks, notifier
hooks.DEADLINE, notifier._FIRST = 5.0, 0.1
sys.exit(main(sys.argv[1:]))
"""
"""The command line of a service that waits less for an answer, and before it asks again."""


class Receiver:
    """A server that takes documents, and does with each what it is told to."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[Callable[[BaseHTTPRequestHandler], None]] = []  # the last one again and again
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((dict(self.headers) | {"path": self.path}, body))
                (outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0])(self)

            def do_GET(self) -> None:
                outer.got.append(({"path": "followed"}, b""))

            def log_message(self, *_: Any) -> None:
                pass

        self.answers = [status(204)]
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?token={TOKEN}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, count: int, seconds: float = 30.0) -> list[dict[str, Any]]:
        """The documents, once there are so many."""
        end = time.monotonic() + seconds
        while len(self.got) < count:
            assert time.monotonic() < end, self.got
            time.sleep(0.05)
        return [json.loads(body) for _, body in self.got]


def status(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


def hang(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(60.0)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, each within any time-out of a single read."""
    for byte in b"HTTP/1.1 200 OK" + b" " * 1000:
        handler.wfile.write(bytes([byte]))
        time.sleep(0.3)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.server.shutdown()
    one.server.server_close()


def hook_file(folder: Path, **urls: str) -> str:
    path = folder / "hooks.json"
    path.write_text(json.dumps([{"name": name, "url": url, "secret": SECRET} for name, url in urls.items()]))
    return str(path)


def proved(folder: Path, *bounds: float) -> None:
    """So much is proved of the shop, one after the other, each acknowledged at once but for the last."""
    hub = Hub(store(folder))
    calls: list[Callable[[], Any]] = []
    for bound in bounds:
        calls += [prove(hub, bound, blamed=LIE), acknowledge(hub, bound)]
    working(hub, lambda: hub.create("shop", SHOP, 7), *calls[:-1])
    hub.stop()


def metric(server: Server, result: str, hook: str = "pager") -> float:
    text = server.ask("GET", "/metrics")[1]
    found = re.search(rf'robandit_webhook_requests_total{{hook="{hook}",result="{result}"}} (\d+)', text)
    assert found is not None
    return float(found[1])


def settled(server: Server, **wanted: int) -> None:
    """Wait until so many requests had these results."""
    end = time.monotonic() + 20
    while any(metric(server, result) < count for result, count in wanted.items()):
        assert time.monotonic() < end
        time.sleep(0.1)


def told(folder: Path) -> list[tuple[str, int, bool]]:
    """What the log says of webhooks; it is folded again, and compared."""
    log = check_fold(store(folder))["shop"]
    return [(one.hook, one.notice, one.taken) for one in log if isinstance(one, Delivered)]


# ------------------------------------------------------------------------------------ what is sent


def test_an_alarm_is_told_signed_and_once(tmp_path: Path, receiver: Receiver) -> None:
    """It says what is proved, what that assumes, and whom it blames; a restart does not tell it again."""
    proved(tmp_path, 5.25)
    options = ("--webhooks", hook_file(tmp_path, pager=receiver.url))
    server = Server(tmp_path / "log.db", *options)
    (found,) = receiver.wait(1)
    ((headers, body),) = receiver.got
    settled(server, delivered=1)
    assert found["type"] == "corruption.proved" and found["data"]["lower_bound"] == 5.25
    assert found["data"]["bandit"] == "shop" and found["data"]["blamed"] == LIE
    assert found["data"]["assumes"].startswith("the mean reward is linear in the features")
    assert abs(time.time() - msgspec.convert(found["timestamp"], time_of()).timestamp()) < 60
    signed = f"{headers['Webhook-Id']}.{headers['Webhook-Timestamp']}.".encode() + body
    expected = b64encode(hmac.new(b64decode(SECRET), signed, hashlib.sha256).digest()).decode()
    assert headers["Webhook-Signature"] == f"v1,{expected}" and headers["Webhook-Id"] == found["id"]
    assert headers["path"] == f"/hook?token={TOKEN}" and headers["Content-Type"] == "application/json"
    everything = json.dumps([server.ask("GET", path)[1] for path in ("/v1/bandits/shop", "/v1/bandits/shop/log")])
    everything += server.ask("GET", "/metrics")[1]
    assert server.stop()
    again = Server(tmp_path / "log.db", *options)
    time.sleep(2.5)
    assert again.stop() and len(receiver.got) == 1
    everything += server.log + again.log + (tmp_path / "log.db").read_bytes().decode("latin-1")
    assert "webhook pager took notice 1 of bandit shop" in server.log
    assert TOKEN not in everything and SECRET not in everything
    assert told(tmp_path) == [("pager", 1, True)]


def time_of() -> Any:
    from datetime import datetime

    return datetime


@pytest.mark.no_cover
def test_sources_that_are_doubted_and_believed_again(tmp_path: Path, receiver: Receiver) -> None:
    """All of them, with the label of a stranger as it is shown."""
    log = visits(700, ["mail", LIE, "search", "app"], liar=LIE)
    now, last = time.time(), log[-1].at
    one = SQLiteStore(tmp_path / "log.db")
    append(one, [Bandit(1, "shop", msgspec.json.encode(SETTINGS), 1, now)])
    late = [msgspec.structs.replace(event, at=now - 60 + event.at - last) for event in log]
    append(one, list[Item](LogEntry(1, place, event) for place, event in enumerate(late, 1)))
    one.close()
    hub = Hub(store(tmp_path))
    kept = list(hub.bandits["shop"].learner.board.kept)
    hub._store.close()
    server = Server(tmp_path / "log.db", "--webhooks", hook_file(tmp_path, pager=receiver.url))
    found = receiver.wait(len(kept))
    settled(server, delivered=len(kept))
    server.kill()
    assert [(one["type"], one["data"]["source"]) for one in found] == [(n.kind, n.data["source"]) for n in kept]
    assert ("source.doubted", LIE) in [(one["type"], one["data"]["source"]) for one in found]
    assert len({one["id"] for one in found}) == len(kept) and told(tmp_path)[-1] == ("pager", len(kept), True)


# ------------------------------------------------------------------------------------ what goes wrong


def test_it_is_told_again_until_it_is_taken(tmp_path: Path, receiver: Receiver) -> None:
    """After errors, redirects, which are not followed, and an end in the middle: the same id and bytes each time."""
    receiver.answers = [
        status(500),
        status(302, Location=receiver.url),
        lambda handler: handler.connection.close(),
        lambda handler: (handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), status(200)(handler))[1],
    ]
    proved(tmp_path, 2.0)
    options = ("--webhooks", hook_file(tmp_path, pager=receiver.url))
    server = Server(tmp_path / "log.db", *options, program=("-c", IMPATIENT))
    receiver.wait(4)
    settled(server, delivered=1, failed=3)
    time.sleep(1.5)
    assert server.stop() and len(receiver.got) == 4 and len({body for _, body in receiver.got}) == 1
    assert "it answered 500" in server.log and "it answered 302; redirects are not followed" in server.log
    assert told(tmp_path) == [("pager", 1, True)]


def test_a_kill_forgets_nothing(tmp_path: Path, receiver: Receiver) -> None:
    """What was not taken before is told by the next process."""
    receiver.answers = [status(503)]
    proved(tmp_path, 2.0)
    options = ("--webhooks", hook_file(tmp_path, pager=receiver.url))
    server = Server(tmp_path / "log.db", *options)
    receiver.wait(1)
    server.kill()
    before = len(receiver.got)
    receiver.answers = [status(200)]
    server = Server(tmp_path / "log.db", *options)
    receiver.wait(before + 1)
    settled(server, delivered=1)
    server.kill()
    assert {json.loads(body)["id"] for _, body in receiver.got} == {json.loads(receiver.got[0][1])["id"]}
    assert told(tmp_path) == [("pager", 1, True)]


def test_webhooks_that_hang_hold_nobody_up(tmp_path: Path, receiver: Receiver) -> None:
    """Neither decisions nor another webhook; each request ends at its deadline, and the stop does not wait for them."""
    dripping, other = Receiver(), Receiver()
    receiver.answers, dripping.answers = [hang], [drip]
    proved(tmp_path, 2.0, 3.0)
    addresses = hook_file(tmp_path, pager=receiver.url, tap=dripping.url, chat=other.url)
    server = Server(tmp_path / "log.db", "--webhooks", addresses, program=("-c", IMPATIENT))
    receiver.wait(1)
    dripping.wait(1)
    slowest, end, count = 0.0, time.monotonic() + 6.0, 0
    while time.monotonic() < end or not (metric(server, "failed") and metric(server, "failed", "tap")):
        assert time.monotonic() < end + 20.0
        start, count = time.perf_counter(), count + 1
        body = {"actions": [{"id": "a", "features": [0.1, 0.2, 0.3]}], "decision_id": f"d{count}"}
        assert server.ask("POST", "/v1/bandits/shop/decisions", body)[0] == 200
        slowest = max(slowest, time.perf_counter() - start)
        time.sleep(0.05)
    assert slowest < 2.0 and len(other.wait(2)) == 2  # of the deadline, 5 seconds
    begin = time.monotonic()
    assert server.stop() and time.monotonic() - begin < 4.0
    for name in ("pager", "tap"):
        assert re.search(rf"webhook {name} did not take notice .* no answer within 5 s", server.log)
    for one in (dripping, other):
        one.server.shutdown()
        one.server.server_close()
    assert {name for name, _, _ in told(tmp_path)} == {"chat"}


def test_a_request_has_ten_seconds() -> None:
    assert hooks.DEADLINE == 10.0


def test_what_nobody_took_for_a_day_is_given_up(tmp_path: Path, receiver: Receiver) -> None:
    """A webhook that is new is not told what is old, either."""
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: time.time() - TRY_FOR - 60))
    working(hub, lambda: hub.create("shop", SHOP, 7), prove(hub, 2.0), acknowledge(hub, 2.0))
    hub.stop()
    proved(tmp_path, 3.0)
    server = Server(tmp_path / "log.db", "--webhooks", hook_file(tmp_path, pager=receiver.url))
    (found,) = receiver.wait(1)
    settled(server, delivered=1, given_up=1)
    server.kill()
    assert found["data"]["lower_bound"] == 3.0
    assert sorted(told(tmp_path)) == [("pager", 1, False), ("pager", 2, True)]


# ------------------------------------------------------------------------------------ the file


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "list of objects"),
        ([], "between 1 and 10"),
        ([{"name": "a b", "url": "http://x.example"}], "name must have"),
        ([{"name": "a", "url": f"ftp://{TOKEN}.example/"}], "url of webhook a must be"),
        ([{"name": "a", "url": f"file:///etc/{TOKEN}"}], "url of webhook a must be"),
        ([{"name": "a", "url": f"https://me:{TOKEN}@x.example/"}], "without a user"),
        ([{"name": "a", "url": f"https://x.example/{TOKEN}\r\nHost: y"}], "url of webhook a must be"),
        ([{"name": "a", "url": "https://x.example:99999/"}], "url of webhook a must be"),
        ([{"name": "a", "url": "https://x.example/", "secret": TOKEN}], "24 to 64 bytes"),
        ([{"name": "a", "url": "https://x.example/", "token": TOKEN}], "no 'token'"),
        ([{"name": "a", "url": "https://x.example/"}] * 2, "each once"),
    ],
)
def test_a_wrong_file_is_told_without_its_secrets(
    tmp_path: Path, entries: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hooks.json"
    path.write_text(json.dumps(entries))
    assert main(["serve", "--store", str(tmp_path / "log.db"), "--port", "0", "--webhooks", str(path)]) == 2
    said = capsys.readouterr().err
    assert words in said and TOKEN not in said


def test_a_hook_shows_neither_address_nor_secret(tmp_path: Path) -> None:
    (hook,) = read_hooks(Path(hook_file(tmp_path, pager=f"https://x.example:8443/{TOKEN}?a=b")))
    assert TOKEN not in repr(hook) and SECRET not in repr(hook) and "x.example" not in repr(hook)
    assert hook.headers("1-2-3", b"{}", 1e9)["Host"] == "x.example:8443"
    plain = Hook.of({"name": "a", "url": "http://[::1]/", "secret": f"whsec_{SECRET}"})
    assert plain.headers("1", b"", 0.0)["Host"] == "[::1]" and plain.secret == b64decode(SECRET)
    assert "Webhook-Signature" not in Hook.of({"name": "a", "url": "http://x.example"}).headers("1", b"", 0.0)
    assert issubclass(HookError, Exception)


def test_the_code_of_the_docs(tmp_path: Path, receiver: Receiver) -> None:
    """The file of docs/how-to/alarms.md is one, and its function knows our requests from others."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "alarms.md").read_text(encoding="utf-8")
    (tmp_path / "hooks.json").write_text(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    hook, plain = read_hooks(tmp_path / "hooks.json")
    assert hook.secret == b"0123456789abcdef01234567" and plain.secret is None
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    secret, body = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", b'{"type": "x"}'
    good = hook.headers("1-2-3", body, time.time())
    assert names["is_ours"](good, body, secret)
    assert not names["is_ours"](good, body + b" ", secret) and not names["is_ours"](good, body, f"whsec_{SECRET}")
    assert not names["is_ours"](hook.headers("1-2-3", body, time.time() - 400), body, secret)
