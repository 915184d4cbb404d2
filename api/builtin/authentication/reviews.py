"""TokenReview and SelfSubjectReview.

Reviews are not stored. Their field manager owns all fields that the client sent, the status included.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.strategy.strategy import Strategy

KINDS: Final = (
    BuiltinKind(resource="selfsubjectreviews.authentication.k8s.io", strategy=Strategy(status=False)),
    BuiltinKind(resource="tokenreviews.authentication.k8s.io", strategy=Strategy(status=False)),
)
