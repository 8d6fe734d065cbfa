"""Is this ID token the provider's, for us, of this sign-in, and still good? (OpenID Connect Core 1.0, §3.1.3.7)

Checked here in full, whatever road the token came: the signature by the provider's published keys, with an algorithm
that needs its private key; who issued it and for whom; when; and that it answers the very request we made (nonce).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Final

import jwt

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS: Final = 60
NEEDED: Final = ["iss", "sub", "aud", "exp", "iat"]


class BadToken(Exception):
    """Not a token that signs anybody in; the message is for the log, not for whoever brought it."""


def read_id_token(raw: str, keys: Mapping[str, Any], issuer: str, client_id: str, nonce: str) -> dict[str, Any]:
    """The claims of a good token. keys: the provider's JSON Web Key Set. Raises BadToken."""
    try:
        key, algorithm = _key_for(raw, keys)
        claims: dict[str, Any] = jwt.decode(
            raw, key, algorithms=[algorithm], issuer=issuer, audience=client_id, leeway=LEEWAY_SECONDS,
            options={"require": NEEDED},
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        raise BadToken(f"{type(error).__name__}: {error}") from error
    if not nonce or not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise BadToken("its nonce is not that of this sign-in")
    if claims.get("azp", client_id) != client_id or (isinstance(claims["aud"], list) and len(claims["aud"]) > 1
                                                     and "azp" not in claims):  # fmt: skip
        raise BadToken("it was made for another client")
    return claims


def _key_for(raw: str, keys: Mapping[str, Any]) -> tuple[Any, str]:
    """The key that the token names, and the algorithm, which must be one of a key pair."""
    header = jwt.get_unverified_header(raw)
    algorithm = str(header.get("alg"))
    if algorithm not in ALGORITHMS:
        raise BadToken(f"signed with {algorithm[:20]!r}")
    found = [one for one in jwt.PyJWKSet.from_dict(dict(keys)).keys if one.public_key_use in (None, "sig")]
    named = [one for one in found if one.key_id == header["kid"]] if "kid" in header else found
    if len(named) != 1:
        raise BadToken("no key of the provider's fits it")
    return named[0].key, algorithm
