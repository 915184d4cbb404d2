"""A conversion webhook of widgets, in place of the client of webhooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CONVERSION = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"url": "https://hook/"}, "conversionReviewVersions": ["v1"]},
}


class Hook:
    """Converts {hostPort: host:port} of v1 to {host, port} of v2, and back."""

    async def __call__(
        self, config: Mapping[str, Any], body: bytes, *, timeout: float, deadline: float | None = None
    ) -> Any:
        request = json.loads(body)["request"]
        wanted = request["desiredAPIVersion"]
        objects = [self.converted(obj, wanted) for obj in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
        return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}

    def converted(self, obj: dict[str, Any], wanted: str) -> dict[str, Any]:
        base = {"apiVersion": wanted, "kind": obj["kind"], "metadata": obj["metadata"]}
        if wanted.endswith("v1"):
            return {**base, "hostPort": f"{obj['host']}:{obj['port']}"}
        host, _, port = obj["hostPort"].partition(":")
        return {**base, "host": host, "port": port}


def schema(**members: str) -> dict[str, Any]:
    fields = {name: {"type": kind} for name, kind in members.items()}
    return {
        "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        "selectableFields": [{"jsonPath": f".{name}"} for name in members],
    }
