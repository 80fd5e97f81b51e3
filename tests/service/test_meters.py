"""What the service counts about itself, and the access log."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from served import FIRST, ONE, SHOP, Server

from robandit.service import meters
from robandit.service.hub import Hub
from robandit.service.meters import BOUNDS, Histogram, call_of
from robandit.service.requests.openapi import openapi
from robandit.service.serving import reports
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.web import access_log
from robandit.service.web.access_log import AccessLog
from robandit.service.web.keys import Keys, new_key


def parsed(text: str) -> dict[str, float]:
    """The samples of a page of metrics, by name and labels. Every sample must follow a line with its type."""
    found, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, "a family has one place"
            kinds[name] = kind
            continue
        sample, value = line.rsplit(" ", 1)
        family = list(kinds)[-1]
        assert sample.split("{")[0] in (family, *(f"{family}_{end}" for end in ("bucket", "sum", "count")))
        assert sample not in found
        found[sample] = float(value)
    return found


def test_a_histogram_counts_like_a_list() -> None:
    one, times = Histogram(), [0.0, 0.001, 0.0011, 0.3, 10.0, 99.0, *(0.004 for _ in range(7))]
    for seconds in times:
        one.add(seconds)
    both = Histogram.sum([one, one])
    for histogram, factor in ((one, 1), (both, 2)):
        found = parsed("\n".join(["# TYPE x histogram", *histogram.lines("x", 'call="a"')]))
        for bound in BOUNDS:
            assert found[f'x_bucket{{call="a",le="{bound}"}}'] == factor * sum(one <= bound for one in times)
        assert found['x_bucket{call="a",le="+Inf"}'] == found['x_count{call="a"}'] == factor * len(times)
        assert found['x_sum{call="a"}'] == pytest.approx(factor * sum(times))


def test_calls_are_those_of_the_document() -> None:
    """Whatever is asked for, the labels are few."""
    for path, methods in openapi()["paths"].items():
        for method in set(methods) - {"parameters"}:
            bandit = "shop" if "{name}" in path else None
            assert call_of(method.upper(), path.replace("{name}", "shop")) == (f"{method.upper()} {path}", bandit)
    for method, path in (("GET", "/v1/bandits/shop/x"), ("TRACE", "/health"), ("GET", "/v1/bandits/a/b/log"), ("", "")):
        assert call_of(method, path) == ("other", None)


def test_the_metrics_of_a_service(tmp_path: Path) -> None:
    server = Server(tmp_path / "log.db")
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    for number in range(20):
        server.ask("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "decision_id": f"d{number}"})
    server.ask("POST", "/v1/bandits/shop/decisions", {"actions": []})
    server.ask("POST", "/v1/bandits/nobody/decisions", FIRST)
    server.ask("GET", "/v1/nothing/here")
    server.ask("POST", "/v1/bandits/shop/rewards", {"decision_id": "d3", "reward": 0.1})
    found = parsed(server.ask("GET", "/metrics")[1])
    decide = "POST /v1/bandits/{name}/decisions"
    assert found[f'robandit_requests_total{{call="{decide}",status="200"}}'] == 20
    assert found[f'robandit_requests_total{{call="{decide}",status="422"}}'] == 1
    assert found[f'robandit_requests_total{{call="{decide}",status="404"}}'] == 1
    assert found['robandit_requests_total{call="other",status="404"}'] == 1
    assert found[f'robandit_request_seconds_count{{call="{decide}"}}'] == 22
    assert 0.0 < found[f'robandit_request_seconds_sum{{call="{decide}"}}'] < 22 * 5.0
    assert 22 <= found["robandit_commit_seconds_count"] <= 25 and found["robandit_queue_length"] == 0
    assert found['robandit_monitor_lag{bandit="shop"}'] == 20 and found['robandit_pending{bandit="shop"}'] == 19
    assert 10e6 < found["process_resident_memory_bytes"] < 1e9 and found["process_open_fds"] > 3
    assert found["robandit_disk_free_bytes"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)
    assert found["robandit_ready"] == found["robandit_bandits"] == found["robandit_store_openings_total"] == 1
    server.kill()


def test_many_bandits_have_few_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after the first are summed up under a name that no bandit can have."""
    from served import offer, working

    from robandit.wire.types import BanditSettings

    monkeypatch.setattr(reports, "MOST_NAMED", 2)
    hub, settings = Hub(SQLiteStore(tmp_path / "log.db")), BanditSettings(dim=3, noise_range=0.5)
    calls: list[Any] = []
    for name in "abcd":
        calls.append(lambda name=name: hub.create(name, settings, 7))
        calls += [lambda name=name, i=i: hub.decide(name, offer(f"{i}")) for i in range(ord(name) - 96)]
    working(hub, *calls)
    found = parsed("\n".join(hub.metrics(hub.bandits)))
    rounds = {key: value for key, value in found.items() if "rounds_total" in key}
    assert rounds == {
        f'robandit_rounds_total{{bandit="{name}"}}': n for name, n in (("a", 1), ("b", 2), ("_others", 7))
    }
    hub.stop()


def test_a_key_for_some_bandits_sees_no_totals(tmp_path: Path) -> None:
    secret, entry = new_key("some", "read", ["shop"])
    every, all_ = new_key("all", "read")
    (tmp_path / "keys.json").write_text(json.dumps([entry, all_]))
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    assert "robandit_requests_total" not in server.ask("GET", "/metrics", key=secret)[1]
    assert "robandit_queue_length" in server.ask("GET", "/metrics", key=every)[1]
    server.kill()


# ------------------------------------------------------------------------------------ the access log


def test_the_access_log(tmp_path: Path) -> None:
    """A line for each request, with the name of the key and never the key, a body, or a decision's id."""
    secret, entry = new_key("shop-frontend", "admin")
    (tmp_path / "keys.json").write_text(json.dumps([entry]))
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"), "--access-log")
    server.ask("PUT", "/v1/bandits/shop", SHOP, secret)
    server.ask("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "decision_id": "person-7"}, secret)
    server.ask("POST", "/v1/bandits/shop/decisions?decision_id=person-8", {"actions": [ONE]}, secret)  # not for JSON
    server.ask("POST", "/v1/bandits/shop/rewards", {"decision_id": "person-7", "reward": 0.123}, "a-wrong-secret")
    server.ask("GET", "/secret-path", None, secret)
    assert server.stop()
    assert server.process.stderr is not None
    lines = [json.loads(line) for line in server.log.splitlines()]
    told = [line for line in lines if line["from"] == "robandit.access" and line["text"] != "GET /ready"]
    assert [(one["text"], one["status"], one["key"], one["bandit"]) for one in told] == [
        ("PUT /v1/bandits/{name}", 201, "shop-frontend", "shop"),
        ("POST /v1/bandits/{name}/decisions", 200, "shop-frontend", "shop"),
        ("POST /v1/bandits/{name}/decisions", 422, "shop-frontend", "shop"),
        ("POST /v1/bandits/{name}/rewards", 401, None, "shop"),
        ("other", 404, "shop-frontend", None),
    ]
    assert len({one["id"] for one in told}) == 5 and all(0.0 < one["ms"] < 20_000 for one in told)
    for word in (secret, "a-wrong-secret", "person", "0.123", "secret-path"):
        assert word not in server.log


def test_ids_of_requests() -> None:
    """A short plain one is taken over; others could write into the log what they like."""
    read, write = os.pipe()
    log = AccessLog(Keys([]), write)
    given = [b"abc-1.2_3", b"", b"x" * 65, b'"quoted"', b"new\nline", b"\xff"]
    found = [log.id_of({"headers": [(b"x-request-id", one)]}) for one in given]
    assert found[0] == "abc-1.2_3" and len(set(found)) == 6
    assert all(one.startswith(log._start) for one in found[1:])
    log.stop()
    os.close(read)
    os.close(write)


def test_a_reader_that_is_slow_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are lost, and a line says how many."""
    monkeypatch.setattr(access_log, "_MOST", 1500)
    read, write = os.pipe()
    log = AccessLog(Keys([]), write)
    scope = {"method": "GET", "path": "/health", "headers": []}
    start = time.perf_counter()
    for number in range(5000):
        log.note(scope, str(number), 200, 0.001)
    assert time.perf_counter() - start < 5.0
    text = b""

    def drain() -> None:
        nonlocal text
        while part := os.read(read, 65536):
            text += part

    reader = threading.Thread(target=drain)
    reader.start()
    log.stop()
    os.close(write)
    reader.join(20)
    os.close(read)
    lines = [json.loads(line) for line in text.splitlines()]
    kept, lost = [one for one in lines if "ms" in one], [one for one in lines if "ms" not in one]
    assert len(kept) + sum(int(one["text"].split()[0]) for one in lost) == 5000 and lost
    assert meters.call_of("GET", "/health")[0] == kept[0]["text"]


def test_minutes_are_kept_for_two_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Latency and errors by the minute, in bounded space; a clock that is set back starts no new minute."""
    now, one = [6000.0], meters.Meters()
    monkeypatch.setattr("robandit.service.meters.time.time", lambda: now[0])
    decide = "POST /v1/bandits/{name}/decisions"
    for _ in range(500):
        for status, seconds in ((200, 0.004), (200, 0.02), (404, 0.001), (500, 0.3)):
            one.note(decide, status, seconds)
        one.note("GET /metrics", 200, 9.0)
        now[0] += 30.0
    now[0] -= 600.0
    one.note(decide, 200, 0.004)
    now[0] += 599.0
    found = one.report().minutes
    assert len(found) == 120 and [b.start - a.start for a, b in pairwise(found)] == [60.0] * 119
    assert (found[0].requests, found[0].refused, found[0].failed, found[0].decisions) == (10, 2, 2, 8)
    assert found[-1].requests == 11 and found[0].half is not None and found[0].nearly_all is not None
    assert 0.0025 < found[0].half <= 0.005 and 0.25 < found[0].nearly_all <= 0.5
    assert Histogram().within(0.5) is None


def test_shares_lie_between_the_bounds_of_their_bucket() -> None:
    one = Histogram()
    for seconds in (0.0005, 0.0005, 0.003, 99.0):
        one.add(seconds)
    assert [one.within(share) for share in (0.25, 0.5, 0.75, 1.0)] == [0.0005, 0.001, 0.005, BOUNDS[-1]]
