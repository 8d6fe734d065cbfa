"""The form in which secrets were stored before v2 (sealing.py); it is read and never written.

    "v1." + base64( nonce, 16 bytes | ciphertext | tag, 32 bytes )

The key stream is HMAC-SHA256 in counter mode, the tag an HMAC over nonce, owner and ciphertext. A release that may ask for
`manage.py reseal_secrets` first can do without this file.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

VERSION: Final = "v1."
NONCE_BYTES: Final = 16
TAG_BYTES: Final = 32
BLOCK_BYTES: Final = 32


def opened(raw: bytes, owner: str, key: str) -> bytes | None:
    """What was sealed for `owner` with `key`; None when it was not."""
    nonce, hidden, tag = raw[:NONCE_BYTES], raw[NONCE_BYTES:-TAG_BYTES], raw[-TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(nonce, owner, hidden, key)):
        return None
    return _xor(hidden, nonce, key)


def _derived(key: str, purpose: str) -> bytes:
    return hmac.digest(key.encode(), f"diogenes tickets {purpose}".encode(), "sha256")


def _xor(text: bytes, nonce: bytes, key: str) -> bytes:
    derived, stream = _derived(key, "encrypt"), bytearray()
    for n in range(-(-len(text) // BLOCK_BYTES)):
        stream += hmac.digest(derived, nonce + n.to_bytes(8, "big"), "sha256")
    return bytes(a ^ b for a, b in zip(text, stream, strict=False))


def _tag(nonce: bytes, owner: str, hidden: bytes, key: str) -> bytes:
    named = hashlib.sha256(owner.encode()).digest()
    return hmac.digest(_derived(key, "authenticate"), nonce + named + hidden, "sha256")
