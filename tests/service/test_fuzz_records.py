"""Nonsense in records, contexts, and descriptions of features: refused in a sentence, and the log stays whole."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import Counter
from pathlib import Path

import table
from served import Server, check_fold
from test_fuzz import SECONDS, broken

from robandit.service.stores.sqlite import SQLiteStore

SCHEMA = {
    "action": {"price": [0, 50], "category": ["a", "b", "c"], "new": "boolean", "item": 5},
    "context": {"age": [18, 80]},
    "source": {"from": ["web", "mail"]},
    "crosses": [["age", "category"], ["from", "item"]],
}
RECORD = {"price": 3.5, "category": "a", "new": True, "item": 7}
OFFER = {
    "actions": [{"id": "a", "features": RECORD}, {"id": "b", "features": {**RECORD, "new": None, "category": None}}],
    "context": {"age": 30},
    "source": "web",
    "decision_id": "first",
}


def test_records_of_nonsense(tmp_path: Path) -> None:
    server, seen, rng = Server(tmp_path / "log.db"), Counter[tuple[str, int]](), random.Random(3)
    shop, saved = {"features": SCHEMA, "rewards": [0, 5]}, json.loads(table.features().to_json())
    bodies = [
        ("POST", "/v1/bandits/shop/decisions", {**OFFER, "actions": OFFER["actions"][:1]}),  # type: ignore[index]
        ("POST", "/v1/bandits/shop/rewards", [{"decision_id": "first", "reward": 5.0}]),
        ("PUT", "/v1/bandits/shop", shop),
        ("PUT", "/v1/bandits/other", {"features": saved, "rewards": {"low": 0, "high": 1, "highest_mean": 0.2}}),
    ]
    try:
        assert server.ask("PUT", "/v1/bandits/shop", shop)[0] == 201
        link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        until, number = time.monotonic() + SECONDS, 0
        while number < 1500 or time.monotonic() < until:
            number += 1
            method, path, plain = rng.choice(bodies)
            body = broken(rng, json.dumps(plain).encode())
            link.request(method, path, body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            text = answer.read()
            assert answer.status in (200, 201, 400, 404, 409, 422), (path, body, answer.status, text)
            assert answer.status < 300 or json.loads(text)["error"], (path, body, text)
            seen[method, answer.status] += 1
        link.close()
        print(dict(seen))
        assert min(seen["POST", 200], seen["POST", 422], seen["PUT", 422], seen["PUT", 400]) > 10
        assert server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()
    check_fold(SQLiteStore(tmp_path / "log.db"))
