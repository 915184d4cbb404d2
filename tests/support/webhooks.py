"""For tests of webhooks: an external server that answers reviews, over real TLS (tests/http/conftest.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.backoff import Backoff

QUICK = Backoff(initial=0.001, steps=2)
Answer = Callable[[dict[str, Any]], "dict[str, Any] | Response"]


def allowing(spec: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": True}


class Webhook:
    """Answers each review with the status, or the Response, that ``answer`` returns for its spec.

    ``reviews``, ``specs``: the reviews received, and their specs.
    """

    def __init__(self, answer: Answer = allowing) -> None:
        self.answer = answer
        self.reviews: list[dict[str, Any]] = []

    @property
    def specs(self) -> list[dict[str, Any]]:
        return [review["spec"] for review in self.reviews]

    async def __call__(self, request: Request) -> Response:
        review = json.loads(await request.body(1 << 20))
        self.reviews.append(review)
        answer = self.answer(review["spec"])
        if isinstance(answer, Response):
            return Response(answer.status, list(answer.headers), answer.body)
        answered = {"apiVersion": review["apiVersion"], "kind": review["kind"], "status": answer}
        return Response(200, [("content-type", "application/json")], json.dumps(answered).encode())


def kubeconfig(folder: Path, port: int, ca: Path, name: str = "webhook") -> Path:
    """Write a kubeconfig file for the webhook at this port."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name}}],
        "clusters": [
            {"name": name, "cluster": {"server": f"https://localhost:{port}/ask", "certificate-authority": str(ca)}}
        ],
    }
    path = folder / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path
