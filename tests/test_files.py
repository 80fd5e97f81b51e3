"""Files are written whole or not at all, and never replace another by accident."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest

from robandit.files import Contents, ResultExists, save_file, write_file


def in_two_steps(file: BinaryIO) -> None:
    file.write(b"new ")
    file.write(b"text")


def half(file: BinaryIO) -> None:
    file.write(b"new ")
    raise KeyboardInterrupt


CONTENTS: list[Contents] = [b"new text", in_two_steps]


@pytest.mark.parametrize("contents", CONTENTS)
def test_a_file_is_replaced_only_if_that_is_meant(contents: Contents, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, contents, replace=False)
    assert path.read_bytes() == b"new text"
    path.write_bytes(b"old")
    with pytest.raises(ResultExists, match="appeared meanwhile"):
        write_file(path, contents, replace=False)
    assert path.read_bytes() == b"old"
    write_file(path, contents, draft=tmp_path / "draft")
    assert path.read_bytes() == b"new text" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("contents", CONTENTS)
def test_what_is_saved_again_may_be_the_same(contents: Contents, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    assert save_file(path, contents, force=False)
    assert not save_file(path, contents, force=False) and not save_file(path, contents, force=True)
    path.write_bytes(b"old")
    with pytest.raises(ResultExists, match="is there already and differs"):
        save_file(path, contents, force=False)
    assert path.read_bytes() == b"old"
    assert save_file(path, contents, force=True)
    assert path.read_bytes() == b"new text" and list(path.parent.iterdir()) == [path]


def test_a_file_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(KeyboardInterrupt):
        write_file(path, half)
    assert not list(tmp_path.iterdir())
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        save_file(path, half, force=True)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"old"
