"""Secrets at rest: encrypted and authenticated with a key that is not in the database.

Python's library has no cipher, so the key stream is HMAC-SHA256 in counter mode under a fresh 16-byte nonce, and an HMAC
over nonce, owner and ciphertext (encrypt, then authenticate) refuses whatever was changed or moved to another row. Both
keys come from DIOGENES_TICKETS_KEY, or from the secret key when that is not set.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from typing import Final

from django.conf import settings

VERSION: Final = "v1."
NONCE_BYTES: Final = 16
TAG_BYTES: Final = 32
BLOCK_BYTES: Final = 32


class Unreadable(Exception):
    """The secrets cannot be read: the console's key has changed, or the row was tampered with."""


def seal(secrets: Mapping[str, str], owner: str) -> str:
    """`secrets`, to be stored with the row that `owner` names."""
    plain, nonce = json.dumps(dict(secrets)).encode(), os.urandom(NONCE_BYTES)
    hidden = _xor(plain, nonce)
    return VERSION + base64.b64encode(nonce + hidden + _tag(nonce, owner, hidden)).decode()


def unseal(sealed: str, owner: str) -> dict[str, str]:
    """What was sealed for `owner`. Raises Unreadable."""
    if not sealed:
        return {}
    try:
        raw = base64.b64decode(sealed.removeprefix(VERSION), validate=True)
    except ValueError as error:
        raise Unreadable("stored secrets are damaged") from error
    nonce, hidden, tag = raw[:NONCE_BYTES], raw[NONCE_BYTES:-TAG_BYTES], raw[-TAG_BYTES:]
    if not sealed.startswith(VERSION) or not hmac.compare_digest(tag, _tag(nonce, owner, hidden)):
        raise Unreadable("the console's key has changed since the secrets were entered: enter them again")
    opened: dict[str, str] = json.loads(_xor(hidden, nonce))
    return opened


def _key(purpose: str) -> bytes:
    root = (settings.TICKETS_KEY or settings.SECRET_KEY).encode()
    return hmac.digest(root, f"diogenes tickets {purpose}".encode(), "sha256")


def _xor(text: bytes, nonce: bytes) -> bytes:
    key, stream = _key("encrypt"), bytearray()
    for n in range(-(-len(text) // BLOCK_BYTES)):
        stream += hmac.digest(key, nonce + n.to_bytes(8, "big"), "sha256")
    return bytes(a ^ b for a, b in zip(text, stream, strict=False))


def _tag(nonce: bytes, owner: str, hidden: bytes) -> bytes:
    named = hashlib.sha256(owner.encode()).digest()
    return hmac.digest(_key("authenticate"), nonce + named + hidden, "sha256")
