"""ResourceQuota: charge created and growing objects to the quotas of their namespace, in the same transaction
(k8s.io/apiserver/pkg/admission/plugin/resourcequota).

The charge is a companion change of the quota's status. If another write on any replica has charged the quota
meanwhile, the log rejects the transaction, and the write is checked again. So no quota is ever exceeded. A lock on each
quota spares this replica's writes these rejections.

api/quota holds the measures and the error messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from kubechronicle.actors.admission.chain import (
    CREATE,
    AdmissionPlugin,
    AdmissionState,
    AdmissionSteps,
    Attributes,
    forbidden,
)
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.evaluation import judge_large
from kubechronicle.actors.external_answers import awaiting
from kubechronicle.actors.large_work import LARGE, LARGE_BYTES
from kubechronicle.api.errors import status
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.quota.check import Exceeded, LimitedResource, QuotaWrite, ScopesNotCovered, charges
from kubechronicle.api.quota.evaluators import Facts, evaluator_of
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

QUOTAS: Final = "resourcequotas"
NAMESPACES: Final = "namespaces"
DEVICE_CLASSES: Final = "deviceclasses.resource.k8s.io"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
MANAGER: Final = "kube-apiserver"
"""The field manager of charges."""


class ResourceQuota(AdmissionPlugin):
    name = "ResourceQuota"

    def __init__(self, limits: Sequence[LimitedResource] = ()) -> None:
        """``limits``: what may be consumed only where a quota covers it."""
        self._limits = tuple(limits)

    def validate(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        namespace = attributes.namespace
        entries = state.entries(QUOTAS, namespace) if namespace else ()
        limits = self._limits if namespace and attributes.rt.resource != NAMESPACES else ()
        if not (entries or limits) or attributes.object is None:
            return None
        evaluator = evaluator_of(attributes.rt.resource)
        operation, subresource = attributes.operation, attributes.subresource
        if evaluator is None:
            return None
        if subresource and not evaluator.handles(operation, subresource, attributes.object, None):
            return None  # before the quotas are decoded: kubelets send many status updates
        write = QuotaWrite(
            operation=operation,
            subresource=subresource,
            new=attributes.object,
            old=attributes.before if attributes.old is not None else None,
        )

        def charge() -> AdmissionSteps:
            quotas = []
            for entry in entries:
                quotas.append(entry.object())
                yield None
            try:
                charged = yield from charges(quotas, evaluator, write, facts_of(state), limits)
            except Exceeded as error:
                raise forbidden(attributes, str(error)) from None
            except ScopesNotCovered as error:
                raise status.unknown(str(error)) from None
            for index, used in charged:
                charged_quota = partial(_judged_charge, entries[index], quotas[index], used)
                attributes.companions.append((yield from awaiting(charged_quota)))
                yield None

        return charge()

    def locked_keys(self, rt: ResourceType, operation: str, namespace: str, state: AdmissionState) -> Sequence[Key]:
        """Lock quotas for creations only: few updates change an object's usage, and the log detects their conflicts.

        Those that may be charged, or all where reading them would take long: more writes wait, none is wrong.
        """
        if operation != CREATE or not namespace:
            return ()
        entries = state.entries(QUOTAS, namespace)
        evaluator = evaluator_of(rt.resource) if entries else None
        if evaluator is None:
            return ()
        if sum(len(entry.json) for entry in entries) > LARGE:
            return [entry.key for entry in entries]
        facts = facts_of(state)
        return [entry.key for entry in entries if any(evaluator.covers(name, facts) for name in _hard(entry.json))]


class _QuotaStatus(msgspec.Struct):
    hard: dict[str, msgspec.Raw] | None = None


class _Quota(msgspec.Struct):
    """The part of a stored quota that each creation reads."""

    status: _QuotaStatus | None = None


_quota: Final = msgspec.json.Decoder(_Quota)


def _hard(stored: bytes) -> Iterable[str]:
    """Return the names that a quota's status limits; the rest is not decoded, which takes a third of the time."""
    status = _quota.decode(stored).status
    return () if status is None else status.hard or ()


def facts_of(state: AdmissionState) -> Facts:
    """Return the objects that usage depends on, from these views."""

    def one(resource: str, namespace: str, name: str) -> Object | None:
        entry = state.peek(resource, namespace, name)
        return entry.object() if entry is not None else None

    def having(resource: str, namespace: str, text: str) -> Iterator[Object]:
        wanted = text.encode()
        return (entry.object() for entry in state.entries(resource, namespace) if wanted in entry.json)

    return Facts(
        now=datetime.now(UTC),
        device_class=partial(one, DEVICE_CLASSES, ""),
        device_classes=partial(having, DEVICE_CLASSES, ""),
        claims=partial(having, CLAIMS),
        pod=partial(one, "pods"),
    )


def _judged_charge(entry: Entry, quota: Object, used: dict[str, str]) -> CompanionChange:
    if len(entry.json) <= LARGE_BYTES:
        return _charged(entry, quota, used)
    return judge_large(("charge", entry.key), (entry.revision, used), _charged, entry, quota, used)


def _charged(entry: Entry, quota: Object, used: dict[str, str]) -> CompanionChange:
    """Return the change of a quota's status.used, as an update of its status by the server."""
    rt = known_registry().builtin("", "v1", QUOTAS)
    new: Object = {**quota, "metadata": dict(quota["metadata"]), "status": {**quota["status"], "used": used}}
    context = WriteContext(
        now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        manager=MANAGER,
        namespace=entry.key.namespace,
        name=entry.key.name,
        subresource="status",
    )
    return CompanionChange(key=entry.key, old=entry, object=pipeline.prepare_update(rt, quota, new, context).object)
