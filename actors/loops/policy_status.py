"""The status of ValidatingAdmissionPolicies: warnings of expressions that do not fit the objects they match.

Does the work of kube-controller-manager's validatingadmissionpolicy-status-controller: each generation of a policy is
checked once. A real controller may run at the same time: both write the same warnings.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final

import orjson
import trio

from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline.patching import APPLY_YAML
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

COMPONENT: Final = "validatingadmissionpolicy-status"
RETRY_INTERVAL: Final = 1.0
"""Seconds before a failed write is repeated."""


class PolicyStatusLoop:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._rt = store.registry.builtin("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
        self._checked: dict[Entry, None] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the policies."""
        task_status.started()
        reflector = Reflector(
            self._store.reads,
            self._rt,
            component=COMPONENT,
            on_list=self._check_all,
            delays=repeat(RETRY_INTERVAL),
        )
        await reflector.run()

    async def _check_all(self) -> None:
        entries = self._store.reads.entries(self._rt.resource, "")
        before, self._checked = self._checked, {}
        for entry in entries:
            if entry not in before:
                await self._check(entry.object())
            self._checked[entry] = None

    async def _check(self, policy: Object) -> None:
        """Write the warnings of a policy, unless its status is about this generation."""
        from kubechronicle.api.admission import type_checking

        meta, status = policy["metadata"], policy.get("status") or {}
        generation = meta.get("generation", 0)
        if generation <= status.get("observedGeneration", 0):
            return
        found = await trio.to_thread.run_sync(type_checking.warnings, policy, self._store.registry)
        checking: Object = {"expressionWarnings": found} if found else {}
        body = {
            "apiVersion": self._rt.api_version,
            "kind": self._rt.kind,
            "metadata": {"name": meta["name"]},
            "status": {"observedGeneration": generation, "typeChecking": checking},
        }
        target = Target(rt=self._rt, name=meta["name"], subresource="status", manager=COMPONENT)
        caller = system_caller(COMPONENT, "patch", cause=int(meta["resourceVersion"]))
        try:
            await self._store.writes.patch(caller, target, APPLY_YAML, orjson.dumps(body), force=True)
        except StatusError as error:
            if error.code != 404:
                raise
