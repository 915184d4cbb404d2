"""The issuer's configuration and keys, for external verifiers of service account tokens (OpenID Connect Discovery 1.0
§3, RFC 7517; KEP-1393). Encoded once for each set of keys, and answered as bytes. Cacheable for an hour, or until an
external signer is asked for its keys again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from kubechronicle.http.authentication.jws import VerifyingKey
from kubechronicle.http.authentication.token_issuer import ExternalKeys, ServiceAccountIssuer

CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
MAX_AGE: Final = 3600
"""Seconds for which pages with keys from files are cached, as in kube-apiserver."""


class OpenIdPage(NamedTuple):
    """``max_age``: seconds for which it may be cached."""

    content_type: str
    body: bytes
    max_age: int = MAX_AGE


class _ExternalPages(Mapping[str, OpenIdPage]):
    """The pages about the keys of an external signer, encoded when the keys have changed."""

    def __init__(self, issuer: ServiceAccountIssuer, external: ExternalKeys, server_address: str) -> None:
        self._issuer, self._external, self._server_address = issuer, external, server_address
        self._generation = -1
        self._pages: Mapping[str, OpenIdPage] = {}

    def __getitem__(self, path: str) -> OpenIdPage:
        external = self._external
        if self._generation != external.generation:
            self._generation = external.generation
            self._pages = _encoded(self._issuer, external.published, self._server_address)
        return self._pages[path]._replace(max_age=external.max_age)

    def __iter__(self) -> Iterator[str]:
        return iter((CONFIGURATION, KEYS))

    def __len__(self) -> int:
        return 2


def pages(issuer: ServiceAccountIssuer, server_address: str) -> Mapping[str, OpenIdPage]:
    """Return the pages by path; none if no verifier could look up the issuer (``discoverable``)."""
    if not discoverable(issuer.issuers[0]):
        return {}
    if issuer.external is not None:
        return _ExternalPages(issuer, issuer.external, server_address)
    return _encoded(issuer, issuer.verifying, server_address)


def _encoded(
    issuer: ServiceAccountIssuer, verifying: Sequence[VerifyingKey], server_address: str
) -> Mapping[str, OpenIdPage]:
    configuration: dict[str, Any] = {
        "issuer": issuer.issuers[0],
        "jwks_uri": issuer.jwks_uri or f"https://{server_address}{KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted({key.algorithm for key in verifying}),
    }
    keys = {"keys": [key.web_key() for key in verifying]}
    return {
        CONFIGURATION: OpenIdPage("application/json", orjson.dumps(configuration)),
        KEYS: OpenIdPage("application/jwk-set+json", orjson.dumps(keys)),
    }


def discoverable(issuer: str) -> bool:
    """Tell whether the issuer is an https URL without query and fragment (OpenID Connect Discovery)."""
    try:
        parts = urlsplit(issuer)
    except ValueError:
        return False
    return parts.scheme == "https" and not parts.query and not parts.fragment
