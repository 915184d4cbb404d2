"""The admission chain: mutating and validating plugins (in the order of plugins.py) and storage hooks.

    decode → managed fields → admit (plugins) → begin_write (hooks) → the kind's rules → validate (plugins) → the log

The order is kube-apiserver's: an object that breaks its kind's rules is rejected before a validating plugin sees it.
Storage hooks allocate values that are unique in the cluster (service addresses and ports). If a hook or plugin changes
another object, such as a quota, it appends the change to ``Attributes.companions``; the change is committed with the
write or not at all (actors/companion_changes.py). Each may be called several times for one write, so it must be a
function of its arguments.

The plugins' protocol and the chain that calls it are one contract, so one file of more than 400 lines.

Plugins are indexed by resource and operation at the first such write, so a plugin costs nothing elsewhere.

A plugin whose work depends on the number of other objects, such as quotas, or that asks webhooks, returns it as steps.
Between two steps of long work, other tasks run. Where a step lacks an answer from outside, the write waits for it,
without locks, and goes on there (``Turn.wait``). So the views may have changed after a step, as in kube-apiserver: the
commit compares the revision of each object that the write changes, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

import msgspec
import trio
from msgspec import structs

from kubechronicle.actors.admission.metrics import ADMIT, VALIDATE, Count, Labels, Measured, Measurement
from kubechronicle.actors.admission.state import AdmissionState as AdmissionState
from kubechronicle.actors.admission.state import HeldLists
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.external_answers import MAX_QUESTIONS, TOO_MANY, NeedsExternalAnswer, without_frames
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.pauses import TURN
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline.scale import Scaled
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.names import path_segment
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key, Who

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
CONNECT: Final = "CONNECT"

# Retries, and the seconds between them, for an object that is about to be created: the default service account of a
# new namespace (kube-apiserver: ten times, every 100 to 200 ms).
NOT_YET_RETRIES = 10
NOT_YET_INTERVAL = 0.1

NOBODY: Final = Who(user="")

AdmissionSteps: TypeAlias = Generator[NeedsExternalAnswer | None, None, None]
"""The rest of a plugin's work. They yield after each step; or an answer that is missing, to go on once it is there.

A step never raises NeedsExternalAnswer (external_answers.py: ``awaiting``).
"""


class Reinvocation(msgspec.Struct):
    """The second run of the mutating plugins, after policies or webhooks have changed the object.

    ``wanted``: a plugin has changed the object, so that all run once more.
    ``second``: this is the second run.
    ``memory``: notes of plugins for it, by their names.
    ``original``: the object before its first change by a webhook. A rejected write is admitted again from there.
    """

    wanted: bool = False
    second: bool = False
    memory: dict[str, object] = msgspec.field(default_factory=dict)
    original: dict[str, Any] | None = None

    def forget(self, obj: dict[str, Any] | None) -> None:
        """Begin again: give ``obj`` back its members as they were before the changes of webhooks."""
        if self.original is not None and obj is not None:
            members = dict(self.original)
            obj.clear()
            obj.update(members)
            if isinstance(obj, Scaled):
                obj.scale = obj.sent
        self.wanted = self.second = False
        self.memory.clear()
        self.original = None


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """The write to admit.

    ``operation``: CREATE, UPDATE, DELETE or CONNECT.
    ``object``: None for DELETE; in the version of the request for ``admit`` and ``begin_write``, in the stored version
    for ``validate``.
    ``former``: the object of ``old``, if it is decoded already; read it by ``before``.
    ``warnings``: for the client.
    ``companions``: changes of other objects to commit with the write.
    ``causes``: problems that the kind's rules report before their own.
    ``who``: the requester.
    ``options``: those of the operation, as an object (CreateOptions, …); None if they are unknown.
    ``annotations``: for the audit event; UNWANTED: there is none.
    ``collection``: the object is deleted as one of a collection, and the request names none.
    ``seed``: the same in every attempt of a write on the same state, and in no other; random values derive from it.
    ``requested``: for ``validate``, as in Prepared.
    ``measured``: what metrics count once the write is decided.
    ``achieved``: counts what the write achieves, once nothing has rejected it.
    """

    rt: ResourceType
    operation: str
    namespace: str
    name: str
    subresource: str = ""
    object: dict[str, Any] | None = None
    old: Entry | None = None
    former: dict[str, Any] | None = None
    dry_run: bool = False
    warnings: list[str] = msgspec.field(default_factory=list)
    companions: list[CompanionChange] = msgspec.field(default_factory=list)
    causes: list[Cause] = msgspec.field(default_factory=list)
    who: Who = NOBODY
    options: Mapping[str, Any] | None = None
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    reinvocation: Reinvocation = msgspec.field(default_factory=Reinvocation)
    collection: bool = False
    seed: str = ""
    requested: dict[str, Any] | None = None
    measured: list[Measurement] = msgspec.field(default_factory=list)
    achieved: list[Callable[[], None]] = msgspec.field(default_factory=list)

    @property
    def before(self) -> dict[str, Any]:
        """The object of ``old``, for reading: all plugins share it. Without one, an empty dict.

        It is decoded once for a write. That of a large object takes long, so its preparation has done it in a thread.
        """
        former = self.former
        if former is None:
            former = {} if self.old is None else self.old.object()
            structs.force_setattr(self, "former", former)
        return former

    def with_object(self, obj: dict[str, Any], requested: dict[str, Any] | None = None) -> Attributes:
        """Return the same attributes with the object about to be stored. ``requested``: as in Prepared."""
        return structs.replace(self, object=obj, requested=requested, causes=[], reinvocation=Reinvocation())


class NotYet(StatusError):
    """A rejection because an object is missing that is about to be created: worth a few retries."""

    @classmethod
    def because(cls, error: StatusError) -> NotYet:
        return cls(error.code, error.reason, error.message, details=error.details, headers=error.headers)


class MinimalPlugin(Protocol):
    """The least a plugin implements; most are AdmissionPlugins. ``name``: its name in --enable-admission-plugins."""

    @property
    def name(self) -> str: ...

    def admit(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        """Change ``attributes.object`` in place, or raise StatusError. None: it is done; otherwise, by these steps."""
        ...


class AdmissionPlugin:
    """A plugin for some ``resources`` (storage names such as "pods"; None: all) and ``operations``.

    ``gate``: the feature gate without which it does nothing, "" for none.
    ``configured_by``: the resource of its configurations. While there are none, it is not asked, unless it
    ``has_compiled`` some before.
    """

    name: ClassVar[str]
    configured_by: ClassVar[str] = ""
    has_compiled: bool = False
    gate: ClassVar[str] = ""
    resources: ClassVar[frozenset[str] | None] = None
    operations: ClassVar[frozenset[str]] = frozenset({CREATE, UPDATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        """Change ``attributes.object`` in place, or raise StatusError. None: it is done; otherwise, by these steps."""
        return None

    def validate(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        """Reject an object that passed its kind's rules with StatusError. Change nothing but ``companions``.

        None: that is done; otherwise, by these steps.
        """
        return None

    def locked_keys(self, rt: ResourceType, operation: str, namespace: str, state: AdmissionState) -> Sequence[Key]:
        """Return the keys of the companion changes to expect. Writes of this replica that share a key take turns."""
        return ()


class StorageHook(Protocol):
    """A step between mutating admission and the kind's rules, for the storage names ``resources``.

    ``resources`` may contain a subresource, too: "resourceclaims.resource.k8s.io/status".

    It stands where kube-apiserver's registries allocate values (BeginCreate, BeginUpdate) or check escalation.
    """

    @property
    def resources(self) -> frozenset[str]: ...

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Complete or check ``attributes.object`` on CREATE and UPDATE.

        Allocations go into ``attributes.companions``, and problems that do not hide others into ``attributes.causes``.
        StatusError: a value cannot be allocated, or is not allowed.
        """
        ...

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return the changes that release the allocations of a deleted object."""
        ...


Run: TypeAlias = Callable[[Attributes, AdmissionState], AdmissionSteps | None]


class PluginStep(NamedTuple):
    """A step of one plugin. ``passed``: counts its duration. ``rejected``: the labels of one that rejects.

    ``dynamic``: the plugin, if it is configured by objects.
    """

    run: Run
    passed: Count
    rejected: Labels
    dynamic: AdmissionPlugin | None


class AdmissionChain:
    def __init__(
        self, plugins: Sequence[MinimalPlugin], state: AdmissionState, hooks: Sequence[StorageHook] = ()
    ) -> None:
        self._plugins = tuple(plugins)
        self._hooks = tuple(hooks)
        # (ADMIT or VALIDATE, resource, operation) → the steps, and the function that counts the duration of all.
        self._measured: dict[tuple[str, str, str], tuple[tuple[PluginStep, ...], Count]] = {}
        self._hooks_of: dict[str, tuple[StorageHook, ...]] = {}
        self._locked_key_steps: dict[tuple[str, str], tuple[Callable[..., Sequence[Key]], ...]] = {}
        self._state = replace(state, held=HeldLists(state.entries, state.follow))

    @property
    def guards_namespaces(self) -> bool:
        """True if the plugin runs that rejects creations in namespaces that end. It can be disabled."""
        return any(plugin.name == "NamespaceLifecycle" for plugin in self._plugins)

    def over(self, other: Callable[[AdmissionState], AdmissionState]) -> AdmissionChain:
        """Return a chain of the same plugins and hooks that decide on another state, made from this chain's."""
        return AdmissionChain(self._plugins, other(self._state), self._hooks)

    def measured(self, attributes: Attributes) -> Measured:
        """Return a block in which a write is decided. What is measured is counted at its end."""
        return Measured(self._state.metrics, attributes.measured, attributes.achieved)

    async def admit(self, attributes: Attributes, turn: Turn) -> None:
        """Run the mutating plugins in order, again if one asks for it. StatusError of the first that rejects.

        ``turn``: of the request that waits.
        """
        reinvocation = attributes.reinvocation
        try:
            await self._run(ADMIT, attributes, turn)
            while reinvocation.wanted and not reinvocation.second:
                reinvocation.second = True
                await self._run(ADMIT, attributes, turn)
        except StatusError:
            reinvocation.forget(attributes.object)
            raise

    async def validate(self, attributes: Attributes, turn: Turn) -> None:
        """Run the validating plugins on the object about to be stored."""
        await self._run(VALIDATE, attributes, turn)

    async def _run(self, kind: str, attributes: Attributes, turn: Turn) -> None:
        """Run the plugins' steps, and note their durations. ``kind``: ADMIT or VALIDATE."""
        state, measured = self._state, attributes.measured
        metrics, resource, operation = state.metrics, attributes.rt.resource, attributes.operation
        steps, all_passed = self._measured.get((kind, resource, operation)) or self._measure(kind, resource, operation)
        start = begun = perf_counter()
        try:
            for run, passed, rejected, dynamic in steps:  # noqa: B007  it is that of the step that rejects
                if dynamic is not None and not self._is_configured(dynamic):
                    measured.append((passed, 0.0))
                    continue
                try:
                    rest = run(attributes, state)
                except NeedsExternalAnswer as missing:
                    rest = await _wait_and_run(run, without_frames(missing), attributes, state, turn)
                if rest is not None:
                    await _take(rest, turn, grows=kind is ADMIT)
                now = perf_counter()
                measured.append((passed, now - begun))
                begun = now
        except StatusError:
            now = perf_counter()
            measured.append((partial(metrics.controllers.add, rejected), now - begun))
            measured.append((partial(metrics.steps.add, (kind, operation, "true")), now - start))
            raise
        measured.append((all_passed, begun - start))

    def _is_configured(self, plugin: AdmissionPlugin) -> bool:
        state = self._state
        return plugin.has_compiled or plugin.name in state.manifests or bool(state.held[plugin.configured_by])

    def begin_write(self, attributes: Attributes) -> None:
        """Run the storage hooks. NeedsExternalAnswer: the write is prepared again once the answer is there."""
        resource = attributes.rt.resource
        if attributes.subresource:
            resource = f"{resource}/{attributes.subresource}"
        hooks = self._hooks_of.get(resource)
        if hooks is None:
            hooks = self._hooks_of[resource] = tuple(each for each in self._hooks if resource in each.resources)
        for hook in hooks:
            hook.begin_write(attributes, self._state)

    def release(self, entry: Entry) -> list[CompanionChange]:
        """Return the companion changes of the object's deletion."""
        resource = entry.key.resource
        return [
            change for hook in self._hooks if resource in hook.resources for change in hook.release(entry, self._state)
        ]

    def locked_keys(self, rt: ResourceType, operation: str, namespace: str) -> list[Key]:
        """Return the keys to lock during this write."""
        place = (rt.resource, operation)
        steps = self._locked_key_steps.get(place)
        if steps is None:
            steps = self._locked_key_steps[place] = tuple(self._steps("locked_keys", *place))
        return [key for step in steps for key in step(rt, operation, namespace, self._state)]

    def _measure(self, kind: str, resource: str, operation: str) -> tuple[tuple[PluginStep, ...], Count]:
        metrics, passed, rejected = self._state.metrics, (kind, operation, "false"), (kind, operation, "true")
        steps = tuple(
            PluginStep(
                step,
                metrics.controllers.of((step.__self__.name, *passed)),
                (step.__self__.name, *rejected),
                step.__self__ if getattr(step.__self__, "configured_by", "") else None,
            )
            for step in self._steps(kind, resource, operation)
        )
        return self._measured.setdefault((kind, resource, operation), (steps, metrics.steps.of(passed)))

    def _steps(self, name: str, resource: str, operation: str) -> list[Any]:
        steps: list[Any] = []
        for plugin in self._plugins:
            if isinstance(plugin, AdmissionPlugin):
                applies = plugin.resources is None or resource in plugin.resources
                overridden = getattr(type(plugin), name) is not getattr(AdmissionPlugin, name)
                if not (applies and overridden and operation in plugin.operations):
                    continue
            step = getattr(plugin, name, None)
            if step is not None:
                steps.append(step)
        return steps


async def _wait_and_run(
    run: Run, missing: NeedsExternalAnswer, attributes: Attributes, state: AdmissionState, turn: Turn
) -> AdmissionSteps | None:
    """Run a plugin that has stopped before it has changed anything, each time that it has the missing answer."""
    for _ in range(MAX_QUESTIONS):
        await turn.wait(missing)
        try:
            return run(attributes, state)
        except NeedsExternalAnswer as another:
            missing = without_frames(another)
    raise status.internal_error(TOO_MANY)


async def _take(steps: AdmissionSteps, turn: Turn, *, grows: bool) -> None:
    """Take the steps of a plugin, with pauses if they are many. ``grows``: they may have made the object large."""
    began, are_many, asked = perf_counter(), False, 0
    for missing in steps:
        if missing is not None:
            asked += 1
            if asked > MAX_QUESTIONS:
                raise status.internal_error(TOO_MANY)
            await turn.wait(missing)
            began = perf_counter()
            continue
        asked = 0
        if perf_counter() - began > TURN:
            are_many = True
            await turn.let_others_run()
            began = perf_counter()
    if are_many and grows:
        turn.slow = True  # the rules of the kind run in the thread


async def retry_while_not_yet(check: Callable[[], Awaitable[None]], attributes: Attributes) -> None:
    """Await a check, and again a few times while it raises NotYet. StatusError: the last one."""
    before, measured = len(attributes.companions), len(attributes.measured)
    for _ in range(NOT_YET_RETRIES):
        try:
            return await check()
        except NotYet:
            del attributes.companions[before:]
            del attributes.measured[measured:]
            await trio.sleep(NOT_YET_INTERVAL)
    await check()


def forbidden(attributes: Attributes, why: str) -> StatusError:
    """Return the 403 of an admission plugin. It names the object by name or generateName, else as "Unknown"."""
    name = attributes.name
    if not name and attributes.object is not None:
        meta = attributes.object.get("metadata") or {}
        name = meta.get("name") or meta.get("generateName") or "Unknown"
    return status.forbidden(attributes.rt, name, why)


def name_problem(name: str) -> str:
    """Return the error of Kubernetes' client (client-go rest) for a name that no path can have, "" for other names.

    Plugins of kube-apiserver look up a missing object once more through this client.
    """
    if not name:
        return "resource name may not be empty"
    problems = path_segment(name)
    return f"invalid resource name {go_quote(name)}: [{' '.join(problems)}]" if problems else ""
