"""ImagePolicyWebhook and its webhook, over real TLS."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kubechronicle.actors.admission.chain import CREATE, UPDATE, AdmissionState, Attributes
from kubechronicle.actors.admission.pods.image_policy import ImagePolicyWebhook
from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.image_reviews import ImageWebhook, ImageWebhookClient
from kubechronicle.http.outgoing.remote_server import RemoteServer

POD: dict[str, Any] = {
    "metadata": {"name": "a", "annotations": {"x.image-policy.k8s.io/ticket": "7", "other": "8"}},
    "spec": {
        "containers": [{"name": "a", "image": "web"}],
        "initContainers": [{"name": "b", "image": "setup"}],
        "ephemeralContainers": [{"name": "c", "image": "debug"}],
    },
}


class Judge:
    """A webhook that answers each review with a status."""

    def __init__(self, status: dict[str, Any], code: int = 200) -> None:
        self.reviews: list[Any] = []
        self.status, self.code = status, code

    async def __call__(self, request: Request) -> Response:
        review = json.loads(await request.body(1 << 20))
        self.reviews.append(review)
        answer = json.dumps({**review, "status": self.status}).encode()
        return Response(self.code, [("content-type", "application/json")], answer)


Admit = Callable[..., Any]


@pytest.fixture
async def admit(wire: Any, outgoing: Outgoing) -> Admit:
    """Return a function that decides on the pod with the plugin, and returns the annotations for the audit event."""
    clients: dict[Judge, ImageWebhookClient] = {}

    async def decide(judge: Judge, subresource: str = "", *, default_allow: bool = False) -> dict[str, str]:
        if judge not in clients:
            started = await wire(judge)
            peer = RemoteServer(url=f"https://localhost:{started.server.port}/images", ca=started.authority.file)
            webhook = ImageWebhook(
                peer=peer, allow_ttl=100, deny_ttl=0, retry_backoff=0.001, default_allow=default_allow
            )
            clients[judge] = ImageWebhookClient(webhook, outgoing)
        attributes = Attributes(
            rt=known_registry().builtin("", "v1", "pods"),
            operation=UPDATE if subresource else CREATE,
            namespace="ns",
            name="a",
            subresource=subresource,
            object=POD,
        )
        state = AdmissionState(
            peek=lambda *place: None, entries=lambda resource, namespace: [], image_reviews=clients[judge]
        )
        await decide_with_answers(lambda: ImagePolicyWebhook().validate(attributes, state))
        return attributes.annotations

    return decide


async def test_images_are_reviewed_once(admit: Admit) -> None:
    judge = Judge({"allowed": True, "auditAnnotations": {"by": "me"}})
    for _ in range(2):
        assert await admit(judge) == {"imagepolicywebhook.image-policy.k8s.io/by": "me"}
    (review,) = judge.reviews
    assert (review["apiVersion"], review["kind"]) == ("imagepolicy.k8s.io/v1alpha1", "ImageReview")
    assert review["spec"] == {
        "containers": [{"image": "web"}, {"image": "setup"}],
        "annotations": {"x.image-policy.k8s.io/ticket": "7"},
        "namespace": "ns",
    }
    await admit(judge, "ephemeralcontainers")
    assert judge.reviews[1]["spec"]["containers"] == [{"image": "debug"}]
    await admit(judge, "status")
    assert len(judge.reviews) == 2


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, "one or more images rejected by webhook backend"),
        ({"reason": "old"}, "image policy webhook backend denied one or more images: old"),
    ],
)
async def test_denied_images(admit: Admit, status: dict[str, Any], why: str) -> None:
    judge = Judge(status)
    for _ in range(2):
        with pytest.raises(StatusError) as caught:
            await admit(judge)
        assert (caught.value.code, caught.value.message) == (403, f'pods "a" is forbidden: {why}')
    assert len(judge.reviews) == 2  # denials are not cached here


async def test_a_webhook_that_fails(admit: Admit) -> None:
    judge = Judge({"allowed": True}, code=500)
    with pytest.raises(StatusError) as caught:
        await admit(judge)
    assert caught.value.code == 403
    assert "an error on the server" in caught.value.message
    assert len(judge.reviews) == 5
    opened = await admit(Judge({"allowed": True}, code=404), default_allow=True)
    assert opened == {"imagepolicywebhook.image-policy.k8s.io/failed-open": "true"}


async def test_a_refused_connection_is_reported_as_by_go(outgoing: Outgoing) -> None:
    peer = RemoteServer(url="https://127.0.0.1:1/images")
    client = ImageWebhookClient(ImageWebhook(peer=peer, allow_ttl=0, deny_ttl=0, retry_backoff=0), outgoing)
    verdict = await client.ask(b"{}")
    assert verdict.failure == (
        'Post "https://127.0.0.1:1/images?timeout=30s": dial tcp 127.0.0.1:1: connect: connection refused'
    )
