"""Secrets at rest: AES-256-GCM under a key that is not in the database.

    "v2." + base64( nonce, 12 bytes | ciphertext | tag, 16 bytes )      associated data: the row's owner

So what was changed, or moved to another row, is refused. Each key comes by HKDF-SHA256 from a text: DIOGENES_TICKETS_KEY seals
(the secret key where that is not set); it, those of DIOGENES_TICKETS_KEYS_OLD and the secret key open. `manage.py
reseal_secrets` seals anew what an older key or the older form (sealing_v1.py) holds, as does every change of a destination.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from console.tickets import sealing_v1

VERSION: Final = "v2."
NONCE_BYTES: Final = 12
KEY_BYTES: Final = 32


class Unreadable(Exception):
    """The secrets cannot be read: the console's key has changed, or the row was tampered with."""


def seal(secrets: Mapping[str, str], owner: str) -> str:
    """`secrets`, to be stored with the row that `owner` names."""
    plain, nonce = json.dumps(dict(secrets)).encode(), os.urandom(NONCE_BYTES)
    return VERSION + base64.b64encode(nonce + _cipher(_keys()[0]).encrypt(nonce, plain, owner.encode())).decode()


def unseal(sealed: str, owner: str) -> dict[str, str]:
    """What was sealed for `owner`, by whichever key. Raises Unreadable."""
    if not sealed:
        return {}
    for key in _keys():
        if (plain := _opened(sealed, owner, key)) is not None:
            secrets: dict[str, str] = json.loads(plain)
            return secrets
    raise Unreadable("the console's key has changed since the secrets were entered: enter them again")


def is_newest(sealed: str, owner: str) -> bool:
    """Whether it is of this form and by the key that seals now."""
    return not sealed or (sealed.startswith(VERSION) and _opened(sealed, owner, _keys()[0]) is not None)


def _keys() -> list[str]:
    """The one that seals, then those that may have sealed before."""
    named = [settings.TICKETS_KEY, *settings.TICKETS_KEYS_OLD, settings.SECRET_KEY]
    return list(dict.fromkeys(key for key in named if key))


def _opened(sealed: str, owner: str, key: str) -> bytes | None:
    """None: not by this key, not for this owner, or not as it was stored."""
    try:
        raw = base64.b64decode(sealed[len(VERSION) :], validate=True)
    except ValueError as error:
        raise Unreadable("stored secrets are damaged") from error
    if sealed.startswith(sealing_v1.VERSION):
        return sealing_v1.opened(raw, owner, key)
    if not sealed.startswith(VERSION):
        raise Unreadable("stored secrets are damaged, or of a newer version of the console")
    try:
        return _cipher(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], owner.encode())
    except (InvalidTag, ValueError):
        return None


@lru_cache(maxsize=16)
def _cipher(key: str) -> AESGCM:
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt=None, info=b"diogenes tickets v2").derive(key.encode()))
