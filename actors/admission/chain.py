"""The admission chain in its order (plugins.py). A plugin changes objects (``admit``) or looks at what is about to be
stored (``validate``); it sees the object and the views, and raises StatusError to refuse.

    decode → managed fields → every plugin's admit → claims → the kind's own rules → every plugin's validate → the log

The order is kube-apiserver's: an object that breaks its kind's rules is told so before a validating plugin sees it.
Claims fill in what is handed out once in the whole cluster (service addresses and ports). Whatever a claim or a plugin
takes or charges is a change of another object; it is left in ``Attributes.companions`` and commits with the write or not at
all (actors/companion_changes.py). Each may be called several times for one write, so
it must be a function of its arguments.

Plugins are indexed by resource and operation when first met, so that one costs nothing where it has no say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import msgspec
import trio

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key, Who

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

# How often, and in which distance (seconds), something is looked for again that others are about to make: the default
# service account of a new namespace (kube-apiserver: ten times, every 100 to 200 ms).
NOT_YET_RETRIES = 10
NOT_YET_INTERVAL = 0.1

NOBODY: Final = Who(user="")


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be admitted. ``operation``: CREATE, UPDATE or DELETE; ``object`` is None for DELETE; it is in the
    version of the request for ``admit`` and claims, in the stored one for ``validate``. ``warnings`` go to the client,
    ``companions`` commits with the write. ``who`` asks for it."""

    rt: ResourceType
    operation: str
    namespace: str
    name: str
    subresource: str = ""
    object: dict[str, Any] | None = None
    old: Entry | None = None
    dry_run: bool = False
    warnings: list[str] = msgspec.field(default_factory=list)
    companions: list[CompanionChange] = msgspec.field(default_factory=list)
    who: Who = NOBODY

    def with_object(self, obj: dict[str, Any]) -> Attributes:
        """These, of what is about to be stored."""
        return Attributes(
            rt=self.rt,
            operation=self.operation,
            namespace=self.namespace,
            name=self.name,
            subresource=self.subresource,
            object=obj,
            old=self.old,
            dry_run=self.dry_run,
            warnings=self.warnings,
            companions=self.companions,
            who=self.who,
        )


class Permits(Protocol):
    """Whether somebody may do this to an object ("": cluster-scoped), as all of the server's authorizers together see
    it. NeedsExternalAnswer: one of them must ask somebody first."""

    def __call__(self, who: Who, verb: str, group: str, resource: str, name: str, namespace: str = "") -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What plugins may look at, in this replica's views: ``peek(resource, namespace, name)`` and
    ``entries(resource, namespace)``. They may lag; a refusal of a create is checked again on a consistent state.
    ``permits`` tells what somebody may do besides this write."""

    peek: Callable[[str, str, str], Entry | None]
    entries: Callable[[str, str], Sequence[Entry]]
    permits: Permits = lambda who, verb, group, resource, name, namespace="": False


class NotYet(StatusError):
    """A refusal for want of something that is being made: worth a little patience before it is told."""

    @classmethod
    def because(cls, error: StatusError) -> NotYet:
        return cls(error.code, error.reason, error.message, details=error.details, headers=error.headers)


class MinimalPlugin(Protocol):
    """The least a plugin is; most are AdmissionPlugins. ``name`` is as --enable-admission-plugins has it."""

    @property
    def name(self) -> str: ...

    def admit(self, attributes: Attributes, state: State) -> None:
        """Raise StatusError to refuse; may change ``attributes.object`` in place."""
        ...


class AdmissionPlugin:
    """A plugin with a say on ``resources`` (storage names such as "pods"; None: all) and ``operations`` alone."""

    name: ClassVar[str]
    resources: ClassVar[frozenset[str] | None] = None
    operations: ClassVar[frozenset[str]] = frozenset({CREATE, UPDATE})

    def admit(self, attributes: Attributes, state: State) -> None:
        """Change ``attributes.object`` in place, or raise StatusError."""

    def validate(self, attributes: Attributes, state: State) -> None:
        """Raise StatusError to refuse what the kind's own rules have let through; change nothing but ``companions``."""

    def locked_keys(self, rt: ResourceType, operation: str, namespace: str, state: State) -> Sequence[Key]:
        """The keys such a write will change beside its own; this replica's writes with a key in common take turns."""
        return ()


class StorageHook(Protocol):
    """Hands out what there is only once. ``resources``: storage names of what it is asked for."""

    @property
    def resources(self) -> frozenset[str]: ...

    def begin_write(self, attributes: Attributes, state: State) -> None:
        """CREATE and UPDATE of an object itself: fill in ``attributes.object``, leave what is taken and given back in
        ``attributes.companions``. StatusError for what can't be had."""
        ...

    def release(self, entry: Entry, state: State) -> Sequence[CompanionChange]:
        """What is given back with an object that goes."""
        ...


Step = Callable[[Attributes, State], None]


class AdmissionChain:
    def __init__(
        self, plugins: Sequence[MinimalPlugin], state: State, storage_hooks: Sequence[StorageHook] = ()
    ) -> None:
        self._plugins = tuple(plugins)
        self._state = state
        self._storage_hooks = tuple(storage_hooks)
        # (resource, operation) -> steps: as many as there are resources, at most three times.
        self._admitting: dict[tuple[str, str], tuple[Step, ...]] = {}
        self._validating: dict[tuple[str, str], tuple[Step, ...]] = {}
        self._hooks_of: dict[str, tuple[StorageHook, ...]] = {}
        self._locked_key_steps: dict[tuple[str, str], tuple[Callable[..., Sequence[Key]], ...]] = {}

    def admit(self, attributes: Attributes) -> None:
        """Run every plugin that may change the object, in order. StatusError of the first that refuses."""
        place = (attributes.rt.resource, attributes.operation)
        steps = self._admitting.get(place)
        if steps is None:
            steps = self._admitting[place] = tuple(self._steps("admit", *place))
        for step in steps:
            step(attributes, self._state)

    def validate(self, attributes: Attributes) -> None:
        """Run every plugin that looks at what is about to be stored."""
        place = (attributes.rt.resource, attributes.operation)
        steps = self._validating.get(place)
        if steps is None:
            steps = self._validating[place] = tuple(self._steps("validate", *place))
        for step in steps:
            step(attributes, self._state)

    def begin_write(self, attributes: Attributes) -> None:
        """Let what is handed out once be filled in; a subresource claims nothing."""
        if attributes.subresource:
            return
        resource = attributes.rt.resource
        storage_hooks = self._hooks_of.get(resource)
        if storage_hooks is None:
            storage_hooks = self._hooks_of[resource] = tuple(
                each for each in self._storage_hooks if resource in each.resources
            )
        for hook in storage_hooks:
            hook.begin_write(attributes, self._state)

    def release(self, entry: Entry) -> list[CompanionChange]:
        """What commits beside the end of this object."""
        resource = entry.key.resource
        return [
            given_back
            for hook in self._storage_hooks
            if resource in hook.resources
            for given_back in hook.release(entry, self._state)
        ]

    def locked_keys(self, rt: ResourceType, operation: str, namespace: str) -> list[Key]:
        """The keys whose other writers of this replica this write has to wait for."""
        place = (rt.resource, operation)
        asked = self._locked_key_steps.get(place)
        if asked is None:
            asked = self._locked_key_steps[place] = tuple(self._steps("locked_keys", *place))
        return [key for lanes in asked for key in lanes(rt, operation, namespace, self._state)]

    def _steps(self, name: str, resource: str, operation: str) -> list[Any]:
        steps: list[Any] = []
        for plugin in self._plugins:
            if isinstance(plugin, AdmissionPlugin):
                concerned = plugin.resources is None or resource in plugin.resources
                overridden = getattr(type(plugin), name) is not getattr(AdmissionPlugin, name)
                if not (concerned and overridden and operation in plugin.operations):
                    continue
            step = getattr(plugin, name, None)
            if step is not None:
                steps.append(step)
        return steps


async def retry_while_not_yet(check: Callable[[Attributes], None], attributes: Attributes) -> None:
    """Check, and again a few times while the refusal is NotYet. StatusError."""
    before = len(attributes.companions)
    for _ in range(NOT_YET_RETRIES):
        try:
            return check(attributes)
        except NotYet:
            del attributes.companions[before:]
            await trio.sleep(NOT_YET_INTERVAL)
    check(attributes)


def forbidden(attributes: Attributes, why: str) -> StatusError:
    """403 as admission words it: of an object without a name its generateName is told, "Unknown" if it has neither."""
    name = attributes.name
    if not name and attributes.object is not None:
        meta = attributes.object.get("metadata") or {}
        name = meta.get("name") or meta.get("generateName") or "Unknown"
    return status.forbidden(attributes.rt, name, why)
