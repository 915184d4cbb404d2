"""An update without a resourceVersion: refused in the stable versions that v1.37 added, allowed in older ones."""

from __future__ import annotations

from typing import Any

import pytest
from certificates import CA
from kinds.pod_certificates import request_of_pod
from kinds.releases import open_release
from trio.testing import MockClock

RULE = {"taint": {"key": "a.example.com/b", "effect": "NoSchedule"}}
BODIES: dict[str, dict[str, Any]] = {
    "/apis/resource.k8s.io/VERSION/devicetaintrules": {"spec": RULE},
    "/apis/certificates.k8s.io/v1/clustertrustbundles": {"spec": {"trustBundle": CA("a").pem.decode()}},
    "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests": request_of_pod(),
    "/apis/storagemigration.k8s.io/v1/storageversionmigrations": {"spec": {"resource": {"resource": "secrets"}}},
}


@pytest.mark.parametrize(
    ("path", "version", "code"),
    [*((path, "v1", 422) for path in BODIES), *((next(iter(BODIES)), older, 200) for older in ("v1beta2", "v1alpha3"))],
)
async def test_an_update_needs_the_revision_that_it_replaces(
    path: str, version: str, code: int, autojump_clock: MockClock
) -> None:
    chosen = "resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true"
    async with open_release(runtime_config=chosen) as server:
        target = path.replace("VERSION", version)
        made = await server.post(target, {**BODIES[path], "metadata": {"name": "a"}})
        bare = {**made, "metadata": {"name": "a", "labels": {"a": "b"}}}
        answer = await server.ask("PUT", f"{target}/a", bare)
        assert answer.status == code, answer.body
        if code == 422:
            (cause,) = answer.json()["details"]["causes"]
            assert cause["field"] == "metadata.resourceVersion"
