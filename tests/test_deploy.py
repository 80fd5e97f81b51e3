"""The files in deploy/: they parse, name what there is, and the tools that are here accept them."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from served import FIRST, SHOP, Server, free_port

from robandit.cli.service import SERVE

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
NAME = re.compile(r"\b((?:robandit|process)_[a-z_]+)\b")


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not here")


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def alerts() -> list[dict[str, Any]]:
    return [rule for group in load("alerts.yml")["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    """All that the dashboard asks for, with its variables filled in."""
    board = json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found += [one["query"]["query"] for one in board["templating"]["list"] if isinstance(one["query"], dict)]
    filled = [
        one.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$bandit", ".*") for one in found
    ]
    assert not any("$" in one for one in filled)
    return filled


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("deploy")
    (folder / "hooks.json").write_text('[{"name": "pager", "url": "http://127.0.0.1:9/"}]', encoding="utf-8")
    more = ("--allow-host", "bandits.example", "--access-log", "--webhooks", str(folder / "hooks.json"))
    one = Server(folder / "log.db", *more)
    assert one.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    assert one.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 200
    yield one
    one.kill()


# ------------------------------------------------------------------------------------ Prometheus and Grafana


def test_metrics_that_are_asked_for_are_there(server: Server) -> None:
    """In the alerts and on the dashboard, with labels that they have."""
    text = server.ask("GET", "/metrics")[1]
    there = set(re.findall(r"^([a-z_]+)", text, re.MULTILINE))
    expressions = [rule["expr"] for rule in alerts()] + queries()
    named = {name for text in expressions for name in NAME.findall(re.sub(r'"[^"]*"', "", text))}
    assert len(named) > 12 and named <= there, named - there
    calls = set(re.findall(r'call="([^"]*)"', text))
    assert {call for one in expressions for call in re.findall(r'call="([^"]*)"', one)} <= calls


def test_every_metric_is_on_the_page(server: Server) -> None:
    page = (ROOT / "docs" / "how-to" / "service.md").read_text(encoding="utf-8")
    families = re.findall(r"^# TYPE (\S+)", server.ask("GET", "/metrics")[1], re.MULTILINE)
    assert [name for name in families if name not in page and not name.startswith("process_")] == []


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs" / "how-to" / "in-production.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(Robandit\w+)` \|", page, re.MULTILINE)
    assert named == [rule["alert"] for rule in alerts()] and len(named) == len(set(named))
    assert all(rule["labels"]["severity"] in ("page", "ticket") for rule in alerts())


def test_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    taken = [(x, y) for one in panels for x in range(one["gridPos"]["x"], one["gridPos"]["x"] + one["gridPos"]["w"])
             for y in range(one["gridPos"]["y"], one["gridPos"]["y"] + one["gridPos"]["h"])]  # fmt: skip
    assert len(set(taken)) == len(taken) and max(x for x, _ in taken) < 24
    assert len({one["id"] for one in panels}) == len(panels)


@needs("promtool")
def test_prometheus_takes_them(tmp_path: Path) -> None:
    """The configuration, the rules with tests of their own, and every query of the dashboard."""
    for name in ("prometheus.yml", "alerts.yml", "alerts_test.yml"):
        shutil.copy(DEPLOY / name, tmp_path / name)
    (tmp_path / "prometheus.key").write_text("a key")
    asked = [one for one in queries() if not one.startswith("label_values")]
    rules = [{"record": f"asked:{place}", "expr": one} for place, one in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    for command in (
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "asked.yml"],
        ["test", "rules", "alerts_test.yml"],
    ):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------------------------ containers and systemd


def check_command(words: list[str]) -> None:
    """A command line that the service understands."""
    assert words[0] == "serve"
    SERVE.read("robandit serve", words[1:])


def test_the_dockerfile() -> None:
    """It copies what there is, runs as a user of its own, and starts a command that exists."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [shlex.split(line) for line in text.splitlines() if line and not line.startswith("#") and "[" not in line]
    copied = [word for line in lines if line[0] == "COPY" and "--from" not in line[1] for word in line[1:-1]]
    assert copied and all((ROOT / one).exists() for one in copied)
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{one}" for one in copied} <= set(kept)
    assert {line[1] for line in lines if line[0] == "FROM"} == {"python:3.12-slim"}
    assert [line[1] for line in lines if line[0] == "USER"] == ["10001:10001"]
    command = re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert command
    check_command(json.loads(command[1]))


@needs("hadolint")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_compose_file() -> None:
    found = load("compose.yaml")
    services = found["services"]
    check_command(
        [word.replace("${ROBANDIT_HOST:-localhost}", "shop.example") for word in services["robandit"]["command"]]
    )
    assert services["robandit"]["read_only"] and services["robandit"]["cap_drop"] == ["ALL"]
    volumes = [one.split(":") for service in services.values() for one in service["volumes"]]
    named = {one[0] for one in volumes if not one[0].startswith(".")}
    assert named == set(found["volumes"])
    made = {"./keys.json", "./prometheus.key"}  # by whoever uses it
    assert all((DEPLOY / one[0]).exists() for one in volumes if one[0].startswith(".") and one[0] not in made)
    assert not any("password" in str(value).lower() and ":?" not in str(value)
                   for one in services.values() for value in one.get("environment", {}).values())  # fmt: skip


@needs("docker-compose")
def test_compose_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And refuses to start a database without a password."""
    command = ["docker-compose", "-f", str(DEPLOY / "compose.yaml"), "config"]
    monkeypatch.delenv("ROBANDIT_DB_PASSWORD", raising=False)
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    monkeypatch.setenv("ROBANDIT_DB_PASSWORD", "x")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and set(yaml.safe_load(done.stdout)["services"]) == set(
        load("compose.yaml")["services"]
    )


def unit() -> str:
    return (DEPLOY / "robandit.service").read_text(encoding="utf-8")


def test_the_unit_starts_the_service() -> None:
    (start,) = re.findall(r"^ExecStart=\S+ (.*)$", unit(), re.MULTILINE)
    check_command(shlex.split(start))


@needs("systemd-analyze")
def test_systemd_takes_it(tmp_path: Path) -> None:
    """Nothing is unknown in it, and it leaves a service little to attack."""
    (tmp_path / "robandit").touch(mode=0o755)
    path = tmp_path / "robandit.service"
    path.write_text(unit().replace("/opt/robandit/bin/robandit", str(tmp_path / "robandit")))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and str(path) not in done.stderr, done.stderr
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:]  # at most 2.0 of 10


# ------------------------------------------------------------------------------------ TLS


@pytest.fixture
def proxy(server: Server, tmp_path: Path) -> Iterator[tuple[int, int, Path]]:
    """nginx with our file in front of the service: its two ports, and a certificate made for this."""
    pem, key = tmp_path / "site.pem", tmp_path / "site.key"
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=bandits.example -keyout {key} -out {pem}"
    subprocess.run([*make.split(), "-addext", "subjectAltName=DNS:bandits.example"], check=True, capture_output=True)
    plain, tls = free_port(), free_port()
    site = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for ours, here in (
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{tls} ssl;"),
        ("127.0.0.1:8000", f"127.0.0.1:{server.port}"),
        ("/etc/ssl/bandits.example.pem", str(pem)),
        ("/etc/ssl/private/bandits.example.key", str(key)),
    ):
        assert site.count(ours) == 1
        site = site.replace(ours, here)
    folders = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}"
    (tmp_path / "nginx.conf").write_text(f"{whole}\nhttp {{ access_log off; {folders}\n{site}\n}}\n")
    command = ["nginx", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(tls)
            yield plain, tls, pem
        finally:
            process.terminate()


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the proxy does not start")


@needs("nginx")
@needs("openssl")
def test_the_service_behind_nginx(proxy: tuple[int, int, Path]) -> None:
    """Decisions go through, over TLS that is checked; the names that the service answers to are still checked."""
    plain, tls, pem = proxy
    context = ssl.create_default_context(cafile=str(pem))

    def ask(method: str, path: str, body: Any = None, host: str = "bandits.example") -> tuple[int, Any, Any]:
        link = http.client.HTTPSConnection("bandits.example", tls, context=context, timeout=20)
        link.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", tls)), server_hostname="bandits.example")
        try:
            headers = {"Host": host, "Content-Type": "application/json"}
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer = link.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            link.close()

    status, body, headers = ask("POST", "/v1/bandits/shop/decisions", {**FIRST, "decision_id": "through"})
    assert status == 200 and json.loads(body)["decision_id"] == "through"
    assert len(headers["X-Request-Id"]) == 32 and "max-age" in headers["Strict-Transport-Security"]
    assert ask("GET", "/")[0] == 200 and ask("GET", "/metrics")[0] == 403
    assert ask("GET", "/v1/bandits", host="evil.example")[0] == 421
    assert ask("POST", "/v1/bandits/shop/decisions", {"pad": "x" * (5 << 20)})[0] == 413
    backup = ask("GET", "/v1/backup")
    assert backup[0] == 200 and backup[1].startswith(b"SQLite format 3")
    link = http.client.HTTPConnection("127.0.0.1", plain, timeout=20)
    link.request("GET", "/docs", headers={"Host": "bandits.example"})
    answer = link.getresponse()
    assert (answer.status, answer.headers["Location"]) == (301, "https://bandits.example/docs")
    link.close()
