"""An OpenID provider for tests: real keys, real signatures, answers that can be made wrong or blocked.

provider = OpenIdProvider()                  an application: serve it with TLS
provider.issuer = "https://localhost:1234"
token = provider.token(sub="jane")           signed with the newest key
"""

from __future__ import annotations

import base64
import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from kubechronicle.http.messages import Request, Response

HASHES: dict[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
CURVE_NAMES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
CLIENT_ID = "my-client"


@functools.cache
def private_key(kind: str, number: int = 0) -> Any:
    """Return the key of a kind (RSA or an ES algorithm) and number, always the same: RSA keys are slow to generate."""
    if kind == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(CURVES[kind])


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int, size: int = 0) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@dataclass(frozen=True)
class Key:
    """A signing key. ``algorithm``: as in a token's header. ``number``: distinguishes keys of a kind."""

    algorithm: str = "RS256"
    number: int = 0
    key_id: str = ""

    @property
    def kid(self) -> str:
        return self.key_id or f"{self.algorithm}-{self.number}"

    @property
    def private(self) -> Any:
        return private_key("RSA" if self.algorithm[0] in "RP" else self.algorithm, self.number)

    def web_key(self, **changes: Any) -> dict[str, Any]:
        """Return the public key as a JSON Web Key with these changes; None removes a field."""
        numbers = self.private.public_key().public_numbers()
        if self.algorithm[0] in "RP":
            fields: dict[str, Any] = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        else:
            size = (self.private.curve.key_size + 7) // 8
            curve = CURVE_NAMES[self.algorithm]
            fields = {"kty": "EC", "crv": curve, "x": _number(numbers.x, size), "y": _number(numbers.y, size)}
        fields = {**fields, "kid": self.kid, "alg": self.algorithm, "use": "sig", **changes}
        return {name: value for name, value in fields.items() if value is not None}

    def sign(self, claims: Any, header: dict[str, Any] | None = None, *, signed: bytes | None = None) -> str:
        """Return a token. ``header``: changes of its header, None removes. ``claims``: an object, or any bytes."""
        fields = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT", **(header or {})}
        head = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
        body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
        text = f"{b64(head)}.{b64(body)}"
        return f"{text}.{b64(self.signature(signed or text.encode()))}"

    def signature(self, data: bytes) -> bytes:
        algorithm = HASHES[self.algorithm[2:]]
        if self.algorithm.startswith("RS"):
            return bytes(self.private.sign(data, padding.PKCS1v15(), algorithm))
        if self.algorithm.startswith("PS"):
            pss = padding.PSS(padding.MGF1(algorithm), padding.PSS.DIGEST_LENGTH)
            return bytes(self.private.sign(data, pss, algorithm))
        r, s = decode_dss_signature(self.private.sign(data, ec.ECDSA(algorithm)))
        size = (self.private.curve.key_size + 7) // 8
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")


@dataclass
class OpenIdProvider:
    """The provider, an HTTP application.

    ``keys``: the published keys. The last one signs.
    ``pages``: further answers by path.
    ``blocked``: events that the answers of these paths wait for.
    ``requests``: the number of requests by path.
    """

    issuer: str = "https://localhost"
    keys: list[Key] = field(default_factory=lambda: [Key()])
    discovery: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, Callable[[Request], Response]] = field(default_factory=dict)
    blocked: dict[str, trio.Event] = field(default_factory=dict)
    status: int = 200
    requests: dict[str, int] = field(default_factory=dict)

    def token(self, *, key: Key | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token with the usual claims and these; None removes a claim."""
        return (key or self.keys[-1]).sign(self.claims(**claims), header)

    def claims(self, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        fields = {"iss": self.issuer, "aud": CLIENT_ID, "sub": "jane", "exp": now + 3600, "iat": now, **claims}
        return {name: value for name, value in fields.items() if value is not None}

    def key_set(self) -> bytes:
        return json.dumps({"keys": [key.web_key() for key in self.keys]}).encode()

    async def __call__(self, request: Request) -> Response:
        path = request.path
        self.requests[path] = self.requests.get(path, 0) + 1
        if path in self.blocked:
            await self.blocked[path].wait()
        if path in self.pages:
            return self.pages[path](request)
        if self.status != 200:
            return Response(self.status, [], b"broken")
        if path.endswith("/.well-known/openid-configuration"):
            document = {"issuer": self.issuer, "jwks_uri": f"{self._origin()}/keys", **self.discovery}
            return _json(json.dumps(document).encode())
        if path == "/keys":
            return _json(self.key_set())
        return Response(404, [], b"")

    def _origin(self) -> str:
        return "/".join(self.issuer.split("/")[:3])


def _json(body: bytes) -> Response:
    return Response(200, [("content-type", "application/json")], body)
