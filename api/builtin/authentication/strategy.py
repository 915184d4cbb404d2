"""The strategies of TokenReview and SelfSubjectReview.

Reviews are not stored. Their field manager owns all fields that the client sent, the status included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.strategy.strategy import Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "selfsubjectreviews.authentication.k8s.io": Strategy(status=False),
    "tokenreviews.authentication.k8s.io": Strategy(status=False),
}
