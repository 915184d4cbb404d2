"""Type checking of ValidatingAdmissionPolicies: warnings appear in the status, once for each generation."""

from __future__ import annotations

from typing import Any

from in_process import Stream, open_server

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def policy(expression: str) -> dict[str, Any]:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]},
    }


async def status_after(stream: Stream) -> dict[str, Any]:
    """Return the status of the next change by the loop."""
    while event := await stream.next():
        meta, status = event["object"]["metadata"], event["object"].get("status") or {}
        if status.get("observedGeneration") == meta["generation"]:
            return dict(status)
    raise AssertionError("the watch has ended")


async def test_warnings_follow_the_spec() -> None:
    controllers = frozenset({"validatingadmissionpolicy-status"})
    async with (
        open_server(loops=True, controllers=controllers) as server,
        server.watch(f"{POLICIES}?watch=1") as stream,
    ):
        await server.post(POLICIES, policy("object.foo > 1"))
        status = await status_after(stream)
        (warning,) = status["typeChecking"]["expressionWarnings"]
        assert (status["observedGeneration"], warning["fieldRef"]) == (1, "spec.validations[0].expression")
        assert warning["warning"].startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'foo'")
        changed = {"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}}
        await server.patch(f"{POLICIES}/p", changed)
        status = await status_after(stream)
        assert status["observedGeneration"] == 2
        assert not status.get("typeChecking")
