"""Strategy of CertificateSigningRequest; the server records the requester, and the times of conditions.

Source: ``registry/certificates/certificates/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.certificates import validation
from kubechronicle.api.builtin.certificates.validation import APPROVED, DENIED, conditions_of
from kubechronicle.api.strategy.strategy import Check, Strategy, keep, status_update
from kubechronicle.api.strategy.write_context import Requester
from kubechronicle.api.values.objects import Object


def keep_request_spec(new: Object, old: Object) -> None:
    """Keep the old spec: a signing request is immutable."""
    keep("spec", new, old)


def record_requester(new: Object, requester: Requester) -> None:
    """Overwrite the user fields of the spec with those of the authenticated requester."""
    spec = new["spec"]
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    noted = {
        "username": requester.user,
        "uid": requester.uid,
        "groups": list(requester.groups),
        "extra": {key: list(values) for key, values in requester.extra.items()},
    }
    spec.update({name: value for name, value in noted.items() if value})


def stamp_conditions(new: Object, old: Object, now: str) -> None:
    """Set missing update and transition times of conditions; keep the transition time while the status stays the
    same."""
    held: dict[tuple[str | None, str | None], str] = {}
    for condition in conditions_of(old):
        if condition.get("lastTransitionTime"):
            held.setdefault((condition.get("type"), condition.get("status")), condition["lastTransitionTime"])
    for condition in conditions_of(new):
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = held.get((condition.get("type"), condition.get("status")), now)


def prepare_status(new: Object, old: Object) -> None:
    """Keep approvals and denials; if their number differs, validation rejects the change."""
    after = conditions_of(new)
    for kind in (APPROVED, DENIED):
        held = [condition for condition in conditions_of(old) if condition.get("type") == kind]
        places = [index for index, condition in enumerate(after) if condition.get("type") == kind]
        if len(held) == len(places):
            for index, condition in zip(places, held, strict=True):
                after[index] = condition


def prepare_approval(new: Object, old: Object) -> None:
    """Take over the conditions alone."""
    after = conditions_of(new)
    new["status"] = {name: value for name, value in (old.get("status") or {}).items() if name != "conditions"}
    if after:
        new["status"]["conditions"] = after


_CHECKS: Final = (Check.METADATA, Check.CHANGE, Check.METADATA_CHANGE)

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "certificatesigningrequests.certificates.k8s.io": Strategy(
        update_checks=_CHECKS,
        names="any",
        reset=(("spec",), ("status",)),
        requested=record_requester,
        prepare_update=keep_request_spec,
        validate=validation.signing_request,
        validate_update=validation.request_update,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    prepare=prepare_status,
                    reset=(("spec",), ("status", "conditions")),
                    validate_update=validation.request_status,
                    timed=stamp_conditions,
                    checks=_CHECKS,
                ),
                "approval": status_update(
                    "spec",
                    prepare=prepare_approval,
                    reset=(("spec",), ("status", "certificate")),
                    validate_update=validation.request_approval,
                    timed=stamp_conditions,
                    checks=_CHECKS,
                ),
            }
        ),
    ),
}
