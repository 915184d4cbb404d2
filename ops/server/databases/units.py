"""The storage of a server: its logs, each with its own views, tail, appender and consistent reads.

Usually there is one log. With --database-url-overrides there is one unit per database, and each resource belongs to
exactly one (eventlog/layout.py). Parts that name a resource find its unit through RoutedReads and ``submit``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from kubechronicle.actors.definitions.definition import Description
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.reading.routed_reads import RoutedReads
from kubechronicle.actors.resource_actor import CommitOutcome, Submit
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.eventlog.appender import Appender, Siblings
from kubechronicle.eventlog.consistency import ConsistentRead, Sole, SoleAppender
from kubechronicle.eventlog.encryption.encrypted_log import EncryptedLog
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.measures import MeasuredLog
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.records import Key, Transaction
from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.eventlog.sharing.shared_log import SharedLog
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.rereading import Rereading
from kubechronicle.eventlog.views.views import Views
from kubechronicle.ops.progress import ProgressLine
from kubechronicle.ops.server.encryption.encryption import Encryption

NEEDED: Final = (
    "namespaces",
    "serviceaccounts",
    "resourcequotas",
    "limitranges",
    *(f"{name}.rbac.authorization.k8s.io" for name in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")),
    *(f"{name}webhookconfigurations.admissionregistration.k8s.io" for name in ("mutating", "validating")),
    *(f"{name}admissionpolicies.admissionregistration.k8s.io" for name in ("mutating", "validating")),
    *(f"{name}admissionpolicybindings.admissionregistration.k8s.io" for name in ("mutating", "validating")),
    "customresourcedefinitions.apiextensions.k8s.io",
    "apiservices.apiregistration.k8s.io",
    *(f"{name}.flowcontrol.apiserver.k8s.io" for name in ("flowschemas", "prioritylevelconfigurations")),
    "priorityclasses.scheduling.k8s.io",
    *(f"{name}.networking.k8s.io" for name in ("servicecidrs", "ipaddresses")),
    "services",
    "endpoints",
    "leases.coordination.k8s.io",
)
"""Resources of the server's own rules and loops. While one cannot be decrypted, a server does not start, or is not
ready."""


class SpansDatabases(Exception):
    """A transaction has changes of several logs, or of a resource in the wrong one: a bug, and nothing was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDatabase:
    """An open log beside the main one. ``place``: its place in the layout. ``name``: for people and metrics."""

    name: str
    log: RevisionLog
    resources: tuple[str, ...]
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One log with its views, and the parts that read and append.

    ``log``: with the contents decrypted; ``measured`` is below it. ``sole``: given if no other process appends.
    """

    name: str
    measured: MeasuredLog
    log: EncryptedLog
    views: Views
    tail: Tail
    rereading: Rereading
    appender: Appender
    sole: Sole | None
    consistency: ConsistentRead
    needed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """``main``: the main log. ``others``: those of other databases. ``reads``: of all of them.

    ``siblings``: of the appenders, to be counted by admission.
    """

    main: Unit
    others: tuple[Unit, ...]
    units: dict[str, Unit]
    description: Description
    actors: ResourceActors
    reads: Reads
    siblings: Siblings

    @property
    def every(self) -> Sequence[Unit]:
        return (self.main, *self.others)

    async def is_stale(self, key: Key, revision: int) -> bool:
        """As EncryptedLog's."""
        return await self.units.get(key.resource, self.main).log.is_stale(key, revision)


def make_storage(
    stored_log: RevisionLog,
    encryption: Encryption,
    *,
    epoch: PostmasterEpoch | None = None,
    others: Sequence[OtherDatabase] = (),
    failures: TaskFailures | None = None,
) -> Storage:
    """Return the storage over open logs. ``epoch``: given if this process alone appends to the main log."""
    description = Description()
    elsewhere = {resource for other in others for resource in other.resources}
    siblings = Siblings()
    main = _unit("", stored_log, encryption, description, siblings, NEEDED, elsewhere, epoch=epoch)
    made = [
        (other, _unit(other.name, other.log, encryption, description, siblings, other.resources)) for other in others
    ]
    units = {resource: unit for other, unit in made for resource in other.resources}
    describe = description.describe
    if not made:
        reads = Reads(log=main.log, views=main.views, consistency=main.consistency, describe=describe)
        submit: Submit = main.appender.submit
    else:
        places = {
            other.place: Reads(
                log=unit.log,
                views=unit.views,
                consistency=unit.consistency,
                describe=describe,
                name=other.name,
                place=other.place,
            )
            for other, unit in made
        }
        reads = RoutedReads(
            log=main.log,
            views=main.views,
            consistency=main.consistency,
            describe=describe,
            elsewhere={resource: places[other.place] for other, _ in made for resource in other.resources},
            places=places,
        )
        submit = _routed_submit(main, units)

    return Storage(
        main=main,
        others=tuple(unit for _, unit in made),
        units=units,
        description=description,
        actors=ResourceActors(peek=reads.peek, submit=submit, failures=failures),
        reads=reads,
        siblings=siblings,
    )


def _unit(
    name: str,
    stored_log: RevisionLog,
    encryption: Encryption,
    description: Description,
    siblings: Siblings,
    held: Sequence[str],
    elsewhere: Collection[str] = (),
    *,
    epoch: PostmasterEpoch | None = None,
) -> Unit:
    """Return a unit. ``held``: resources that it may hold; those ``elsewhere`` are left out."""
    measured = MeasuredLog(stored_log)
    log = encryption.over(measured)
    views = Views(description.describe, description.plain)
    tail = Tail(log, views, show_loading=lambda: ProgressLine("loading", "objects"), name=name)
    needed = tuple(resource for resource in held if resource in NEEDED and resource not in elsewhere)
    rereading = Rereading(views, needed)
    encryption.contents.on_change(rereading.notice_change)
    sole: Sole | None = None
    if isinstance(stored_log, SharedLog):
        sole = stored_log.claim_of_hub
    elif epoch is not None:
        sole = SoleAppender(log, tail, epoch, stored=stored_log)
    return Unit(
        name=name,
        measured=measured,
        log=log,
        views=views,
        tail=tail,
        rereading=rereading,
        appender=Appender(log, tail, siblings),
        sole=sole,
        consistency=ConsistentRead(log, tail, sole),
        needed=needed,
    )


def _routed_submit(main: Unit, units: dict[str, Unit]) -> Submit:
    """Return the function that passes each transaction to the appender of its log."""

    def submit(transaction: Transaction, done: Callable[[CommitOutcome], None], *, deadline: float) -> None:
        unit = units.get(transaction.changes[0].key.resource, main)
        if any(units.get(change.key.resource, main) is not unit for change in transaction.changes):
            keys = ", ".join(str(change.key) for change in transaction.changes)
            raise SpansDatabases(f"one transaction cannot change {keys}: they are in different databases")
        unit.appender.submit(transaction, done, deadline=deadline)

    return submit
