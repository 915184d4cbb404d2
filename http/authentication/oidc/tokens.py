"""Parsing of ID tokens, and all checks but the signature (OpenID Connect Core 1.0 §3.1.3.7).

The checks are those of go-oidc, which kube-apiserver uses: issuer, audience, exp without leeway, nbf with a minute of
leeway, and the algorithm. iat and azp are not checked; claim validation rules can do so. Only the canonical base64url
encoding is accepted, and no header with an extension (crit).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.oidc.claims import TokenRejected

GOOGLE: Final = "https://accounts.google.com"
GOOGLE_SHORT: Final = "accounts.google.com"
"""The only issuer that may leave out the scheme in its tokens."""

# Seconds by which nbf may be in the future: clocks differ.
LEEWAY: Final = 60.0
# Nesting depth of the claims' JSON.
MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class IdToken:
    """A parsed token.

    ``algorithm``, ``key_id``: of the header; ``key_id`` is "" if it names none
    ``claims``: untrusted until a key has verified the token
    """

    algorithm: str
    key_id: str
    claims: dict[str, Any]
    signed: bytes
    signature: bytes

    @property
    def issuer(self) -> str:
        """The claimed issuer."""
        issuer = self.claims.get("iss")
        if issuer == GOOGLE_SHORT:
            return GOOGLE
        return issuer if isinstance(issuer, str) else ""

    @property
    def ends(self) -> float:
        """The expiry in seconds since the epoch. Raises TokenRejected if it is no number."""
        return _time(self.claims, "exp") or 0.0


def parse(text: str) -> IdToken | None:
    """Parse a signed JWT in compact form. Returns None for other texts, and for a token that is too large."""
    if len(text) > jws.MAX_TOKEN:
        return None
    parts = text.split(".", 3)
    if len(parts) != 3 or not all(parts):
        return None
    try:
        header, claims = orjson.loads(jws.decode(parts[0])), orjson.loads(jws.decode(parts[1]))
        signature = jws.decode(parts[2])
    except ValueError:  # of the encoding or of JSON
        return None
    if not isinstance(header, dict) or not isinstance(claims, dict) or _depth(claims) > MAX_DEPTH:
        return None
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or not isinstance(key_id, str) or "crit" in header or "b64" in header:
        return None
    return IdToken(algorithm, key_id, claims, f"{parts[0]}.{parts[1]}".encode(), signature)


def check(token: IdToken, *, issuer: str, audiences: Sequence[str], algorithms: Collection[str], now: float) -> None:
    """Check everything but the signature. ``now``: seconds since the epoch. TokenRejected has go-oidc's text."""
    claims = token.claims
    for name in ("iss", "sub", "nonce", "at_hash"):
        if claims.get(name) is not None and not isinstance(claims[name], str):
            raise TokenRejected(f"oidc: failed to unmarshal claims: {name} is no text")
    _check_sources(claims)
    if token.issuer != issuer:
        got = go_quote(token.issuer)
        raise TokenRejected(f"oidc: id token issued by a different provider, expected {go_quote(issuer)} got {got}")
    token_audiences = audiences_of(claims)
    if not any(audience in token_audiences for audience in audiences):
        wanted = go_quote(audiences[0]) if len(audiences) == 1 else f"in {_quoted(sorted(audiences))}"
        raise TokenRejected(f"oidc: expected audience {wanted} got {_quoted(token_audiences)}")
    ends, begins = token.ends, _time(claims, "nbf")
    _time(claims, "iat")
    if ends < now:
        raise TokenRejected(f"oidc: token is expired (Token Expiry: {ends:.0f})")
    if begins is not None and now + LEEWAY < begins:
        raise TokenRejected(f"oidc: current time {now:.0f} before the nbf (not before) time: {begins:.0f}")
    if token.algorithm not in algorithms:
        expected = _quoted(sorted(algorithms))
        got = go_quote(token.algorithm[:40])
        raise TokenRejected(f"oidc: id token signed with unsupported algorithm, expected {expected} got {got}")


def audiences_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the audiences of a token: the claim aud, a string or a list of strings. Raises TokenRejected."""
    audiences = claims.get("aud")
    if audiences is None:
        return ()
    if isinstance(audiences, str):
        return (audiences,)
    if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
        raise TokenRejected("oidc: failed to unmarshal claims: aud is neither a text nor a list of texts")
    return tuple(audiences)


def source_of(claims: Mapping[str, Any], claim: str) -> tuple[str, str] | None:
    """Return (endpoint, access token) of a distributed claim (OpenID Connect Core 1.0 §5.6.2).

    Returns None if the token has the claim itself, or no source of it. The token must have passed ``check``.
    """
    if claim in claims:
        return None
    name = (claims.get("_claim_names") or {}).get(claim)
    source = (claims.get("_claim_sources") or {}).get(name) or {}
    endpoint = source.get("endpoint") or ""
    return (endpoint, source.get("access_token") or "") if endpoint else None  # no endpoint: an aggregated claim


def _check_sources(claims: Mapping[str, Any]) -> None:
    """Check that every distributed claim names a source, also those that are not used. Raises TokenRejected."""
    names, sources = claims.get("_claim_names"), claims.get("_claim_sources")
    names, sources = {} if names is None else names, {} if sources is None else sources
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise TokenRejected("oidc: failed to unmarshal claims: _claim_names is no map of texts")
    if not isinstance(sources, dict) or not all(map(_is_source, sources.values())):
        raise TokenRejected("oidc: failed to unmarshal claims: _claim_sources is no map of sources")
    for name in names.values():
        if not name:
            raise TokenRejected("oidc: failed to obtain source from claim name")
        if name not in sources:
            raise TokenRejected("oidc: source does not exist")


def _is_source(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(
        value.get(name) is None or isinstance(value[name], str) for name in ("endpoint", "access_token", "JWT")
    )


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a NumericDate, a number or the text of a number. Raises TokenRejected."""
    value = claims.get(name)
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except ValueError:
            raise TokenRejected(f"oidc: failed to unmarshal claims: {name} is no time") from None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenRejected(f"oidc: failed to unmarshal claims: {name} is no time")
    return float(int(value))


def _depth(value: Any, level: int = 1) -> int:
    if level > MAX_DEPTH or not isinstance(value, dict | list):
        return level
    items = value.values() if isinstance(value, dict) else value
    return max((_depth(item, level + 1) for item in items if isinstance(item, dict | list)), default=level)


def _quoted(texts: Sequence[str]) -> str:
    return "[" + " ".join(go_quote(text[:200]) for text in texts[:10]) + "]"
