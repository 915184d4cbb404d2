"""The webhook that judges the images of pods, as the plugin ImagePolicyWebhook sees it."""

from __future__ import annotations

from typing import Protocol

from kubechronicle.api.admission.image_verdicts import Verdict


class ImageReviews(Protocol):
    """The webhook. ``default_allow``: allow images that it cannot be asked about."""

    @property
    def default_allow(self) -> bool: ...

    def known(self, spec: bytes) -> Verdict | None:
        """Return the cached answer about an ImageReviewSpec (JSON)."""
        ...

    async def ask(self, spec: bytes) -> Verdict:
        """Ask, and cache the answer. Raises nothing but trio.Cancelled."""
        ...
