"""Requests beyond the life of an object: odd paths, methods, credentials, impersonation and discovery."""

from __future__ import annotations

from random import Random

from kubechronicle.ops.development.differential.catalogue import Resource
from kubechronicle.ops.development.differential.queries import ACCEPTS
from kubechronicle.ops.development.differential.steps import Step

METHODS = ("GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE")
ROOTS = (
    "/",
    "/api",
    "/api/",
    "/apis",
    "/apis/",
    "/api/v1",
    "/api/v1/",
    "/api/v2",
    "/apis/apps",
    "/apis/apps/",
    "/apis/apps/v1",
    "/apis/apps/v1/",
    "/apis/apps/v2",
    "/apis/nope",
    "/apis/nope/v1",
    "/version",
    "/version/",
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/readyz",
    "/livez/ping",
    "/healthz/nope",
    "/openapi",
    "/openapi/v2/nope",
    "/nope",
    "/api/v1/nope",
    "//api/v1",
    "/api//v1",
    "/api/v1/namespaces//pods?fieldSelector=metadata.name=nonesuch",
    "/%61pi/v1",
    "/api/v1/../v1",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/logs",
    "/swagger.json",
    "/apis/apps/v1/namespaces",
    "/api/v1?x=1",
    "/metrics/nope",
)
# Shapes of paths around a resource: {r} its group-version, {p} its plural, {n} its name.
SHAPES = (
    "{r}/{p}/{n}",
    "{r}/namespaces/$NS/{p}/{n}/x",
    "{r}/namespaces/$NS/{p}/{n}/status/x",
    "{r}/namespaces/$NS/{p}/",
    "{r}/namespaces/$NS/{p}/{n}/",
    "{r}/namespaces//{p}",
    "{r}/namespaces/none/{p}",
    "{r}/namespaces/none/{p}/{n}",
    "{r}/watch/{p}?timeoutSeconds=1&fieldSelector=metadata.namespace=$NS",
    "{r}/watch/namespaces/$NS/{p}?timeoutSeconds=1",
    "{r}/watch/namespaces/$NS/{p}/{n}?timeoutSeconds=1",
    "{r}/watch",
    "{r}/namespaces/$NS",
    "{r}/namespaces/$NS/",
    "{r}/{p}/{n}/status",
    "{r}/namespaces/$NS/{p}/{n}/scale",
    "{r}/namespaces/$NS/{p}/{n}/nope",
    "{r}/namespaces/A_B/{p}",
    "{r}/namespaces/$NS/{p}/%2e%2e",
    "{r}/namespaces/$NS/{p}/{n}%2fstatus",
    "{r}/namespaces/$NS/{p}s",
    "{r}x/{p}",
)
QUERIES = (
    "",
    "",
    "",
    "",
    "?a=%zz",
    "?limit=1;x=2",
    "?&&",
    "?=",
    "?pretty=true",
    "?limit=%31",
    "?fieldSelector=%",
    "?dryRun=All",
)
CREDENTIALS = (
    "",
    "Basic YTpi",
    "Bearer",
    "Bearer ",
    "Bearer nonsense",
    "bearer nonsense",
    "Negotiate x",
    "Digest x",
    "nonsense",
    "Bearer a b",
    "Bearer eyJhbGciOiJSUzI1NiJ9.e30.x",
)
IMPERSONATIONS: tuple[dict[str, str], ...] = (
    {"Impersonate-User": "jane"},
    {"Impersonate-User": "jane", "Impersonate-Group": "dev"},
    {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"},
    {"Impersonate-Group": "dev"},
    {"Impersonate-Uid": "7"},
    {"Impersonate-User": ""},
    {"Impersonate-Extra-Scope": "x"},
    {"Impersonate-User": "jane", "Impersonate-Extra-a%2Fb": "x", "Impersonate-Uid": "u"},
    {"Impersonate-User": "system:serviceaccount:$NS:default"},
    {"Impersonate-User": "system:serviceaccount:$NS:a:b"},
    {"Impersonate-User": "system:serviceaccount:$NS"},
    {"Impersonate-User": "system:anonymous"},
    {"Impersonate-User": "system:anonymous", "Impersonate-Group": "system:unauthenticated"},
    {"Impersonate-User": "system:node:n", "Impersonate-Group": "system:nodes"},
    {"Impersonate-User": "jane", "Impersonate-Nope": "x"},
)
DISCOVERY_ACCEPTS = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
)


def odd_request(rng: Random, resource: Resource) -> Step:
    """Return a request with one or two oddities."""
    method, headers = rng.choice(METHODS), {}
    if rng.random() < 0.4:
        path = rng.choice(ROOTS)
        if rng.random() < 0.3:
            headers["Accept"] = rng.choice(DISCOVERY_ACCEPTS + ACCEPTS)
    elif rng.random() < 0.6:
        shape = rng.choice(SHAPES) if resource.namespaced else rng.choice(SHAPES).replace("namespaces/$NS/", "")
        path = shape.format(r=resource.root, p=resource.plural, n="${name}")
    else:
        path = resource.collection() + rng.choice(["", "/${name}"])
    if rng.random() < 0.25:
        headers["Authorization"] = rng.choice(CREDENTIALS)
    if rng.random() < 0.35:
        headers.update(rng.choice(IMPERSONATIONS))
    whole = path.endswith(resource.plural) and method in ("GET", "HEAD", "DELETE")
    if whole and (method == "DELETE" or not resource.namespaced or "$NS" not in path):
        method = "OPTIONS"  # lists and collections of other sequences
    if method == "DELETE" and "namespaces/$NS" in path and path.endswith(("$NS", "$NS/")):
        method = "GET"  # a namespace that ends refuses the rest of the sequence
    query = rng.choice(QUERIES) if "?" not in path else ""
    body = {"metadata": {"name": "odd"}} if method in ("POST", "PUT", "PATCH") and rng.random() < 0.7 else None
    if method in ("POST", "PUT", "PATCH", "DELETE") and not query:
        query = "&dryRun=All" if "?" in path else "?dryRun=All"
    return Step(method, path + query, body=body, headers=headers, kind=resource.kind, verb=method, area="http")
