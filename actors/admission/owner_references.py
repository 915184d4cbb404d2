"""OwnerReferencesPermissionEnforcement: owner references require rights on the dependent and on blocked owners
(plugin/pkg/admission/gc of kube-apiserver). Disabled by default.

Without it, a user who may not delete an object could have the garbage collector delete it, and could keep an owner
from being deleted by blockOwnerDeletion.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, AdmissionState, Attributes, forbidden
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.meta.request_info import RequestInfo

Reference = dict[str, Any]


class OwnerReferencesPermissionEnforcement(AdmissionPlugin):
    name = "OwnerReferencesPermissionEnforcement"

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        if attributes.object is None or (attributes.rt.resource, attributes.subresource) == ("pods", "status"):
            return
        now = _references(attributes.object)
        before = _references(attributes.before) if attributes.old is not None else []
        if now == before:
            return
        if attributes.operation != CREATE:
            _check_deletion(attributes, state)
        blocked = {each.get("uid") for each in before if each.get("blockOwnerDeletion")}
        added = [each for each in now if each.get("blockOwnerDeletion") and each.get("uid") not in blocked]
        if added and not state.judge(attributes.who, _finalizers("*", "*", "*", "*", "")).allowed:
            for reference in added:
                _check_owner(attributes, state, reference)


def _check_deletion(attributes: Attributes, state: AdmissionState) -> None:
    rt = attributes.rt
    judgement = state.judge(
        attributes.who,
        RequestInfo(
            path="",
            verb="delete",
            is_resource=True,
            group=rt.group,
            version=rt.version,
            namespace=attributes.namespace,
            resource=rt.plural,
            subresource=attributes.subresource,
            name=attributes.name,
        ),
    )
    if not judgement.allowed:
        why = f"{judgement.reason}, {judgement.error or '<nil>'}"
        raise forbidden(attributes, f"cannot set an ownerRef on a resource you can't delete: {why}")


def _check_owner(attributes: Attributes, state: AdmissionState, reference: Reference) -> None:
    api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
    rt, problem = None, ""
    if api_version.count("/") > 1:
        problem = f"unexpected GroupVersion string: {api_version}"
    else:
        rt = state.registry().by_api_version(api_version, kind)
        problem = f"no matches for kind {go_quote(kind)} in version {go_quote(api_version)}"
    if rt is None:
        raise forbidden(
            attributes,
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
            f"{api_version} Kind {kind}: {problem}",
        )
    namespace = attributes.namespace if rt.namespaced else ""
    judgement = state.judge(
        attributes.who, _finalizers(rt.group, rt.version, rt.plural, reference.get("name", ""), namespace)
    )
    if not judgement.allowed:
        why = f"{judgement.reason}, {judgement.error or '<nil>'}"
        raise forbidden(
            attributes,
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
            f"{why}",
        )


def _finalizers(group: str, version: str, plural: str, name: str, namespace: str) -> RequestInfo:
    return RequestInfo(
        path="",
        verb="update",
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=plural,
        subresource="finalizers",
        name=name,
    )


def _references(obj: dict[str, Any]) -> list[Reference]:
    found: list[Reference] = (obj.get("metadata") or {}).get("ownerReferences") or []
    return found
