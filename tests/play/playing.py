"""A game in a process of its own."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any


class PlayServer:
    """`robandit play` on a free port."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "robandit", "play", "--port", "0", "--folder", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", self.said)
        assert found, self.said
        self.port = int(found[1])

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, Any]:
        """The status, the headers and the answer. A body that is bytes is sent as it is."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            kind = {} if data is None else {"Content-Type": "application/json"}
            link.request(method, path, data, kind | (headers or {}))
            answer = link.getresponse()
            text = answer.read().decode()
            plain = answer.headers.get_content_type() == "application/json"
            return answer.status, answer.headers, json.loads(text) if plain else text
        finally:
            link.close()

    def begin(self, world: str = "paper", *, seed: int = 1, budget: float = 20.0) -> str:
        status, _, game = self.ask("POST", "/v1/games", {"world": world, "seed": seed, "budget": budget})
        assert status == 201
        return str(game["id"])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
