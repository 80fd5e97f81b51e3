"""The server of the game: what it answers, and what it refuses without changing anything."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from playing import PlayServer

from robandit.play.app import MOST_GAMES, html
from robandit.service.web.pages import dashboard


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayServer]:
    one = PlayServer(tmp_path_factory.mktemp("here"))
    yield one
    one.close()


def test_it_says_where_it_is(server: PlayServer) -> None:
    assert server.said == f"The game is at http://127.0.0.1:{server.port}/. Ctrl-C stops.\n"


def test_the_page_needs_nothing_and_allows_nothing(server: PlayServer) -> None:
    status, headers, text = server.ask("GET", "/")
    assert status == 200 and text == html()
    rules = headers["Content-Security-Policy"]
    assert rules.startswith("default-src 'none'") and "unsafe" not in rules and "frame-ancestors 'none'" in rules
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    assert not re.findall(r"""(?:src|href)=["'](?!#|/|data:)|https?://(?!www\.w3\.org/2000/svg)|url\(|@import""", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|localStorage| style=", text)


def test_it_has_the_colours_of_the_dashboard() -> None:
    here, there = (re.findall(r"--([\w-]+): (#\w{6})", text) for text in (html(), dashboard()))
    own = {"p0", "p1", "p2", "p3", "flip", "promote", "suppress"}
    assert [pair for pair in here if pair[0] not in own] == there


@pytest.mark.parametrize("dark", [False, True])
def test_its_own_colours_can_be_read(dark: bool) -> None:
    """Contrast of at least 4.5 to 1 with the paper, as WCAG wants it of text."""
    light, night = html().split("prefers-color-scheme: dark) { :root", 1)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", night.partition("} }")[0] if dark else light))

    def brightness(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    paper = brightness(colours["paper"])
    for name in ("p0", "p1", "p2", "p3", "flip", "promote", "suppress", "muted"):
        low, high = sorted((paper, brightness(colours[name])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_a_game_over_http(server: PlayServer) -> None:
    assert [one["name"] for one in server.ask("GET", "/v1/worlds")[2]] == ["clicks", "paper"]
    status, _, game = server.ask("POST", "/v1/games", {"world": "clicks", "seed": 2, "budget": 15})
    assert status == 201 and game["sources"] == 10 and len(game["truth"]) == 6 and game["scene"]["round"] == 0
    place = f"/v1/games/{game['id']}"
    scene = server.ask("POST", f"{place}/play", {"round": 0, "rounds": 25, "lie": {"kind": "flip"}})[2]
    assert scene["round"] == 25 and scene["lies"] == [[1, 25, "flip", None]] and scene["spent"] > 0.0
    assert [point[0] for point in scene["points"]] == [10, 20]
    scene = server.ask("POST", f"{place}/play", {"round": 25, "rounds": 10})[2]
    assert [point[0] for point in scene["points"]] == [30]
    assert len(scene["beliefs"]) == 4 and all(len(one) == 6 for one in scene["beliefs"])
    assert server.ask("GET", place)[2]["scene"] == {**scene, "points": server.ask("GET", place)[2]["scene"]["points"]}
    scene = server.ask("POST", f"{place}/rewind", {"round": 12})[2]
    assert scene["round"] == 12 and scene["lies"] == [[1, 12, "flip", None]]
    found = server.ask("GET", "/v1/found")[2]
    (mine,) = [one for one in found if one["lies"] == "1-25 flip"]
    assert mine["round"] == 35 and mine["budget"] == 15.0
    status, headers, text = server.ask("GET", f"/found-{mine['number']}.toml")
    run = tomllib.loads(text)
    assert status == 200 and "attachment" in headers["Content-Disposition"]
    assert run["attacks"] == [{"name": "recorded", "budget": 15.0, "lies": "1-25 flip"}] and run["seed"] == 2
    assert "class Found" in server.ask("GET", f"/found_{mine['number']}.py")[2]


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("play", {"round": 0, "rounds": 0}, 422, "rounds"),
        ("play", {"round": 0, "rounds": 401}, 422, "rounds"),
        ("play", {"round": 0, "rounds": 1.5}, 422, "int"),
        ("play", {"round": 3, "rounds": 1}, 409, "this game is in round 10, not 3"),
        ("play", {"round": 10, "rounds": 1, "lie": {"kind": "praise"}}, 422, "kind"),
        ("play", {"round": 10, "rounds": 1, "lie": {"kind": "flip", "source": 0}}, 422, "number of sources, 0"),
        ("play", {"round": 10, "rounds": 1, "lie": {"kind": "flip", "source": -1}}, 422, "source"),
        ("play", {"round": 10, "rounds": 1, "speed": 3}, 422, "speed"),
        ("play", b"{", 400, "not JSON"),
        ("play", b'"' + b"x" * 5000 + b'"', 413, "4,096 bytes"),
        ("rewind", {"round": 11}, 409, "can't go back to 11"),
        ("rewind", {"round": -1}, 422, "round"),
        ("rewind", {}, 422, "round"),
        ("keep", {}, 409, "nobody has lied"),
        ("nothing", {}, 404, "not here"),
    ],
)
def test_a_bad_request_changes_nothing(server: PlayServer, path: str, body: Any, status: int, why: str) -> None:
    place = f"/v1/games/{server.begin()}"
    server.ask("POST", f"{place}/play", {"round": 0, "rounds": 10})
    before = server.ask("GET", place)[2]
    found, _, said = server.ask("POST", f"{place}/{path}", body)
    assert found == status and why in said["error"], said
    assert server.ask("GET", place)[2] == before


@pytest.mark.parametrize(
    "wanted",
    [
        {"world": "moon", "seed": 1, "budget": 1},
        {"world": "paper", "seed": -1, "budget": 1},
        {"world": "paper", "seed": 1, "budget": -1},
        {"world": "paper", "seed": 1, "budget": 1e300},
        {"world": "paper", "seed": 1},
        {"world": "../../etc", "seed": 1, "budget": 1},
    ],
)
def test_a_wrong_game_does_not_begin(server: PlayServer, wanted: dict[str, Any]) -> None:
    assert server.ask("POST", "/v1/games", wanted)[0] == 422


def test_only_this_machine_and_this_page_may_ask(server: PlayServer) -> None:
    status, _, said = server.ask("GET", "/", headers={"Host": "evil.example"})
    assert status == 421 and "printed address" in said["error"]
    body = {"world": "paper", "seed": 1, "budget": 1}
    assert server.ask("POST", "/v1/games", body, {"Origin": "http://evil.example"})[0] == 403
    assert server.ask("POST", "/v1/games", body, {"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert server.ask("POST", "/v1/games", body, {"Content-Type": "text/plain"})[0] == 415
    assert server.ask("GET", "/found-999.toml")[0] == 404 and server.ask("GET", "/found-x.toml")[0] == 404


def test_games_are_few(server: PlayServer) -> None:
    """The one that was asked for least lately makes room."""
    first, *others = [server.begin() for _ in range(MOST_GAMES)]
    server.ask("GET", f"/v1/games/{first}")
    last = server.begin()
    there = [server.ask("GET", f"/v1/games/{one}")[0] for one in (first, *others, last)]
    assert there == [200, 404, *([200] * (MOST_GAMES - 2)), 200]
