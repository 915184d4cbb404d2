"""The Node authorizer: a kubelet may read the objects that pods on its node refer to, and write its own objects.

Its users are ``system:node:NAME`` in the group ``system:nodes``. A node's objects follow from the pods bound to it, and
from the claimRef of volumes:

    node ─┬─ pod ─┬─ secrets, configmaps, service accounts, resource claims
          │       └─ persistentvolumeclaim ─ persistentvolume ─ its secrets
          └─ volume attachments, resource slices, requests for certificates of its pods

NodeRestriction (actors/admission) checks the objects in requests, which are not decoded yet here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.access.pod_references import CLAIMS, Reference, node_and_references, volume_secrets
from kubechronicle.api.access.rule_index import RuleIndex, stand_for
from kubechronicle.api.builtin.rbac import cluster_roles
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.selectors.field_selectors import value_required
from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import ALLOWED, NO_OPINION, Decision, UserRules, Verdict
from kubechronicle.http.authorization.view_follower import FollowedViews, Following, ViewFollower

NODE_PREFIX: Final = "system:node:"
GROUP_NODES: Final = "system:nodes"
ROLE: Final = ("", "system:node")
LEASE_NAMESPACE: Final = "kube-node-lease"
FOLLOWED: Final = ("pods", "persistentvolumes")
Place = tuple[str, str]
"""(namespace, name)."""

NODE_NAMED: Final = frozenset(
    {
        "podcertificaterequests.certificates.k8s.io",
        "resourceslices.resource.k8s.io",
        "volumeattachments.storage.k8s.io",
    }
)
"""Resources whose spec.nodeName names their node."""

OWN_OBJECT_VERBS: Final = ("get", "create", "update", "patch", "delete")


def node_name(user: User) -> str | None:
    """Return the node's name, "" for a node without a name, None for a user that is no node."""
    if GROUP_NODES not in user.groups or not user.name.startswith(NODE_PREFIX):
        return None
    return user.name.removeprefix(NODE_PREFIX)


def _not(reason: str) -> Verdict:
    return Verdict(Decision.NO_OPINION, reason)


POD_CERTIFICATES: Final = "PodCertificateRequest"
IMAGE_CREDENTIALS: Final = "KubeletServiceAccountTokenForCredentialProviders"
VOLUME_HEALTH: Final = "CSIVolumeHealth"
GATES: Final = (POD_CERTIFICATES, IMAGE_CREDENTIALS, VOLUME_HEALTH)
"""Gates that give nodes rights."""


class NodeAuthorizer:
    """``gates``: those of the server. They decide on the rules of the role, and on some kinds."""

    def __init__(self, views: FollowedViews, gates: FeatureGates | None = None) -> None:
        self._views = views
        self._gates = gates or FeatureGates()
        self._of_pod: dict[tuple[str, str], tuple[str, frozenset[Reference]]] = {}
        # node -> (namespace, resource, name) -> number of its pods that refer to it
        self._related: dict[str, Counter[tuple[str, str, str]]] = {}
        # volume -> its claim and its secrets; secret -> claim -> number of the claim's volumes that need it
        self._of_volume: dict[str, tuple[Place, frozenset[Place]]] = {}
        self._claims_of: dict[Place, Counter[Place]] = {}
        self._pods = ViewFollower(views["pods"], self._pod)
        self._volumes = ViewFollower(views["persistentvolumes"], self._volume)
        self.following = Following((self._pods, self._volumes))
        self._rules = next(role for role in cluster_roles(self._gates) if role["metadata"]["name"] == ROLE[1])["rules"]
        self._index = RuleIndex()
        self._index.put(ROLE, self._rules)
        self._special: Mapping[tuple[str, str], Callable[[str, RequestInfo], Verdict]] = {
            ("", "secrets"): self._readable,
            ("", "configmaps"): self._readable,
            ("", "persistentvolumeclaims"): self._claim,
            ("", "persistentvolumes"): self._gettable,
            ("resource.k8s.io", "resourceclaims"): self._gettable,
            ("storage.k8s.io", "volumeattachments"): self._gettable,
            ("", "serviceaccounts"): self._account,
            ("coordination.k8s.io", "leases"): self._lease,
            ("storage.k8s.io", "csinodes"): self._csi_node,
            ("resource.k8s.io", "resourceslices"): self._slice,
            **(
                {("certificates.k8s.io", "podcertificaterequests"): self._pod_certificate}
                if self._gates.enabled(POD_CERTIFICATES)
                else {}
            ),
            ("", "nodes"): self._node,
            ("", "pods"): self._pod_access,
        }

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """Return ALLOW, or NO_OPINION with the reason. There is no reason for users that are no nodes."""
        node = node_name(user)
        if node is None:
            return NO_OPINION
        if not node:
            return _not(f'unknown node for user "{user.name}"')
        if not info.is_resource:
            return ALLOWED if self._index.permit_path([{ROLE}], info.verb, info.path) else NO_OPINION
        special = self._special.get((info.group, info.resource))
        if special is not None:
            return special(node, info)
        resources = stand_for(f"{info.resource}/{info.subresource}" if info.subresource else info.resource)
        allowed = self._index.permit([{ROLE}], info.verb, info.group, resources, info.name)
        return ALLOWED if allowed else NO_OPINION

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        """Return no rules: rights that depend on objects can't be listed."""
        if node_name(user) is None:
            return UserRules()
        return UserRules(errors=["node authorizer does not support user rule resolution"], incomplete=True)

    def at(self, views: FollowedViews) -> NodeAuthorizer:
        return NodeAuthorizer(views, self._gates)

    # -- by kind ------------------------------------------------------------------------------------------------------

    def _readable(self, node: str, info: RequestInfo) -> Verdict:
        if info.verb not in ("get", "list", "watch"):
            return _not("can only read resources of this type")
        if info.subresource:
            return _not("cannot read subresource")
        if not info.namespace:
            return _not("can only read namespaced object of this type")
        return self._related_to(node, info)

    def _gettable(self, node: str, info: RequestInfo) -> Verdict:
        if info.verb != "get":
            return _not("can only get individual resources of this type")
        if info.subresource:
            return _not("cannot get subresource")
        return self._related_to(node, info)

    def _claim(self, node: str, info: RequestInfo) -> Verdict:
        if info.subresource != "status":
            return self._gettable(node, info)
        if info.verb not in ("update", "patch"):
            return _not("can only get/update/patch this type")
        return self._related_to(node, info)

    def _account(self, node: str, info: RequestInfo) -> Verdict:
        if info.verb == "get" and not info.subresource:  # to ask for credentials in its name (KEP-4412)
            if not any(map(self._gates.enabled, (POD_CERTIFICATES, IMAGE_CREDENTIALS))):
                return _not("not allowed to get service accounts")
            return self._related_to(node, info)
        if info.verb != "create" or not info.name:
            return _not("can only create tokens for individual service accounts")
        if info.subresource != "token":
            return _not("can only create token subresource of serviceaccount")
        return self._related_to(node, info)

    def _lease(self, node: str, info: RequestInfo) -> Verdict:
        if info.verb not in OWN_OBJECT_VERBS:
            return _not("can only get, create, update, patch, or delete a node lease")
        if info.namespace != LEASE_NAMESPACE:
            return _not(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        if info.verb != "create" and info.name != node:
            return _not("can only access node lease with the same name as the requesting node")
        return ALLOWED

    def _csi_node(self, node: str, info: RequestInfo) -> Verdict:
        if info.subresource == "status":
            if not self._gates.enabled(VOLUME_HEALTH):
                return _not("CSINode status access requires CSIVolumeHealth feature")
            if info.verb not in ("get", "update", "patch"):
                return _not("can only get, update, or patch CSINode status")
        elif info.subresource:
            return _not("cannot authorize CSINode subresources")
        elif info.verb not in OWN_OBJECT_VERBS:
            return _not("can only get, create, update, patch, or delete a CSINode")
        if info.verb != "create" and info.name != node:
            return _not("can only access CSINode with the same name as the requesting node")
        return ALLOWED

    def _slice(self, node: str, info: RequestInfo) -> Verdict:
        if info.subresource:
            return _not("cannot authorize ResourceSlice subresources")
        if info.verb == "create":
            return ALLOWED
        if info.verb in ("get", "update", "patch", "delete"):
            return self._related_to(node, info)
        if info.verb in ("list", "watch", "deletecollection"):
            if value_required(info.field_selector, "spec.nodeName") == node:
                return ALLOWED
            return _not("can only list/watch/deletecollection resourceslices with nodeName field selector")
        return _not(
            "only the following verbs are allowed for a ResourceSlice: "
            "get, watch, list, create, update, patch, delete, deletecollection"
        )

    def _pod_certificate(self, node: str, info: RequestInfo) -> Verdict:
        if info.subresource:
            return _not("nodes may not access the status subresource of PodCertificateRequests")
        if info.verb == "create":
            return ALLOWED  # NodeRestriction checks the request
        if info.verb == "get":
            return self._related_to(node, info)
        if info.verb in ("list", "watch"):
            if value_required(info.field_selector, "spec.nodeName") == node:
                return ALLOWED
            return _not("can only list/watch podcertificaterequests with nodeName field selector")
        return _not(f"nodes may not {info.verb} podcertificaterequests")

    def _node(self, node: str, info: RequestInfo) -> Verdict:
        if info.subresource == "status":
            return ALLOWED if info.verb in ("update", "patch") else NO_OPINION
        if info.subresource:
            return NO_OPINION
        if info.verb in ("create", "update", "patch"):
            return ALLOWED
        if info.verb not in ("get", "list", "watch"):
            return NO_OPINION
        if info.name == node:
            return ALLOWED
        target = f"'{info.name}'" if info.name else "all nodes"
        return _not(f"node '{node}' cannot read {target}, only its own Node object")

    def _pod_access(self, node: str, info: RequestInfo) -> Verdict:
        verb, subresource = info.verb, info.subresource
        if subresource == "status":
            return ALLOWED if verb in ("update", "patch") else NO_OPINION
        if subresource == "eviction":
            return ALLOWED if verb == "create" else NO_OPINION
        if subresource:
            return NO_OPINION
        if verb in ("create", "delete"):
            return ALLOWED
        if verb == "get":
            return self._gettable(node, info)
        if verb not in ("list", "watch"):
            return NO_OPINION
        if value_required(info.field_selector, "spec.nodeName") == node:
            return ALLOWED
        if info.name:
            return self._related_to(node, info)
        return _not("can only list/watch pods with spec.nodeName field selector")

    # -- the relation -------------------------------------------------------------------------------------------------

    def _related_to(self, node: str, info: RequestInfo) -> Verdict:
        if not info.name:
            return _not("No Object name found")
        if self._is_related(node, info):
            return ALLOWED
        return _not(f"no relationship found between node '{node}' and this object")

    def _is_related(self, node: str, info: RequestInfo) -> bool:
        self._pods.catch_up()
        resource = info.group_resource
        related: Mapping[tuple[str, str, str], int] = self._related.get(node, {})
        if (info.namespace, resource, info.name) in related:
            return True
        if resource == "pods":
            pod = self._views[resource].get(info.namespace, info.name)
            return pod is not None and pod.fields.get("spec.nodeName") == node
        if resource in NODE_NAMED:
            return self._field(resource, info.namespace, info.name, "spec", "nodeName") == node
        if resource not in ("persistentvolumes", "secrets"):
            return False
        self._volumes.catch_up()
        if resource == "persistentvolumes":
            volume = self._of_volume.get(info.name) if not info.namespace else None
            return volume is not None and _is_claimed(volume[0], related)
        claims: Mapping[Place, int] = self._claims_of.get((info.namespace, info.name), {})
        if len(claims) <= len(related):
            return any(_is_claimed(claim, related) for claim in claims)
        return any(resource == CLAIMS and (space, name) in claims for space, resource, name in related)

    def _field(self, resource: str, namespace: str, name: str, *path: str) -> str:
        entry = self._views[resource].get(namespace, name)
        value = entry.object() if entry is not None else {}
        for part in path[:-1]:
            value = value.get(part) or {}
        text: str = value.get(path[-1]) or ""
        return text

    def _pod(self, namespace: str, name: str, entry: Entry | None) -> None:
        before = self._of_pod.pop((namespace, name), None)
        now = node_and_references(entry.json) if entry is not None and entry.fields.get("spec.nodeName") else None
        if before is not None and before != now:
            self._count(namespace, *before, -1)
        if now is not None:
            self._of_pod[(namespace, name)] = now
            if before != now:
                self._count(namespace, *now, 1)

    def _volume(self, namespace: str, name: str, entry: Entry | None) -> None:
        before = self._of_volume.pop(name, None)
        if before is not None:
            self._count_secrets(*before, -1)
        volume = entry.object() if entry is not None else {}
        claim = (volume.get("spec") or {}).get("claimRef")
        if claim:
            now = (claim.get("namespace", ""), claim.get("name", "")), frozenset(volume_secrets(volume))
            self._of_volume[name] = now
            self._count_secrets(*now, 1)

    def _count_secrets(self, claim: Place, secrets: frozenset[Place], change: int) -> None:
        for secret in secrets:
            claims = self._claims_of.setdefault(secret, Counter())
            claims[claim] += change
            if not claims[claim]:
                del claims[claim]
            if not claims:
                del self._claims_of[secret]

    def _count(self, namespace: str, node: str, referred: frozenset[Reference], change: int) -> None:
        counts = self._related.setdefault(node, Counter())
        for resource, name in referred:
            key = (namespace, resource, name)
            counts[key] += change
            if not counts[key]:
                del counts[key]
        if not counts:
            del self._related[node]


def _is_claimed(claim: Place, related: Mapping[tuple[str, str, str], int]) -> bool:
    return (claim[0], CLAIMS, claim[1]) in related
