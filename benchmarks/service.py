"""Durable decisions a second and their latency, beside a trivial JSON echo on the same stack in the same run.

The clients take a good part of two cores themselves, so the ratio to the echo is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ECHO = """
import sys, msgspec, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def echo(request):
    return Response(msgspec.json.encode(msgspec.json.decode(await request.body())), media_type="application/json")
decide = Route("/v1/bandits/shop/decisions", echo, methods=["POST"])
app = Starlette(routes=[decide, Route("/ready", lambda request: Response())])
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def ask(port: int, method: str, path: str, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await request(reader, writer, method, path, body)
    finally:
        writer.close()


async def request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: bytes
) -> bytes:
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    answer = await reader.readexactly(length)
    if b" 200 " not in head.split(b"\r\n")[0] and b" 201 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(answer.decode())
    return answer


async def load(port: int, connections: int, seconds: float, bodies: list[bytes]) -> list[float]:
    """Latencies of all decisions that so many connections got in that time."""
    end, found = time.perf_counter() + seconds, []

    async def customer(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        place = first
        while (begin := time.perf_counter()) < end:
            await request(reader, writer, "POST", "/v1/bandits/shop/decisions", bodies[place % len(bodies)])
            found.append(time.perf_counter() - begin)
            place += 1
        writer.close()

    await asyncio.gather(*(customer(i) for i in range(connections)))
    return found


async def ready(port: int) -> None:
    for _ in range(200):
        try:
            await ask(port, "GET", "/ready", b"")
            return
        except OSError:
            await asyncio.sleep(0.05)
    raise RuntimeError("it does not start")


async def measure(name: str, command: list[str], port: int, seconds: float, bodies: list[bytes]) -> list[float]:
    rates = []
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        await ready(port)
        if name != "echo":
            await ask(port, "PUT", "/v1/bandits/shop", json.dumps({"dim": 20, "noise_range": 0.5}).encode())
        for connections in (1, 32, 128):
            await load(port, connections, 0.5, bodies)
            found = 1e3 * np.array(await load(port, connections, seconds, bodies))
            rates.append(len(found) / seconds)
            half, most = np.percentile(found, [50, 99])
            print(
                f"{name:8} {connections:>4} connections {rates[-1]:>7.0f} /s   p50 {half:6.2f} ms   p99 {most:6.2f} ms"
            )
    finally:
        process.terminate()
        process.wait()
    return rates


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each (default %(default)s)")
    seconds = parser.parse_args().seconds
    rng = np.random.default_rng(1)
    menus = rng.uniform(-1.0, 1.0, (64, 20, 20)).round(4) / 20**0.5
    bodies = [
        json.dumps({"actions": [{"id": f"a{i}", "features": row} for i, row in enumerate(menu.tolist())]}).encode()
        for menu in menus
    ]
    with tempfile.TemporaryDirectory() as folder:
        ports = free_port(), free_port()
        serve = [sys.executable, "-m", "robandit", "serve", "--store", str(Path(folder) / "log.db"), "--port"]
        ours = await measure("robandit", [*serve, str(ports[0])], ports[0], seconds, bodies)
        echo = await measure("echo", [sys.executable, "-c", ECHO, str(ports[1])], ports[1], seconds, bodies)
    print("of the echo's rate: " + ", ".join(f"{a / b:.2f}" for a, b in zip(ours, echo, strict=True)))


if __name__ == "__main__":
    asyncio.run(main())
