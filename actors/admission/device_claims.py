"""Checks of ResourceClaims that the objects alone do not decide: labels of the namespace, and rights of the writer.

    admin access                 only in labelled namespaces (KEP-5018)
    status.allocation            the request's verb on resourceclaims/binding, cluster-wide
    status.reservedFor           the same
    status.devices of a driver   ``arbitrary-node:VERB`` on resourceclaims/driver with the driver's name, or
                                 ``associated-node:VERB`` for a service account on the node of the allocation

The rights of the status are those of DRAResourceClaimGranularStatusAuthorization, on by default since v1.36 (KEP-4817).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionState, Attributes
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.access.rbac import SERVICE_ACCOUNT
from kubechronicle.api.builtin.resource.claim_status_validation import (
    changed_drivers,
    forget_deallocated,
    node_of_allocation,
)
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, forbidden
from kubechronicle.api.meta.request_info import RequestInfo, forbidden_message
from kubechronicle.api.values import names
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who

GROUP: Final = "resource.k8s.io"
ASSOCIATED_NODE: Final = "associated-node:"
ARBITRARY_NODE: Final = "arbitrary-node:"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
REQUEST_VERBS: Final = frozenset({"update", "patch"})
LABEL: Final = "resource.kubernetes.io/admin-access"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
CLAIM_STATUS: Final = f"{CLAIMS}/status"
TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
NEEDED: Final = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"


def _asked(obj: dict[str, Any], resource: str) -> str:
    """Return the path of the first request of a new claim or template that asks for admin access."""
    spec = obj.get("spec") or {}
    if resource == TEMPLATES:
        spec = spec.get("spec") or {}
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or request).get("adminAccess"):  # v1beta1 has no "exactly"
            return f"spec.devices.requests[{index}].adminAccess"
    return ""


def _granted(obj: dict[str, Any]) -> str:
    """Return the path of the first allocated device of a claim with admin access."""
    allocation = (obj.get("status") or {}).get("allocation") or {}
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if result.get("adminAccess"):
            return f"status.allocation.devices.results[{index}].adminAccess"
    return ""


class AdminAccess:
    """A StorageHook that checks claims for admin access."""

    resources = frozenset({CLAIMS, TEMPLATES, CLAIM_STATUS})

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Report new admin access in a namespace without the label: of a claim or template, or in an allocation."""
        obj, old = attributes.object, attributes.old
        if obj is None:
            return
        if attributes.subresource:
            field = "" if old is None or _granted(attributes.before) else _granted(obj)
        else:
            field = _asked(obj, attributes.rt.resource) if attributes.operation == CREATE else ""
        if not field:
            return
        namespace = state.peek("namespaces", "", attributes.namespace)
        if namespace is None or namespace.labels.get(LABEL) != "true":
            attributes.causes.append(forbidden(field, NEEDED))

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()


class StatusRights:
    """A StorageHook that checks the writer's rights to allocate a claim, and to report the devices of a driver."""

    resources = frozenset({CLAIM_STATUS})

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Report a change of the allocation, its consumers, or a driver's devices that the writer may not make."""
        if attributes.object is None or attributes.old is None:
            return
        old = attributes.before
        forget_deallocated(attributes.object, old)
        now, before = attributes.object.get("status") or {}, old.get("status") or {}
        # The writes of a transaction have its verb, and those of the server none.
        verb = attributes.who.verb if attributes.who.verb in REQUEST_VERBS else "update"
        if any((now.get(name) or None) != (before.get(name) or None) for name in ("allocation", "reservedFor")):
            refusal = _refusal(attributes, state, verb, "binding")
            if refusal:
                detail = (
                    "changing status.allocation or status.reservedFor requires "
                    f'resource="resourceclaims/binding", verb="{verb}" permission: {refusal}'
                )
                attributes.causes.append(forbidden("status.allocation", detail))
        if now.get("allocation") is not None:
            attributes.causes.extend(_device_refusals(attributes, state, verb, now, before))

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()


def _device_refusals(
    attributes: Attributes, state: AdmissionState, verb: str, now: dict[str, Any], before: dict[str, Any]
) -> list[Cause]:
    """Return a cause for each driver whose devices the writer may not change."""
    verbs = [f"{ARBITRARY_NODE}{verb}"]
    if _is_on_node(attributes.who, node_of_allocation(now["allocation"])):
        verbs.insert(0, f"{ASSOCIATED_NODE}{verb}")
    causes = []
    for driver in changed_drivers(now, before):
        refusals = []
        for one in verbs:
            refusal = _refusal(attributes, state, one, "driver", driver, attributes.namespace)
            if not refusal:
                break
            refusals.append(refusal)
        else:
            detail = (
                f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" '
                f"permission: {refusals[0]}"
            )
            causes.append(forbidden("status.devices", detail))
    return causes


def _refusal(
    attributes: Attributes, state: AdmissionState, verb: str, subresource: str, name: str = "", namespace: str = ""
) -> str:
    """Return the authorizers' refusal of a virtual subresource of claims, "" if they allow it."""
    info = RequestInfo(
        path="",
        verb=verb,
        is_resource=True,
        group=GROUP,
        version=attributes.rt.version,
        namespace=namespace,
        resource="resourceclaims",
        subresource=subresource,
        name=name,
    )
    judgement = state.judge(attributes.who, info)
    if judgement.allowed:
        return ""
    reason = ": ".join(part for part in (judgement.error, judgement.reason) if part)
    return status.forbidden(info, name, forbidden_message(attributes.who.user, info, reason)).message


def _is_on_node(who: Who, node: str) -> bool:
    """Return True if the writer is a service account whose token is bound to the node."""
    namespace, _, name = who.user.removeprefix(SERVICE_ACCOUNT).partition(":")
    if not node or not who.user.startswith(SERVICE_ACCOUNT) or names.dns_label(namespace) or names.dns_subdomain(name):
        return False
    return tuple(who.extra.get(NODE_NAME, ())) == (node,) and not names.dns_subdomain(node)
