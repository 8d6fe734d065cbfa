"""How a batch on the Kafka road says who sent it, without saying the token: a seal over its bytes.

Everybody who may read a topic may read its messages, so the token itself must not be in them. Server and agent both know
the token's sha256 (the server stores nothing else): it is the key of an HMAC over the batch, and a hash of it, under
another name, tells the server which token to try. Whoever reads the topic can send a batch again, which changes nothing,
and no batch of their own.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

KEY_HEADER: Final = "diogenes-key"
SEAL_HEADER: Final = "diogenes-seal"
AGE_HEADER: Final = "diogenes-batch-age-ns"
KEY_CHARS: Final = 32
_NAMED: Final = b"diogenes key id:"


def sealing_key(token: str) -> str:
    """What the server stores of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def key_id(sealing: str) -> str:
    """The name by which the server finds the key; says nothing about it."""
    return hashlib.sha256(_NAMED + sealing.encode()).hexdigest()[:KEY_CHARS]


def seal(sealing: str, batch: bytes) -> str:
    """The seal of a batch."""
    return hmac.new(sealing.encode(), batch, hashlib.sha256).hexdigest()


def is_sealed(sealing: str, batch: bytes, said: str) -> bool:
    return hmac.compare_digest(seal(sealing, batch).encode(), said.encode("utf-8", "replace"))
