"""An OpenID Connect provider on this machine that does what real ones do: discovery, the code flow with PKCE, keys, tokens.

It is strict as they are: a code works once, for the client and address it was made for, and only with the verifier of
its challenge. `spoil` changes what an ID token says or how it is signed, as a broken or hostile one would.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, SECRET, KEY_ID = "diogenes", "a-secret-of-the-client", "key-1"


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Provider:
    """person: the claims of whoever signs in there. calls: paths asked for, in order. is_away: 503 for everything."""

    person: dict[str, Any]
    issuer: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=new_key)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    spoil: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
    sign: Callable[[dict[str, Any]], str] | None = None
    userinfo: Callable[[dict[str, Any]], dict[str, Any]] = lambda told: told
    is_away: bool = False

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize", "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo", "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"], "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"], "code_challenge_methods_supported": ["S256"],
        }  # fmt: skip

    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}]}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent back to: the person has signed in there and agreed."""
        assert (asked["client_id"], asked["response_type"], asked["code_challenge_method"]) == (
            CLIENT_ID,
            "code",
            "S256",
        )
        assert "openid" in asked["scope"].split() and len(asked["state"]) >= 8 and len(asked["nonce"]) >= 32
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def exchange(self, asked: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """A code for tokens."""
        wanted = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if authorization != f"Basic {wanted}":
            return 401, {"error": "invalid_client"}
        made_for = self.codes.pop(asked.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(asked.get("code_verifier", "").encode()).digest()).rstrip(
            b"="
        )
        if (
            made_for is None
            or made_for["redirect_uri"] != asked.get("redirect_uri")
            or made_for["code_challenge"] != challenge.decode()
        ):
            return 400, {"error": "invalid_grant"}
        token = secrets.token_urlsafe(24)
        self.tokens.add(token)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": 300}
        return 200, answer | {"id_token": self.id_token(made_for["nonce"])}

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce, **self.person}
        claims = self.spoil(claims)
        return self.sign(claims) if self.sign else jwt.encode(claims, self.key, "RS256", {"kid": KEY_ID})

    def told_of_person(self, authorization: str) -> tuple[int, dict[str, Any]]:
        if authorization.removeprefix("Bearer ") not in self.tokens:
            return 401, {"error": "invalid_token"}
        return 200, self.userinfo(dict(self.person))


@contextmanager
def running(provider: Provider) -> Iterator[Provider]:
    """The provider on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(provider))
    provider.issuer = f"http://127.0.0.1:{server.server_address[1]}/realms/cluster"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)


def _handler_of(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self._path()
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            if provider.is_away:
                self._say(503, {})
            elif path == "/.well-known/openid-configuration":
                self._say(200, provider.discovery())
            elif path == "/keys":
                self._say(200, provider.keys())
            elif path == "/userinfo":
                self._say(*provider.told_of_person(self.headers.get("Authorization", "")))
            elif path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(asked))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._say(404, {})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked = {name: values[0] for name, values in parse_qs(raw).items()}
            is_ours = self._path() == "/token" and not provider.is_away
            self._say(*(provider.exchange(asked, self.headers.get("Authorization", "")) if is_ours else (503, {})))

        def _path(self) -> str:
            path = urlsplit(self.path).path.removeprefix("/realms/cluster")
            provider.calls.append(path)
            return path

        def _say(self, status: int, body: dict[str, Any]) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: Any) -> None:
            return None

    return Handler
