"""The issuer's configuration and keys, for external verifiers of service account tokens (OpenID Connect Discovery 1.0
§3, RFC 7517; KEP-1393). Encoded once, answered as bytes, cacheable for an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from kubechronicle.http.authentication.service_accounts import ServiceAccountIssuer

CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
CACHE_CONTROL: Final = "public, max-age=3600"

Page = tuple[str, bytes]
"""Content type and body."""


def pages(issuer: ServiceAccountIssuer, server_address: str) -> Mapping[str, Page]:
    """Return the pages by path; none if no verifier could look up the issuer (``discoverable``)."""
    name = issuer.issuers[0]
    if not discoverable(name):
        return {}
    configuration: dict[str, Any] = {
        "issuer": name,
        "jwks_uri": issuer.jwks_uri or f"https://{server_address}{KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted({key.algorithm for key in issuer.verifying}),
    }
    keys = {"keys": [key.web_key() for key in issuer.verifying]}
    return {
        CONFIGURATION: ("application/json", orjson.dumps(configuration)),
        KEYS: ("application/jwk-set+json", orjson.dumps(keys)),
    }


def discoverable(issuer: str) -> bool:
    """Tell whether the issuer is an https URL without query and fragment (OpenID Connect Discovery)."""
    try:
        parts = urlsplit(issuer)
    except ValueError:
        return False
    return parts.scheme == "https" and not parts.query and not parts.fragment
