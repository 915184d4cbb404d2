"""The default roles and bindings of a cluster, and the aggregated cluster roles.

Default objects are kept as kube-apiserver keeps them. A missing one is created. One that lacks a default rule or
subject is completed, never narrowed. One with the annotation ``rbac.authorization.kubernetes.io/autoupdate`` "false" is
left alone.

Aggregated cluster roles get the rules of the roles that carry their labels, as from kube-controller-manager's
clusterrole-aggregation.

Several servers on one log keep the same objects: the second finds the work done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import orjson
import trio

from kubechronicle.actors.loops.edits import NO_CHANGE, create_unless_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import each, first_pass
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.access import rbac
from kubechronicle.api.builtin import rbac as policy
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.label_selectors import selector_from_spec
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.steps import Steps

COMPONENT = "rbac-bootstrap"
AGGREGATION = "clusterrole-aggregation"
# Objects written at once on the first start: they share a few commits.
AT_ONCE = 32
SPLIT_FROM = {"system:public-info-viewer": "system:discovery"}
"""Default ClusterRoleBindings by the older ones that had their rules."""
RETRY_DELAY = 0.5
# Seconds without a change after which the aggregated roles are checked again.
RESYNC_INTERVAL = 300.0


def completed(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> Object | None:
    """Return the object with everything wanted that it lacks; None if it lacks nothing or must be left alone.

    A role keeps its own rules and gets the wanted ones that they do not cover. A binding keeps its subjects and gets
    the wanted ones that it lacks.
    """
    annotations = held["metadata"].get("annotations") or {}
    if annotations.get(policy.AUTOUPDATE) == "false":
        return None
    new = dict(held)
    metadata = new["metadata"] = dict(held["metadata"])
    for name in ("labels", "annotations"):
        metadata[name] = {**wanted["metadata"][name], **(metadata.get(name) or {})}
    if wanted.get("rules"):
        missing = rbac.not_covered(held.get("rules") or (), wanted["rules"])
        new["rules"] = [*(held.get("rules") or ()), *missing] if missing else held.get("rules")
    if wanted.get("subjects"):
        subjects = held.get("subjects") or []
        missing = [each for each in wanted["subjects"] if each not in subjects]
        new["subjects"] = [*subjects, *missing] if missing else subjects
    if wanted.get("aggregationRule"):
        selectors = (held.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        more = [each for each in wanted["aggregationRule"]["clusterRoleSelectors"] if each not in selectors]
        new["aggregationRule"] = {"clusterRoleSelectors": [*selectors, *more]}
    return None if new == held else new


class RbacBootstrap:
    """Runs before the server is ready. ``done`` is True after the first pass."""

    def __init__(self, store: Store, gates: FeatureGates) -> None:
        self._store = store
        self._gates = gates
        self.done = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile until all objects are there, then rest: later changes are the administrator's."""
        await first_pass(self.reconcile, subject="the default roles", task_status=task_status)
        await trio.sleep_forever()

    async def reconcile(self) -> None:
        """Create or complete every default object."""
        kinds = {
            "clusterroles": policy.cluster_roles(self._gates),
            "clusterrolebindings": [self._split(one) for one in policy.cluster_role_bindings(self._gates)],
            "roles": policy.roles(),
            "rolebindings": policy.role_bindings(),
        }
        await each([partial(self._reconcile, plural, wanted) for plural, wanted in kinds.items()])
        self.done = True

    async def _reconcile(self, plural: str, wanted: Sequence[Object]) -> None:
        rt = self._store.registry.builtin(policy.GROUP, "v1", plural)
        await each([partial(self._ensure, rt, one) for one in wanted], at_once=AT_ONCE)

    async def _ensure(self, rt: ResourceType, wanted: Object) -> None:
        metadata = wanted["metadata"]
        target = Target(rt=rt, namespace=metadata.get("namespace", ""), name=metadata["name"], manager=COMPONENT)
        entry = self._store.reads.peek(rt.resource, target.namespace, target.name)
        if entry is None:
            await create_unless_exists(self._store, COMPONENT, target, wanted)
            return
        held = entry.object()
        if "roleRef" in wanted and held.get("roleRef") != wanted["roleRef"]:
            # The roleRef of a binding is immutable. As in kube-apiserver, a wrong binding is replaced.
            if (held["metadata"].get("annotations") or {}).get(policy.AUTOUPDATE) != "false":
                caller = system_caller(COMPONENT, "delete", cause=entry.revision)
                await self._store.writes.delete(caller, target, DeleteOptions())
                await create_unless_exists(self._store, COMPONENT, target, wanted, cause=entry.revision)
        elif completed(held, wanted) is not None:
            await self._store.writes.edit(
                system_caller(COMPONENT, "update", cause=entry.revision),
                target,
                lambda now: completed(now, wanted) or now,
            )

    def _split(self, wanted: Object) -> Object:
        """Return a missing binding with the subjects, labels and annotations of the one that it was split from; others
        as they are.

        So whoever has narrowed that one before does not open the new one to all (kube-apiserver's
        ``primeSplitClusterRoleBindings``).
        """
        name, resource = wanted["metadata"]["name"], f"clusterrolebindings.{policy.GROUP}"
        source, reads = SPLIT_FROM.get(name), self._store.reads
        entry = reads.peek(resource, "", source) if source else None
        if entry is None or reads.peek(resource, "", name) is not None:
            return wanted
        held = entry.object()
        kept = {name: held["metadata"].get(name) or {} for name in ("labels", "annotations")}
        copied = {**wanted, "metadata": {**wanted["metadata"], **kept}, "subjects": held.get("subjects") or []}
        return completed(copied, wanted) or copied


class ClusterRoleAggregation:
    """Keeps the rules of aggregated cluster roles: all rules of the roles their selectors match, each once, by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rt = store.registry.builtin(policy.GROUP, "v1", "clusterroles")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Aggregate all roles at first, and after every change of a cluster role."""
        task_status.started()
        reflector = Reflector(
            self._store.reads,
            self._rt,
            component=AGGREGATION,
            on_list=self.aggregate,
            resync=RESYNC_INTERVAL,
            delays=repeat(RETRY_DELAY),
        )
        await reflector.run()

    async def aggregate(self) -> None:
        """Update every aggregated role until none changes: an aggregated role may be part of another one.

        The cause is the newest change of a role: also at the start, after changes that no server has seen.
        """
        changed = True
        while changed:
            listing, pauses = await self._store.reads.list(self._rt, Selection(), revision=0), Pauses()
            roles: dict[str, Object] = {}
            for entry in listing.entries:
                roles[entry.key.name] = entry.object()
                await pauses.pause()
            changed, cause = False, max((entry.revision for entry in listing.entries), default=NO_CHANGE)
            for name, role in roles.items():
                if not role.get("aggregationRule"):
                    continue
                rules = await pauses.take(aggregated(role, roles))
                if rules != (role.get("rules") or []):
                    changed |= await self._write(name, rules, cause)

    async def _write(self, name: str, rules: list[Object], cause: int) -> bool:
        target = Target(rt=self._rt, name=name, manager="clusterrole-aggregation-controller")
        caller = system_caller(AGGREGATION, "update", cause=cause)
        try:
            await self._store.writes.edit(caller, target, lambda now: {**now, "rules": rules})
        except StatusError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise
            return False
        return True


def aggregated(role: Mapping[str, Any], roles: Mapping[str, Mapping[str, Any]]) -> Steps[list[Object]]:
    """Return the rules of an aggregated role from all roles: by role name, each rule once."""
    rules: dict[bytes, Object] = {}  # by their text: to compare each with all others takes too long
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        wanted = selector_from_spec(selector)
        for name in sorted(roles):
            yield
            other = roles[name]
            if wanted is None or name == role["metadata"]["name"]:
                continue
            if not wanted.matches(other["metadata"].get("labels") or {}):
                continue
            for rule in other.get("rules") or ():
                rules.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
    return list(rules.values())
