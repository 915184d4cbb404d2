"""Webhooks with prepared answers, for tests of admission."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from in_process import InProcess

from kubechronicle.actors.reading.conversions import WebhookError

CONFIGS = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
Reply = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Hooks:
    """The webhooks of a test: what they were asked, and their answers by the host of their URL.

    ``asked``: (host, request) of each review, in order. ``replies``: host -> the response or its function.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.timeouts: list[float] = []
        self.replies: dict[str, dict[str, Any] | Reply | WebhookError] = {}

    async def __call__(
        self, config: Mapping[str, Any], body: bytes, *, timeout: float, deadline: float | None = None
    ) -> Any:
        review = json.loads(body)
        host = config["url"].removeprefix("https://")
        self.asked.append((host, review["request"]))
        self.timeouts.append(timeout)
        reply = self.replies.get(host, {})
        if isinstance(reply, WebhookError):
            raise reply
        found = reply if isinstance(reply, dict) else await reply(review["request"])
        response = {"uid": review["request"]["uid"], "allowed": True, **found}
        return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}

    @property
    def names(self) -> list[str]:
        return [host for host, _ in self.asked]

    def last(self) -> dict[str, Any]:
        return self.asked[-1][1]


def webhook(name: str, resource: str = "configmaps", **fields: Any) -> dict[str, Any]:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}
    return {
        "name": f"{name}.example.com",
        "clientConfig": {"url": f"https://{name}"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


async def configure(server: InProcess, kind: str, *webhooks: dict[str, Any], name: str = "c") -> None:
    body = {"metadata": {"name": name}, "webhooks": list(webhooks)}
    await server.post(f"{CONFIGS}/{kind}webhookconfigurations", body)


def patching(*operations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"patch": patch, "patchType": "JSONPatch", **fields}


def adding(path: str, value: Any) -> dict[str, Any]:
    return patching({"op": "add", "path": path, "value": value})
