"""Discovery, /version and the list of paths: encoded once for a registry, answered as bytes.

Each registry has its own: custom resources come and go, and clients may ask for those of a moment of the past.

The issuer's configuration and keys, for external verifiers of service account tokens (OpenID Connect Discovery 1.0
§3, RFC 7517; KEP-1393). Encoded once for each set of keys, and answered as bytes. Cacheable for an hour, or until an
external signer is asked for its keys again.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import orjson

from kubechronicle.actors.external_answers import in_steps
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.errors import status
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.openapi.operations import group_version_path
from kubechronicle.api.registry import discovery
from kubechronicle.api.registry.registry import Registry
from kubechronicle.api.values.steps import Steps
from kubechronicle.http.aggregation.discovery import Others
from kubechronicle.http.authentication.jws import VerifyingKey
from kubechronicle.http.authentication.token_issuer import ExternalKeys, ServiceAccountIssuer
from kubechronicle.http.context import Context
from kubechronicle.http.health import page_not_found
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import discovery_form, takes_gzip
from kubechronicle.http.representation.compression import LEVEL, THRESHOLD

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


def openid_pages(issuer: ServiceAccountIssuer, server_address: str) -> Mapping[str, OpenIdPage]:
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


JSON = "application/json"
MOST_REGISTRIES = 4
"""Registries whose documents are kept: the present one, and a few of the past."""


class Discovery:
    """Answers the paths that describe the served API.

    ``features``: the gates of the server. ``paths``: returns all paths, for GET /.
    ``openid_pages``: the pages of the issuer of service account tokens.
    """

    def __init__(
        self,
        *,
        version: dict[str, Any],
        features: FeatureGates,
        server_address: str,
        paths: Callable[[], Sequence[str]],
        openid_pages: Mapping[str, OpenIdPage],
    ) -> None:
        self._version = encode(version, JSON)
        self._features = features
        self._server_address = server_address
        self._paths = paths
        self._openid_pages = openid_pages
        self._known: OrderedDict[tuple[Registry, Others | None], _Documents] = OrderedDict()

    def answer(
        self, request: Request, context: Context, registry: Registry, others: Others | None = None
    ) -> Response | None:
        """Answer a path of this class by a registry; None for any other path. StatusError 404, 405, 406.

        ``others``: the part of other servers. NeedsExternalAnswer: a document of many groups is not made yet.

        In kube-apiserver a router serves some of these paths: for GET alone, and by Accept. The others take any method.
        """
        path = request.path.rstrip("/") or "/"
        if path == "/":
            return _json(self._documents(registry, others).roots(self._paths))
        if path == "/version":
            _check_route(request, context, (JSON,))
            return _json(self._version)
        if path in self._openid_pages:
            page = self._openid_pages[path]
            _check_route(request, context, (page.content_type,))
            fields = [("content-type", page.content_type), ("cache-control", f"public, max-age={page.max_age}")]
            return Response(200, fields, page.body)
        parts = path[1:].split("/")
        if parts[0] not in ("api", "apis"):
            return None
        if path == "/apis" and request.path.endswith("//"):
            return page_not_found()  # all else may have more slashes
        if "" in parts:
            raise status.path_not_found()
        return self._documents(registry, others).answer(request, context, parts)

    def paths(self) -> list[str]:
        """Return the paths answered here besides /api and /apis."""
        return ["/version", *self._openid_pages]

    def _documents(self, registry: Registry, others: Others | None) -> _Documents:
        key = (registry, others)
        documents = self._known.get(key)
        if documents is None:
            documents = self._known[key] = _Documents(registry, self._features, self._server_address, others)
            if len(self._known) > MOST_REGISTRIES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return documents


MANY: Final = 256
"""Groups whose discovery is made at once."""


class _Documents:
    """The documents of one registry, below /api and /apis, each encoded when it is first requested."""

    def __init__(self, registry: Registry, features: FeatureGates, server_address: str, others: Others | None) -> None:
        self._registry = registry
        self._features = features
        self._compresses = features.enabled(negotiate.COMPRESSION)
        self._others = others
        self._server_address = server_address
        self._encoded: dict[tuple[str, str], bytes] = {}
        self._etags: dict[str, str] = {}

    def roots(self, paths: Callable[[], Sequence[str]]) -> bytes:
        return self._cached("/", JSON, lambda: discovery.root_paths(self._registry, [*paths(), *self._remote_paths()]))

    def _remote_paths(self) -> list[str]:
        if self._others is None:
            return []
        groups = [f"/apis/{group}" for group, _ in self._others.remote if group]
        return groups + [f"/apis/{group}/{version}" for group, version in self._others.remote if group]

    def answer(self, request: Request, context: Context, parts: list[str]) -> Response | None:
        registry = self._registry
        legacy = parts[0] == "api"
        if len(parts) == 1:
            return self._root(request, context, legacy=legacy)
        group = "" if legacy else parts[1]
        if not legacy and len(parts) == 2 and self._others is not None and group in self._others.versions:
            versions = self._others.versions[group]
            return self._document(request, context, f"/apis/{group}", lambda: discovery.api_group_of(group, versions))
        if not registry.versions(group):
            return page_not_found()
        if not legacy and len(parts) == 2:
            return self._document(request, context, f"/apis/{group}", lambda: discovery.api_group(registry, group))
        version = parts[1] if legacy else parts[2]
        if len(parts) != (2 if legacy else 3):
            return None
        if version not in registry.versions(group):
            if not registry.has_builtin(group):
                return page_not_found()
            raise status.path_not_found()
        _check_route(request, context)
        path = "/" + group_version_path(group, version)
        make = partial(discovery.api_resource_list, registry, group, version, self._features)
        return self._document(request, context, path, make)

    def _root(self, request: Request, context: Context, *, legacy: bool) -> Response:
        if legacy:
            _check_route(request, context)
        form = discovery_form(request, context)
        path = "/api" if legacy else "/apis"
        if form.kind == "APIGroupDiscoveryList":
            key = f"{path} {form.version}"
            root: Literal["api", "apis"] = "api" if legacy else "apis"
            body = self._cached(key, form.media_type, lambda: self._aggregated(root, form.version))
            return self._with_etag(request, key, form, body)
        if legacy:
            return self._document(
                request, context, path, lambda: discovery.api_versions(self._registry, self._server_address)
            )
        return self._document(
            request, context, path, lambda: discovery.api_group_list(self._registry, self._versions())
        )

    def _versions(self) -> Mapping[str, Sequence[str]] | None:
        return None if self._others is None else self._others.versions

    def _aggregated(self, root: Literal["api", "apis"], version: str) -> dict[str, Any]:
        """Return all groups at once. NeedsExternalAnswer: they are many."""
        key, long = ("groups", id(self), root, version), len(self._registry.groups()) > MANY
        return in_steps(key, self._groups(root, version), long=long)

    def _groups(self, root: Literal["api", "apis"], version: str) -> Steps[dict[str, Any]]:
        if self._others is None:
            return discovery.aggregated(self._registry, root, version)
        remote = {(group, version): found.document(version) for (group, version), found in self._others.remote.items()}
        return discovery.aggregated(self._registry, root, version, versions=self._others.aggregated, remote=remote)

    def _document(self, request: Request, context: Context, key: str, make: Callable[[], Any]) -> Response:
        form = discovery_form(request, context, aggregated=False)
        body = self._cached(key, form.media_type, make)
        return Response(200, [("content-type", form.content_type), ("cache-control", "no-cache, private")], body)

    def _with_etag(self, request: Request, key: str, form: Representation, body: bytes) -> Response:
        etag = self._etags.get(key)
        if etag is None:
            etag = self._etags[key] = '"' + hashlib.sha512(body).hexdigest().upper() + '"'
        headers = [("etag", etag), ("vary", "Accept"), ("cache-control", "public")]
        if etag in request.headers.get("if-none-match"):
            return Response(304, headers)
        response = Response(200, [("content-type", form.content_type), *headers], body)
        return _compressed(request, response) if self._compresses else response

    def _cached(self, key: str, media_type: str, make: Callable[[], Any]) -> bytes:
        body = self._encoded.get((key, media_type))
        if body is None:
            body = self._encoded[(key, media_type)] = encode(make(), media_type)
        return body


def _check_route(request: Request, context: Context, types: Sequence[str] | None = None) -> None:
    """Check method and Accept as the router does. StatusError 405; NotAcceptableError."""
    if request.method != "GET":
        raise status.method_not_allowed()
    negotiate.check_route(request.headers.get("accept"), context.formats, types=types)


def _json(body: bytes) -> Response:
    return Response(200, [("content-type", JSON), ("cache-control", "no-cache, private")], body)


def _compressed(request: Request, response: Response) -> Response:
    """Compress a long response if the client accepts gzip."""
    body = response.body
    if isinstance(body, bytes) and len(body) > THRESHOLD and takes_gzip(request):
        response.body = gzip.compress(body, LEVEL)
        response.headers.append(("content-encoding", "gzip"))
    return response
