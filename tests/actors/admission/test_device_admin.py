"""Admin access to devices requires a label on the namespace."""

from __future__ import annotations

from typing import Any

from in_process import open_server
from trio.testing import MockClock

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


def claim(name: str, *, admin: bool) -> Any:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": admin}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


async def test_admin_access_requires_a_labelled_namespace(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(CLAIMS, claim("a", admin=False))
        template = {"metadata": {"name": "t"}, "spec": {"spec": claim("t", admin=True)["spec"]}}
        for target, body in ((CLAIMS, claim("b", admin=True)), (TEMPLATES, template)):
            refusal = (await server.ask("POST", target, body)).refused(422)
            (cause,) = refusal["details"]["causes"]
            assert cause["field"] == "spec.devices.requests[0].adminAccess"
            assert cause["message"] == (
                "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on "
                "the containing namespace"
            )
        nameless = claim("c", admin=True)
        nameless["spec"]["devices"]["requests"][0]["name"] = ""
        refusal = (await server.ask("POST", CLAIMS, nameless)).refused(422)
        fields = [cause["field"] for cause in refusal["details"]["causes"]]
        assert fields == ["spec.devices.requests[0].adminAccess", "spec.devices.requests[0].name"]
        merge = {"content-type": "application/merge-patch+json"}
        result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "D", "adminAccess": True}
        granted = {"status": {"allocation": {"devices": {"results": [{**result, "adminAccess": False}, result]}}}}
        refusal = (await server.ask("PATCH", f"{CLAIMS}/a/status", granted, headers=merge)).refused(422)
        place = "status.allocation.devices.results"
        fields = [cause["field"] for cause in refusal["details"]["causes"]]
        assert fields == [f"{place}[1].adminAccess", f"{place}[0].device", f"{place}[1].device"]
        mark = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await server.patch("/api/v1/namespaces/default", mark)
        await server.post(CLAIMS, claim("b", admin=True))
        await server.post(TEMPLATES, template)
