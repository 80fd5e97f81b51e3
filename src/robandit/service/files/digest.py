"""The digest by which whoever gets a file knows that it is whole."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import BinaryIO


def digest_header(file: BinaryIO) -> str:
    """The SHA-256 of a file as the header ``Repr-Digest`` has it (RFC 9530)."""
    digest = hashlib.sha256()
    file.seek(0)
    while data := file.read(1 << 18):
        digest.update(data)
    return f"sha-256=:{b64encode(digest.digest()).decode()}:"
