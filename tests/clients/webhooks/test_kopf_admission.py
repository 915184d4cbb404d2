"""Admission handlers on the unchanged kopf, which registers them in configurations that it manages."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from admission.serving_certificates import issue
from certificates import CA
from harness import Api, Server, configmap, eventually, unique
from postgres_fixture import free_port
from programs import running

CONFIGS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/kopf.example.com"
KINDS = ("validating", "mutating")


def checked(name: str, **data: str) -> Any:
    body: Any = configmap(name, **data)
    body["metadata"]["annotations"] = {"checked": "yes"}
    return body


def registered(api: Api, kind: str) -> bool:
    answer = api.request("GET", CONFIGS.format(kind))
    return answer.status == 200 and bool(answer.json().get("webhooks"))


def test_admission_handlers_of_kopf(server: Server, tmp_path: Path) -> None:
    issue(tmp_path, CA("kopf"), "localhost")
    with closing(server.api()) as api:
        namespace = api.namespace(unique("kopf-admission"))
        maps = f"/api/v1/namespaces/{namespace}/configmaps"
        script = str(Path(__file__).parent / "kopf_admission.py")
        command = [sys.executable, "-m", "kopf", "run", "--namespace", namespace, script]
        environment = {
            "KUBECONFIG": str(server.kubeconfig),
            "WEBHOOK_FOLDER": str(tmp_path),
            "WEBHOOK_PORT": str(free_port()),
        }
        try:
            with running(command, log=tmp_path / "kopf.log", environment=environment):
                for kind in KINDS:
                    eventually(lambda kind=kind: registered(api, kind), f"{kind} handlers of kopf")  # type: ignore[misc]
                assert api.create(maps, checked("good", size="3"))["data"] == {"size": "3", "color": "blue"}
                refused = api.request("POST", maps, checked("bad", size="big")).expect(422)
                assert refused["message"].endswith("denied the request: size is no number: 'big'")
                tried = api.request("POST", f"{maps}?dryRun=All", checked("tried", size="4"))
                assert (tried.status, tried.headers["warning"]) == (201, '299 - "only tried"')
        finally:
            for kind in KINDS:
                api.request("DELETE", CONFIGS.format(kind)).expect(200, 404)
            api.request("DELETE", f"/api/v1/namespaces/{namespace}").expect(200)
