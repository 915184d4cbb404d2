"""Kinds of extension API servers: the server's log holds no change of their objects (docs/aggregation.md)."""

from __future__ import annotations

from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def other_server(client: Client, kind: Kind) -> str:
    """Return "namespace/name" of the Service behind which a kind is served; "" if it is the server's own.

    A user who may not read APIServices gets "".
    """
    if "." not in kind.group:
        return ""  # only groups of the server itself have such names
    try:
        found = client.get(f"{API_SERVICES}/{kind.version}.{kind.group}")
    except ApiError:
        return ""
    service = (found.get("spec") or {}).get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else ""


def remark(kind: Kind, service: str) -> str:
    """Return what to tell about such a kind."""
    return (
        f"{kind.full_name} are served by another server, behind the Service {service}: this server's log holds none of "
        "their changes"
    )
