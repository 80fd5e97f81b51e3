"""The decision service over HTTP: what it answers, what it refuses, and that it loses nothing when it is killed."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import FIRST, ONE, SHOP, Server, check_fold, everything, free_port, menu

from robandit.cli import main
from robandit.service.log_lines import JsonLines
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.web.keys import ROLES, Keys, new_key
from robandit.wire.types import BanditSettings

BAD: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/v1/bandits/shop/decisions", b"{", 400, "not JSON"),
    ("POST", "/v1/bandits/shop/decisions", b"\xff\xfe{}", 400, "not JSON"),
    ("POST", "/v1/bandits/shop/decisions", b'{"actions": [{"id": "\xff", "features": [0, 0, 0]}]}', 400, ""),
    ("POST", "/v1/bandits/shop/decisions", b'{"actions": [{"id": "a", "features": [NaN, 0, 0]}]}', 400, ""),
    (
        "POST",
        "/v1/bandits/shop/decisions",
        b'{"actions": [{"id": "a", "features": [1e999, 0, 0]}]}',
        422,
        "out of range",
    ),
    ("POST", "/v1/bandits/shop/decisions", {"actions": []}, 422, "actions"),
    (
        "POST",
        "/v1/bandits/shop/decisions",
        {"actions": [{"id": "a", "features": [0.1, 0.2]}]},
        422,
        "has 2 features",
    ),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{"id": "a", "features": [9, 0, 0]}]}, 422, "action_bound"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{"id": "a", "features": [0, 0, 0]}] * 2}, 422, "must differ"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": "all"}, 422, "array"),
    ("POST", "/v1/bandits/shop/decisions", {"action": []}, 422, "action"),
    ("POST", "/v1/bandits/shop/decisions", b"x" * (5 << 20), 413, "bytes"),
    ("POST", "/v1/bandits/nobody/decisions", {"actions": [{"id": "a", "features": [0, 0, 0]}]}, 404, "nobody"),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first", "reward": "much"}, 422, ""),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first", "reward": 1e300}, 422, ""),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first"}, 422, "reward"),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first", "reward": 0.1, "sigma": 0.1}, 422, "sigma"),
    ("PUT", "/v1/bandits/other", {"dim": 0}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "policy": "magic"}, 422, "magic"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "seed": -1}, 422, "seed"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "sead": 1}, 422, "sead"),
    ("PUT", "/v1/bandits/sp%20ace", {"dim": 2}, 422, ""),
    ("GET", "/v1/bandits/nobody", None, 404, "nobody"),
    ("GET", "/v1/nothing", None, 404, "nothing"),
    ("DELETE", "/v1/bandits/shop", None, 422, "version"),
    ("GET", "/v1/bandits/shop/decisions", None, 405, "POST"),
    ("POST", "/v1/bandits/shop", {}, 405, "PUT"),
    # Names.
    ("GET", "/v1/bandits/SHOP", None, 404, "SHOP"),
    ("PUT", "/v1/bandits/shop%0A", SHOP, 422, "name"),
    ("PUT", "/v1/bandits/caf%C3%A9", SHOP, 422, "name"),
    ("PUT", "/v1/bandits/" + "x" * 65, SHOP, 422, "name"),
    ("PUT", "/v1/bandits/-rf", SHOP, 422, "name"),
    # Ids that were there before.
    ("PUT", "/v1/bandits/shop", {**SHOP, "seed": 8}, 409, "other settings"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "actions": [{**ONE, "id": "b"}]}, 409, "other actions"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "actions": [{**ONE, "features": [0, 0, 0]}]}, 409, "other"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "actions": [ONE, ONE]}, 409, "other actions"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "source": "web"}, 409, "source"),
    ("POST", "/v1/bandits/shop/decisions", FIRST, 200, "first"),
    # Ids and numbers of an odd size.
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "id": ""}]}, 422, "id"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "id": "x" * 129}]}, 422, "id"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "decision_id": "x" * 129}, 422, "decision_id"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "source": "x" * 129}, 422, "source"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "sigma": 0}]}, 422, "sigma"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "sigma": 1e10}]}, 422, "sigma"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "features": [0.1] * 1001}]}, 422, "features"),
    (
        "POST",
        "/v1/bandits/shop/decisions",
        {"actions": [{**ONE, "features": [0, 0, 1.001]}]},
        422,
        "action_bound",
    ),
    ("POST", "/v1/bandits/shop/rewards", b'{"decision_id": "first", "reward": 1e999}', 422, "out of range"),
    ("POST", "/v1/bandits/shop/rewards", b'{"decision_id": "first", "reward": NaN}', 400, "not JSON"),
    ("POST", "/v1/bandits/shop/rewards", b"", 400, "not JSON"),
    ("POST", "/v1/bandits/nobody/rewards", {"decision_id": "first", "reward": 1}, 404, "nobody"),
    # All of a batch, or nothing.
    ("POST", "/v1/bandits/shop/rewards", [{"decision_id": "first", "reward": 1}, {"decision_id": "x"}], 422, "[1]"),
    ("PUT", "/v1/bandits/other", [], 422, "object"),
    ("PUT", "/v1/bandits/other", b'{"dim": 2, "noise_range": NaN}', 400, "not JSON"),
    ("PUT", "/v1/bandits/other", {"dim": 2.5}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": "2"}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": 10**30}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "noise_range": 1e-300}, 422, "noise_range"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "corruption": 1e-300}, 422, "corruption"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "delta": 1}, 422, "delta"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "policy": "robust-weighted-oful"}, 422, "must be told"),
    ("PUT", "/v1/bandits/other", b'{"dim": ' + b"[" * 100_000, 400, "nested"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "log.db", program=("-m", "robandit"))  # as users start it
    try:
        yield one
    finally:
        one.kill() if one.process.poll() is None else one._close()


def test_a_day_in_the_shop(server: Server, tmp_path: Path) -> None:
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 200
    status, answer = server.ask("PUT", "/v1/bandits/shop", {**SHOP, "dim": 4})
    assert status == 409 and "other settings" in answer["error"]
    rng = np.random.default_rng(1)
    offer = {"actions": menu(rng), "decision_id": "mine", "source": "web"}
    status, first = server.ask("POST", "/v1/bandits/shop/decisions", offer)
    assert status == 200 and first.keys() == {"decision_id", "action_id", "index", "propensity", "round"}
    assert server.ask("POST", "/v1/bandits/shop/decisions", offer) == (200, first)  # a retry
    assert server.ask("POST", "/v1/bandits/shop/decisions", {**offer, "actions": menu(rng, 2)})[0] == 409
    _, second = server.ask("POST", "/v1/bandits/shop/decisions", {"actions": menu(rng)})
    assert second["round"] == 2 and second["decision_id"] != "mine"
    for reward, outcome in ((0.5, "accepted"), (0.5, "duplicate"), (0.7, "conflict")):
        answer = server.ask("POST", "/v1/bandits/shop/rewards", {"decision_id": "mine", "reward": reward})
        assert answer == (200, {"results": [{"decision_id": "mine", "status": outcome}]})
    several = [{"decision_id": name, "reward": 0.1} for name in ("nobody", second["decision_id"], "mine")]
    _, answer = server.ask("POST", "/v1/bandits/shop/rewards", several)
    assert [one["status"] for one in answer["results"]] == ["unknown", "accepted", "conflict"]
    status, seen = server.ask("GET", "/v1/bandits/shop")
    assert status == 200 and (seen["rounds"], seen["rewards"], seen["pending"]) == (2, 2, 0)
    assert "seed" not in json.dumps(seen) and seen["certificate"]["lower_bound"] == 0.0
    _, text = server.ask("GET", "/v1/bandits/shop/log")
    assert [json.loads(line)["type"] for line in text.splitlines()] == ["D", "D", "R", "R"]
    assert 'robandit_rounds_total{bandit="shop"} 2' in server.ask("GET", "/metrics")[1]
    assert server.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


@pytest.mark.no_cover
def test_bad_requests_change_nothing(server: Server, tmp_path: Path) -> None:
    assert server.ask("PUT", "/v1/bandits/shop", {**SHOP, "seed": 7})[0] == 201
    assert server.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 200
    before = everything(server)
    for method, path, body, status, word in BAD:
        found, answer = server.ask(method, path, body)
        assert found == status and word in str(answer), (path, body, found, answer)
        assert "Traceback" not in str(answer)
    for number, status, word in ((10_001, 422, "10000"), (10**6, 413, "bytes")):
        many = b'{"actions": [%b]}' % b", ".join(b'{"id": "%d", "features": [0,0,0]}' % i for i in range(number))
        found, answer = server.ask("POST", "/v1/bandits/shop/decisions", many)
        assert found == status and word in answer["error"]
    many = json.dumps([{"decision_id": "first", "reward": 0.1}] * 10_001).encode()
    found, answer = server.ask("POST", "/v1/bandits/shop/rewards", many)
    assert found == 422 and "10000" in answer["error"]
    assert everything(server) == before
    assert server.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_its_own_log_is_json(tmp_path: Path) -> None:
    """Every line is JSON, whatever it holds, and there are no secrets in it."""
    assert main(["key", "me", "admin", "--keys", str(tmp_path / "keys.json")]) == 0
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    server.ask("GET", "/v1/bandits", key="a wrong secret")
    server.process.terminate()
    server.process.wait(20)
    assert server.process.stderr
    text = server.process.stderr.read()
    server._close()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines and all(line.keys() >= {"at", "level", "from", "text"} for line in lines)
    assert "a wrong secret" not in text
    record = logging.LogRecord(
        "here", logging.ERROR, "", 0, 'a "quoted"\nname', None, (ValueError, ValueError(1), None)
    )
    line = json.loads(JsonLines().format(record))
    assert line["text"] == 'a "quoted"\nname' and "ValueError: 1" in line["trace"]


def test_keys_and_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = {}
    for role in ROLES:
        assert main(["key", f"the {role}", role, "--keys", str(tmp_path / "keys.json")]) == 0
        secrets[role] = capsys.readouterr().out.strip()
    stored = (tmp_path / "keys.json").read_text(encoding="utf-8")
    assert not any(secret in stored for secret in secrets.values())
    assert main(["key", "the admin", "admin", "--keys", str(tmp_path / "keys.json")]) == 2
    assert main(["key", "somebody", "--keys", str(tmp_path / "keys.json")]) == 2
    assert main(["key", "spare", "decide", "--bandit", "shop", "--keys", str(tmp_path / "keys.json")]) == 0
    assert json.loads((tmp_path / "keys.json").read_text(encoding="utf-8"))[-1]["bandits"] == ["shop"]
    for code in (0, 2):
        assert main(["key", "spare", "--revoke", "--keys", str(tmp_path / "keys.json")]) == code
    assert (tmp_path / "keys.json").read_text(encoding="utf-8") == stored
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    try:
        offer = {"actions": [{"id": "a", "features": [0.1, 0.2, 0.3]}], "decision_id": "x"}
        requests: list[tuple[str, str, Any, str]] = [
            ("PUT", "/v1/bandits/shop", SHOP, "admin"),
            ("POST", "/v1/bandits/shop/decisions", offer, "decide"),
            ("POST", "/v1/bandits/shop/rewards", {"decision_id": "x", "reward": 0.1}, "reward"),
            ("GET", "/v1/bandits/shop", None, "read"),
            ("GET", "/v1/bandits/shop/log", None, "read"),
            ("GET", "/metrics", None, "read"),
        ]
        for method, path, body, role in requests:
            for wrong in (None, "wrong", secrets["admin"][:-1], secrets["admin"] + "x", "\xff" * 9):
                status, answer = server.ask(method, path, body, wrong)
                assert status == 401 and "needs a key" in answer["error"]
            for other in ("decide", "reward", "read"):
                if other != role:
                    status, answer = server.ask(method, path, body, secrets[other])
                    assert status == 403 and repr(role) in answer["error"]
            assert server.ask(method, path, body, secrets[role])[0] in (200, 201)
        assert server.ask("GET", "/health")[0] == 200
    finally:
        server.kill()


def test_numbers_at_the_edge(server: Server, tmp_path: Path) -> None:
    """Values that are tiny, large or alone are no mistake."""
    made = {"dim": 2.0, "horizon": 1e6, "action_bound": 3, "exploration": 0.5}
    assert server.ask("PUT", "/v1/bandits/" + "x" * 64, made)[0] == 201  # whole numbers, however they are written
    assert server.ask("PUT", "/v1/bandits/" + "x" * 64, {**made, "dim": 2, "horizon": 1_000_000})[0] == 200
    features = [[1e-300, 5e-324], [0.0, -0.0], [3.0, 0.0], [1.8, 2.4], [-3, 0]]
    for sigma in (None, 1e-300, 1e9):
        for some in (features[:1], features):
            actions = [{"id": str(i), "features": one, "sigma": sigma} for i, one in enumerate(some)]
            status, answer = server.ask("POST", f"/v1/bandits/{'x' * 64}/decisions", {"actions": actions})
            assert status == 200 and (len(some) > 1 or answer["propensity"] == 1.0), answer
            for reward in (1e9, -1e9):
                given = {"decision_id": answer["decision_id"], "reward": reward}
                assert server.ask("POST", f"/v1/bandits/{'x' * 64}/rewards", given)[0] == 200
    status, seen = server.ask("GET", "/v1/bandits/" + "x" * 64)
    assert status == 200 and None not in seen["estimate"] + seen["uncertainty"]
    assert server.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_a_horizon_that_is_over_is_no_error(server: Server) -> None:
    """The service says it once."""
    assert server.ask("PUT", "/v1/bandits/b", {"dim": 3, "horizon": 2, "policy": "multi-level-weighted-oful"})[0] == 201
    for _ in range(6):
        assert server.ask("POST", "/v1/bandits/b/decisions", {"actions": [ONE]})[0] == 200
    server.process.terminate()
    assert server.process.stderr is not None and server.process.stderr.read().count("horizon of 2 rounds is over") == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[]", "has no keys"),
        ("{", "not a list of keys"),
        ('[{"name": "me"}]', "not a list of keys"),
        ('[{"name": "me", "role": "king", "sha256": "00"}]', "one of the roles"),
        ('[{"name": "me", "role": "admin", "sha256": "00"}]', "a sha256"),
    ],
)
def test_keys_that_are_none(text: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A service with a broken file of keys does not start, and the file stays as it is."""
    path = tmp_path / "keys.json"
    path.write_text(text)
    for command in (["serve", "--store", str(tmp_path / "log.db")], ["key", "you", "admin"])[
        : 1 if text == "[]" else 2
    ]:
        assert main([*command, "--keys", str(path)]) == 1
        assert word in capsys.readouterr().err and path.read_text() == text
    assert not (tmp_path / "log.db").exists()


def test_it_listens_elsewhere_only_with_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "0.0.0.0", "--store", str(tmp_path / "log.db")]) == 2
    assert "needs --keys" in capsys.readouterr().err and not (tmp_path / "log.db").exists()
    assert main(["serve", "--keys", str(tmp_path / "none.json")]) == 1


def test_two_services_can_not_share_a_file(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", str(tmp_path / "log.db"), "--port", str(free_port())]) == 2
    assert "another process" in capsys.readouterr().err


def test_a_key_has_a_rate() -> None:
    _, entry = new_key("me", "admin")
    assert entry["role"] == "admin"
    keys = Keys([], rate=5.0)
    assert [keys.within_rate("me") for _ in range(7)] == [True] * 5 + [False] * 2
    assert keys.within_rate("you")
    with pytest.raises(ValueError, match="role must be"):
        new_key("me", "king")


# ------------------------------------------------------------------------------------ the page


def test_the_five_minutes_of_the_docs(server: Server) -> None:
    """Every curl of docs/how-to/service.md works against a service that was started as the page says."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "service.md").read_text(encoding="utf-8")
    (console,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    answers = []
    for words in map(shlex.split, re.split(r"^\$ curl", console, flags=re.MULTILINE)[1:]):
        (address,) = [word for word in words if word.startswith("localhost:8000")]
        method = words[words.index("-X") + 1] if "-X" in words else "POST" if "--json" in words else "GET"
        body = words[words.index("--json") + 1].encode() if "--json" in words else None
        answers.append(server.ask(method, address.removeprefix("localhost:8000"), body))
    assert [status for status, _ in answers] == [201, 200, 200, 200]
    assert answers[1][1]["action_id"] in ("shirt", "scarf")
    assert answers[2][1]["results"][0]["status"] == "accepted"
    assert answers[3][1]["rewards"] == 1


def test_every_call_of_the_page_is_in_the_document(server: Server) -> None:
    _, document = server.ask("GET", "/openapi.json")
    bandit = "/v1/bandits/{name}"
    assert set(document["paths"]) == {
        *("/v1/bandits", bandit, f"{bandit}/decisions", f"{bandit}/rewards", f"{bandit}/log"),
        *(f"{bandit}/decisions/batch", f"{bandit}/imports", f"{bandit}/activity", f"{bandit}/acknowledgements"),
        *(f"{bandit}/cuts", f"{bandit}/forget"),
        *("/v1/backup", "/v1/service", "/metrics", "/health", "/ready", "/openapi.json"),
    }
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "service.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in BanditSettings.__struct_fields__)
