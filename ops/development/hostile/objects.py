"""Attacks with objects: bodies of many empty parts, and many rules or objects in the cluster."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from kubechronicle.ops.development.differential.reference import ROOT
from kubechronicle.ops.development.hostile import requests
from kubechronicle.ops.development.hostile.site import ALICE, ANONYMOUS, EDITOR, NOBODY, TENANT, TENANTS, Site, together

OBJECTS: Final = 100_000
AT_ONCE: Final = 20
ROLES: Final = 150
RULES: Final = 1000
REVISIONS: Final = 40
CLIENTS: Final = 4
"""Clients that send a request of requests.py at once."""
CROWDED: Final = "crowded"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_RBAC: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TENANT}"


# Protobuf


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + _field(1, _field(1, api_version.encode()) + _field(2, kind.encode())) + _field(2, raw)


def empty_requirements(site: Site) -> str:
    """Ask for one's own access with 1,400,000 empty requirements of a label selector, which are 2.8 MB."""
    selector = _field(9, _field(2, b"") * 1_400_000)
    body = _envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", _field(2, _field(1, selector)))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return site.ask("POST", path, body, user=NOBODY, headers={"content-type": _PROTOBUF}).status


def empty_owners(site: Site) -> str:
    """Create a ConfigMap with 1,400,000 empty owners, as a dry run."""
    body = _envelope("v1", "ConfigMap", _field(1, _field(1, b"x") + _field(13, b"") * 1_400_000))
    path = f"/api/v1/namespaces/{TENANT}/configmaps?dryRun=All"
    return site.ask("POST", path, body, user=ALICE, headers={"content-type": _PROTOBUF}).status


# RBAC


def roles(site: Site) -> None:
    """Bind ROLES roles of RULES rules each to everybody, and to ALICE."""
    site.once("roles", lambda: _bind(site))


def _bind(site: Site) -> None:
    group = "rbac.authorization.k8s.io"
    subjects = [
        {"kind": "Group", "name": "system:unauthenticated", "apiGroup": group},
        {"kind": "Group", "name": TENANTS, "apiGroup": group},
    ]
    for role in range(ROLES):
        rules = [
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [f"n{role}-{rule}"], "verbs": ["get"]}
            for rule in range(RULES)
        ]
        site.make(f"{_RBAC}/roles", {"metadata": {"name": f"r{role}"}, "rules": rules})
        reference = {"kind": "Role", "name": f"r{role}", "apiGroup": group}
        body = {"metadata": {"name": f"r{role}"}, "subjects": subjects, "roleRef": reference}
        site.make(f"{_RBAC}/rolebindings", body)


def anonymous_get(site: Site) -> str:
    path = f"/api/v1/namespaces/{TENANT}/configmaps/none"
    return together(2, lambda: site.ask("GET", path, user=ANONYMOUS).status)


def rules_review(site: Site) -> str:
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": TENANT},
    }
    return site.ask("POST", path, body, user=ALICE).status


GROUPS: Final = 100_000


def review_of_groups(site: Site) -> str:
    """Ask for the access of a user of GROUPS groups."""
    spec = {
        "user": "somebody",
        "groups": [f"group-{number}" for number in range(GROUPS)],
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": TENANT},
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "spec": spec}
    path = f"/apis/authorization.k8s.io/v1/namespaces/{TENANT}/localsubjectaccessreviews"
    return site.ask("POST", path, {**body, "metadata": {"namespace": TENANT}}, user=ALICE).status


# Lists


def crowd(site: Site) -> None:
    """Create OBJECTS ConfigMaps of 1 KB in a namespace, with the load generator of the benchmark."""
    site.once("crowd", lambda: _fill(site))


def _fill(site: Site) -> None:
    with tempfile.NamedTemporaryFile("w", prefix="kubechronicle-hostile-") as token:
        token.write(site.target.token)
        token.flush()
        flags = {
            "mode": "fill", "namespace": CROWDED, "count": OBJECTS, "conns": 16, "size": 1024,
            "server": site.target.url, "token-file": Path(token.name),
        }  # fmt: skip
        subprocess.run([ROOT / "tests" / "clients" / "prepare.sh", "load"], check=True)
        command = [str(ROOT / ".cache" / "bin" / "load"), *(f"-{name}={value}" for name, value in flags.items())]
        # It waits for a line before it measures.
        subprocess.run(command, input=b"\n", stdout=subprocess.DEVNULL, check=True)


def lists(site: Site, accept: str, count: int) -> str:
    """List all objects of the crowded namespace, ``count`` times at once."""
    path, headers = f"/api/v1/namespaces/{CROWDED}/configmaps", {"accept": accept}
    return together(count, lambda: site.ask("GET", path, user=EDITOR, headers=headers, kept=1).status)


TERMS: Final = 4000


def long_selectors(site: Site) -> str:
    """List the namespaces AT_ONCE times at once, each time with a selector of TERMS terms."""
    path = "/api/v1/namespaces?labelSelector=" + ",".join(f"!a{number}" for number in range(TERMS))
    return together(AT_ONCE, lambda: site.ask("GET", path, user=EDITOR, kept=1).status)


def initial_events(site: Site) -> str:
    """Watch the crowded namespace from its present state as tables, CLIENTS times at once."""
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=9"
    path = f"/api/v1/namespaces/{CROWDED}/configmaps?{query}"
    return together(CLIENTS, lambda: site.ask("GET", path, user=EDITOR, headers={"accept": TABLE}, kept=1).status)


def dry_deletion(site: Site) -> str:
    """Delete all objects of the crowded namespace, as a dry run."""
    path = f"/api/v1/namespaces/{CROWDED}/configmaps?dryRun=All"
    return site.ask("DELETE", path, user=EDITOR, kept=1).status


TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"
PROTOBUF: Final = _PROTOBUF


# The requests of before


def history(site: Site) -> str:
    """Make the objects that the requests read and change. Return the first revision of one with many."""
    return site.once("history", lambda: _make_history(site))


def _make_history(site: Site) -> str:
    collection, kind = f"{requests.NAMESPACE}/configmaps", {"content-type": requests.MERGE_PATCH}
    site.make(f"{requests.NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})  # of Pods
    created = site.make(collection, requests.large_object())
    site.make("/apis/apps/v1/namespaces/default/deployments", requests.deployment())
    for number in range(REVISIONS):
        site.ask("PATCH", f"{collection}/{requests.LARGE_OBJECT}", {"data": {"n": str(-number)}}, headers=kind)
    return str(created.json()["metadata"]["resourceVersion"])


def former(name: str, site: Site) -> str:
    """Send a request of requests.py from several clients at once."""
    revision = history(site)
    request = requests.REQUESTS[name]
    path, body = request.path.replace("{revision}", revision), request.body() or None
    headers = {"content-type": request.content_type, **request.headers}
    return together(CLIENTS, lambda: site.ask(request.method, path, body, user=EDITOR, headers=headers).status)
