"""The strategies of access reviews and rules reviews.

Reviews are not stored. Their field manager owns all fields that the client sent, the status included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.authorization import validation
from kubechronicle.api.strategy.strategy import Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "localsubjectaccessreviews.authorization.k8s.io": Strategy(status=False, validate=validation.local_subject_access),
    "selfsubjectaccessreviews.authorization.k8s.io": Strategy(status=False, validate=validation.self_subject_access),
    "selfsubjectrulesreviews.authorization.k8s.io": Strategy(status=False),
    "subjectaccessreviews.authorization.k8s.io": Strategy(status=False, validate=validation.subject_access),
}
