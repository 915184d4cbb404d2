"""ImageReviews: questions to the webhook of the admission plugin ImagePolicyWebhook (imagepolicy.k8s.io/v1alpha1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from kubechronicle.api.admission.rejections import ImageVerdict
from kubechronicle.http.outgoing import reviews
from kubechronicle.http.outgoing.backoff import Backoff, RateLimitedLog, ask_patiently
from kubechronicle.http.outgoing.client import TIMEOUT, Answer, AskError, Outgoing
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.outgoing.single_flight import TtlCache
from kubechronicle.http.outgoing.webhooks import go_error

log = logging.getLogger(__name__)

KIND: Final = "ImageReview"
VERSION: Final = "imagepolicy.k8s.io/v1alpha1"
CACHE_SIZE: Final = 1024
"""As kube-apiserver's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageWebhook:
    """The configuration. ``allow_ttl``, ``deny_ttl``, ``retry_backoff``: seconds, 0 for none.

    ``default_allow``: allow images if the webhook gives no usable answer.
    """

    peer: RemoteServer
    allow_ttl: float
    deny_ttl: float
    retry_backoff: float
    default_allow: bool = False


class ImageWebhookClient:
    """Asks the webhook, and caches its answers. Failures are not cached. ``clock``: monotonic, in seconds."""

    def __init__(
        self, webhook: ImageWebhook, outgoing: Outgoing, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.default_allow = webhook.default_allow
        self._ttl = {True: webhook.allow_ttl, False: webhook.deny_ttl}
        url = f"{webhook.peer.url}?timeout={TIMEOUT:.0f}s"  # as client-go, which adds its time-out
        self._client = outgoing.client(webhook.peer.replaced(url=url))
        self._backoff = Backoff(initial=webhook.retry_backoff)
        self._cache: TtlCache[ImageVerdict] = TtlCache(CACHE_SIZE, clock)
        self._error_log = RateLimitedLog(log, "Failed to ask the image policy webhook")

    def known(self, spec: bytes) -> ImageVerdict | None:
        """Return the cached answer about an ImageReviewSpec (JSON)."""
        return self._cache.get(spec)

    async def ask(self, spec: bytes) -> ImageVerdict:
        """Ask the webhook. Raises nothing but trio.Cancelled."""
        body = reviews.review(KIND, VERSION, orjson.loads(spec), {"allowed": False})
        try:
            verdict = await ask_patiently(self._client, body, _read, backoff=self._backoff)
        except AskError as error:
            self._error_log.error(str(error))
            return ImageVerdict(allowed=False, failure=self._shown(error))
        self._cache.put(spec, verdict, self._ttl[verdict.allowed])
        return verdict

    def _shown(self, error: AskError) -> str:
        """Return the text of an error as Go's net/http has it."""
        url = self._client.peer.url
        head, text = f'Post "{url}": ', str(error)
        return head + go_error(text.removeprefix(head), url) if text.startswith(head) else text


def _read(answer: Answer) -> ImageVerdict:
    """Return the answer in an ImageReview. Raises AskError."""
    status = reviews.status_of(answer, KIND, VERSION)
    annotations = reviews.mapping(status, "auditAnnotations")
    found = {key: reviews.text(annotations, key) for key in annotations}
    return ImageVerdict(reviews.flag(status, "allowed"), reviews.text(status, "reason"), found)
