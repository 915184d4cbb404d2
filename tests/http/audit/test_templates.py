"""Templates of audit events: requests that share one differ in the name alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import AuditEvent
from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.audit.policy import COMPLETE
from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.http.audit.audit import Audit
from kubechronicle.http.audit.backends import AuditMetrics
from kubechronicle.http.authentication.user import User
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request

CASES = [
    ("/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Dpods", ("list", "pods", "default", "pods", None)),
    (
        "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dconfigmaps",
        ("list", "configmaps", "default", "configmaps", None),
    ),
    ("/api/v1/namespaces/default/configmaps", ("list", "configmaps", "default", None, None)),
    ("/api/v1/namespaces/a", ("get", "namespaces", "a", "a", None)),
    ("/api/v1/namespaces/b", ("get", "namespaces", "b", "b", None)),
    ("/api/v1/namespaces/b/status", ("get", "namespaces", "b", "b", "status")),
    ("/api/v1/namespaces/s/status", ("get", "namespaces", "s", "s", "status")),
    ("/api/v1/namespaces/a/pods/a", ("get", "pods", "a", "a", None)),
    ("/api/v1/namespaces/a/pods/b", ("get", "pods", "a", "b", None)),
    ("/api/v1/namespaces/a/pods/a/status", ("get", "pods", "a", "a", "status")),
    ("/api/v1/nodes/nodes", ("get", "nodes", None, "nodes", None)),
    ("/api/v1/pods/nodes", ("get", "pods", None, "nodes", None)),
    ("/apis/apps/v1/deployments/nodes/", ("get", "deployments", None, "nodes", None)),
    ("/apis/apps/v1/deployments/x", ("get", "deployments", None, "x", None)),
]


def shown(audit: Audit, user: User, target: str) -> dict[str, Any]:
    """Return the last event of a GET."""
    request = Request.of("GET", target)
    query = Query(request.query_string)
    context = Context(info=resolve("GET", request.path, query), query=query, audit_id="id", deadline=0.0, received=0.0)
    context.user = user
    record = audit.begin(request, context)
    assert record is not None
    record.finish(COMPLETE, 0.0, b"{}", None)
    return json.loads(AuditEvent.of(record).encoded())  # type: ignore[no-any-return]


@pytest.mark.parametrize("rule", ["{level: Metadata}", "{level: Metadata, resources: [{group: '*', resources: [pods], resourceNames: [a]}]}, {level: Metadata}"])  # fmt: skip # noqa: E501
def test_requests_that_share_a_template_have_their_own_fields(rule: str) -> None:
    policy, _ = policies.load(f"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rule}]\n".encode())
    audit, user = Audit(Matcher(policy), [], AuditMetrics()), User(name="jane")
    for _ in range(2):
        for target, expected in CASES:
            event = shown(audit, user, target)
            found = event["objectRef"]
            fields = (found["resource"], found.get("namespace"), found.get("name"), found.get("subresource"))
            assert (event["verb"], *fields) == expected, target
