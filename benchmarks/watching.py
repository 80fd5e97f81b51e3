"""Processor time of a decision with and without the access log, and with the keys that the log has to look up.

`python benchmarks/watching.py` starts services in turn and asks each over one connection: ten actions of ten features.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from robandit.service.keys import new_key

PORT = 18_731


def measure(folder: Path, number: int, *options: str, key: str) -> float:
    """Microseconds of processor time for a decision."""
    store = folder / f"{time.monotonic_ns()}.db"
    command = [sys.executable, "-m", "robandit", "serve", "--store", str(store), "--port", str(PORT), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return _ask(number, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
        finally:
            process.terminate()


def _ask(number: int, headers: dict[str, str]) -> float:
    link = http.client.HTTPConnection("127.0.0.1", PORT, timeout=20)
    for _ in range(400):
        try:
            link.request("PUT", "/v1/bandits/shop", json.dumps({"dim": 10, "noise_range": 0.5}), headers)
            break
        except OSError:
            link.close()
            time.sleep(0.05)
    link.getresponse().read()
    rows = (np.random.default_rng(1).uniform(-1, 1, (10, 10)) / 4).round(4).tolist()
    body = json.dumps({"actions": [{"id": f"a{i}", "features": row} for i, row in enumerate(rows)]})
    start = 0.0
    for turn in range(number + 200):
        if turn == 200:
            start = _spent(link, headers)
        link.request("POST", "/v1/bandits/shop/decisions", body, headers)
        answer = link.getresponse()
        answer.read()
        assert answer.status == 200
    return 1e6 * (_spent(link, headers) - start) / number


def _spent(link: http.client.HTTPConnection, headers: dict[str, str]) -> float:
    """Seconds of processor time that the service has taken, which its metrics tell."""
    link.request("GET", "/metrics", headers=headers)
    found = re.search(rb"^process_cpu_seconds_total (\S+)", link.getresponse().read(), re.MULTILINE)
    assert found
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        secrets = [new_key(f"key {number}", "admin") for number in range(10)]
        (folder / "keys.json").write_text(json.dumps([entry for _, entry in secrets]))
        found: dict[str, list[float]] = {}
        for _ in range(options.turns):
            for kind, more in (
                ("neither", []),
                ("keys", ["--keys", str(folder / "keys.json")]),
                ("access log", ["--access-log"]),
                ("keys and access log", ["--keys", str(folder / "keys.json"), "--access-log"]),
            ):
                found.setdefault(kind, []).append(measure(folder, options.decisions, *more, key=secrets[-1][0]))
        for kind, times in found.items():
            print(f"{kind:20} {statistics.median(times):6.0f} µs  ({', '.join(f'{one:.0f}' for one in times)})")


if __name__ == "__main__":
    main()
