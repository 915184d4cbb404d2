"""--allow-privileged=false, and the tolerations of --default-…-toleration-seconds."""

from __future__ import annotations

from typing import Any

from in_process import open_server

from kubechronicle.api.configuration.admission import PluginConfigurations

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REFUSED = "Forbidden: disallowed by cluster policy"


def pod_spec(*, privileged: bool) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": privileged}}]}


def deployment(*, privileged: bool) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(privileged=privileged)}
    return {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


async def test_privileged_containers_are_refused_in_pods_and_templates() -> None:
    async with open_server(other={"allow_privileged": False}) as server:
        for path, body, field in (
            (PODS, {"metadata": {"name": "p"}, "spec": pod_spec(privileged=True)}, "spec"),
            (DEPLOYMENTS, deployment(privileged=True), "spec.template.spec"),
        ):
            refused = (await server.ask("POST", path, body)).refused(422)
            causes = refused["details"]["causes"]
            assert [(each["field"], each["message"]) for each in causes] == [
                (f"{field}.containers[0].securityContext.privileged", REFUSED)
            ]
        await server.post(PODS, {"metadata": {"name": "p"}, "spec": pod_spec(privileged=False)})
        await server.post(DEPLOYMENTS, deployment(privileged=False))


async def test_the_default_tolerations() -> None:
    admission = PluginConfigurations(not_ready_seconds=7, unreachable_seconds=9)
    async with open_server(other={"admission": admission}) as server:
        pod = await server.post(PODS, {"metadata": {"name": "p"}, "spec": pod_spec(privileged=False)})
    seconds = {each["key"]: each["tolerationSeconds"] for each in pod["spec"]["tolerations"]}
    assert seconds == {"node.kubernetes.io/not-ready": 7, "node.kubernetes.io/unreachable": 9}
