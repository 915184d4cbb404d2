"""The access rules every cluster begins with, kept as kube-apiserver keeps them: made when they are missing, completed
when something was taken out of them, never narrowed; left alone where the annotation
``rbac.authorization.kubernetes.io/autoupdate`` says "false". And the aggregated cluster roles, filled from those that
carry their labels, as kube-controller-manager's clusterrole-aggregation does.

Several servers on one log look after the same objects: whoever is second finds the work done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.access import rbac
from kubechronicle.api.builtin import bootstrap_policy as policy
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.label_selectors import selector_from_spec
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

COMPONENT = "rbac-bootstrap"
# Objects made at once on the first start: they share a few commits instead of taking one each.
AT_ONCE = 32
START_ATTEMPTS = 10
RETRY_DELAY = 0.5
# The aggregated roles are looked through this often even if nothing seems to have changed.
RESYNC_INTERVAL = 300.0


def completed(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> Object | None:
    """The object with everything wanted that it lacks; None if it lacks nothing or is not to be touched.

    A role keeps its own rules and gets those it does not cover; a binding keeps its subjects and gets those it lacks.
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
    """Runs before the server is ready; ``done`` tells that everything has been looked through once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.done = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile once, report started, and rest: later changes are the administrators'."""
        for attempt in range(START_ATTEMPTS):
            try:
                await self.reconcile()
                break
            except (StatusError, LogError, ActorError):
                if attempt == START_ATTEMPTS - 1:
                    raise
                await trio.sleep(RETRY_DELAY)
        self.done = True
        task_status.started()
        await trio.sleep_forever()

    async def reconcile(self) -> None:
        """Make or complete every object of the policy."""
        await self._reconcile("clusterroles", policy.cluster_roles())
        await self._reconcile("clusterrolebindings", policy.cluster_role_bindings())
        await self._reconcile("roles", policy.roles())
        await self._reconcile("rolebindings", policy.role_bindings())

    async def _reconcile(self, plural: str, wanted: Sequence[Object]) -> None:
        rt = _type(self._store, plural)
        for start in range(0, len(wanted), AT_ONCE):
            async with trio.open_nursery() as nursery:
                for each in wanted[start : start + AT_ONCE]:
                    nursery.start_soon(self._one, rt, each)

    async def _one(self, rt: ResourceType, wanted: Object) -> None:
        metadata = wanted["metadata"]
        target = Target(rt=rt, namespace=metadata.get("namespace", ""), name=metadata["name"], manager=COMPONENT)
        entry = self._store.reads.peek(rt.resource, target.namespace, target.name)
        if entry is None:
            await self._make(target, wanted)
            return
        held = entry.object()
        if "roleRef" in wanted and held.get("roleRef") != wanted["roleRef"]:
            # What a binding refers to can't be changed: as kube-apiserver does, it makes place for the right one.
            if (held["metadata"].get("annotations") or {}).get(policy.AUTOUPDATE) != "false":
                await self._store.writes.delete(system_caller(COMPONENT, "delete"), target, DeleteOptions())
                await self._make(target, wanted)
        elif completed(held, wanted) is not None:
            await self._store.writes.edit(
                system_caller(COMPONENT, "update"), target, lambda now: completed(now, wanted) or now
            )

    async def _make(self, target: Target, wanted: Object) -> None:
        try:
            await self._store.writes.create(system_caller(COMPONENT, "create"), target, wanted)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise


class ClusterRoleAggregation:
    """Keeps the rules of aggregated cluster roles: those of all roles their selectors match, each once, by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rt = _type(store, "clusterroles")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look through all aggregated roles at first and after every change of a cluster role."""
        task_status.started()
        while True:
            try:
                watching = await self._store.reads.watch(self._rt, Selection(), revision=None)
                while True:
                    await self.aggregate()
                    await watching.cursor.next_batch(trio.current_time() + RESYNC_INTERVAL)
            except Compacted:
                continue
            except (StatusError, LogError, ActorError) as error:
                log.warning("cluster roles could not be aggregated, trying again: %s", error)
                await trio.sleep(RETRY_DELAY)

    async def aggregate(self) -> None:
        """Bring every aggregated role up to date; a role may be part of one that is part of another."""
        changed = True
        while changed:
            found = await self._store.reads.list(self._rt, Selection(), revision=0)
            roles = {entry.key.name: entry.object() for entry in found.entries}
            changed = False
            for name, role in roles.items():
                if not role.get("aggregationRule"):
                    continue
                rules = aggregated(role, roles)
                if rules != (role.get("rules") or []):
                    changed |= await self._write(name, rules)

    async def _write(self, name: str, rules: list[Object]) -> bool:
        target = Target(rt=self._rt, name=name, manager="clusterrole-aggregation-controller")
        try:
            await self._store.writes.edit(
                system_caller("clusterrole-aggregation", "update"), target, lambda now: {**now, "rules": rules}
            )
        except StatusError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise
            return False
        return True


def aggregated(role: Mapping[str, Any], roles: Mapping[str, Mapping[str, Any]]) -> list[Object]:
    """The rules of an aggregated role, as the roles are now: by name, each rule once."""
    rules: list[Object] = []
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        wanted = selector_from_spec(selector)
        for name in sorted(roles):
            other = roles[name]
            if wanted is None or name == role["metadata"]["name"]:
                continue
            if not wanted.matches(other["metadata"].get("labels") or {}):
                continue
            rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


def _type(store: Store, plural: str) -> ResourceType:
    rt = store.registry.known(policy.GROUP, "v1", plural)
    assert rt is not None, f"{plural} are a built-in resource"
    return rt
