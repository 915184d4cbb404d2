"""`kubechronicle repair`: changes of the log that let people back into a cluster whose API refuses them.

    kubechronicle repair list
    kubechronicle repair disable validatingwebhookconfiguration/broken
    kubechronicle repair unbind clusterrolebinding/everybody --group system:authenticated
    kubechronicle repair grant --user jane
    kubechronicle repair undo 4711

A webhook configuration stays, without its webhooks. A policy stays without its bindings, so it judges nothing. Each
change is an ordinary entry of the hash chain, with the user REPAIRER:LOGIN and the reason, and `undo` writes the state
before it. No admission, no authorization and no server is needed; running servers apply the change as any other.

Exit codes: 0 done; 1 there is nothing to do; 2 the operator can fix it.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from getpass import getuser
from typing import Any, Final
from uuid import uuid4

import orjson
import trio

from kubechronicle.actors.writing.targets import Target, new_object, new_uid
from kubechronicle.api.meta.encoding import encode_stored
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.encryption.encrypted_log import EncryptedLog
from kubechronicle.eventlog.errors import LogError, TransformError
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.locks import shared_appends
from kubechronicle.eventlog.postgres.rows import storable
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Rejected, Transaction, Who
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.server.encryption.chains import encryption_plan
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.version import program_version

REPAIRER: Final = "system:kubechronicle-repair"
DONE, NOTHING = 0, 1
PAGE: Final = 500  # objects read at once
ADMISSION, RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
WEBHOOKS: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
POLICIES: Final = {
    "validatingadmissionpolicies": "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies": "mutatingadmissionpolicybindings",
}
BINDINGS: Final = ("clusterrolebindings", "rolebindings")


def _kinds() -> dict[str, ResourceType]:
    """Return the kinds that may be repaired, by plural."""
    plurals = dict.fromkeys((*WEBHOOKS, *POLICIES, *POLICIES.values()), ADMISSION) | dict.fromkeys(BINDINGS, RBAC)
    found = {plural: known_registry().storage(f"{plural}.{group}") for plural, group in plurals.items()}
    return {plural: rt for plural, rt in found.items() if rt is not None}


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One change. ``held``: the record that it replaces; None: there is none. ``new``: None: it is deleted."""

    rt: ResourceType
    key: Key
    held: Record | None
    new: Object | None
    text: str

    def change(self) -> Change:
        obj = self.new
        if obj is None:
            assert self.held is not None
            obj = orjson.loads(self.held.body)
            operation = Operation.DELETE
        else:
            operation = Operation.UPDATE if self.held is not None else Operation.CREATE
        return Change(
            key=self.key,
            uid=obj["metadata"]["uid"],
            expected=self.held.revision if self.held is not None else 0,
            operation=operation,
            body=encode_stored(obj),
        )


async def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. Raise OperatorError."""
    for value in (getattr(arguments, name, "") for name in ("object", "user", "group", "serviceaccount", "namespace")):
        if storable(value) != value:
            raise OperatorError(f"{value!a} is not UTF-8")
    async with _opened(settings) as repair:
        try:  # within the block: the nursery would put the error into a group
            if arguments.action == "list":
                return await repair.show(deleted=arguments.deleted)
            steps = await _PLANS[arguments.action](repair, arguments)
            return await repair.commit(steps, arguments)
        except TransformError as error:
            raise OperatorError(f"{error}; give the server's --encryption-provider-config") from None
        except LogError as error:
            raise OperatorError(f"nothing was changed: {error}") from None


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Repair]:
    encryption = Encryption(encryption_plan(settings))
    async with (
        maintenance_database(settings) as url,
        open_postgres_log(url, instance="repair") as stored,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(encryption.run)
        yield Repair(encryption.over(stored), url)
        nursery.cancel_scope.cancel()


class Repair:
    """``url``: of the database."""

    def __init__(self, log: EncryptedLog, url: str) -> None:
        self.log = log
        self.kinds = _kinds()
        self._url = url

    # -- reading ------------------------------------------------------------------------------------------------------

    async def objects(self, plural: str) -> list[tuple[Record, Object]]:
        """Return all present objects of a kind."""
        head, found, after = (await self.log.head()).revision, list[tuple[Record, Object]](), None
        while True:
            page = await self.log.list_at(self.kinds[plural].resource, revision=head, after=after, limit=PAGE)
            found += [(record, _readable(record)) for record in page]
            if page.is_last(PAGE):
                return found
            after = (page[-1].key.namespace, page[-1].key.name)

    async def get(self, key: Key) -> Record | None:
        record = await self.log.get_at(key, revision=(await self.log.head()).revision)
        return record if record is not None and record.operation is not Operation.DELETE else None

    def key(self, text: str, namespace: str, allowed: tuple[str, ...]) -> tuple[str, Key]:
        """Return the plural and the key of TYPE/NAME."""
        kind, slash, name = text.partition("/")
        if not (kind and slash and name):
            raise OperatorError(f"{text!r} is no TYPE/NAME; `kubechronicle repair list` prints those there are")
        for plural, rt in self.kinds.items():
            names = (plural, rt.resource, rt.singular, rt.kind, *rt.short_names)
            if kind.lower() in (each.lower() for each in names):
                if plural not in allowed:
                    break
                if bool(namespace) != rt.namespaced:
                    raise OperatorError(
                        f"{plural} are in {'a namespace: give -n' if rt.namespaced else 'no namespace'}"
                    )
                return plural, Key(rt.resource, namespace, name)
        raise OperatorError(f"{kind!r} is none of {', '.join(allowed)}")

    async def existing(self, key: Key) -> tuple[Record, Object]:
        record = await self.get(key)
        if record is None:
            raise OperatorError(f"there is no {key.resource} {key.name}")
        return record, _readable(record)

    async def show(self, *, deleted: bool) -> int:
        """Print what may keep people out, and who has which role; ``deleted``: instead, what may be undone."""
        out = terminal.stdout()
        for plural, rt in self.kinds.items():
            if deleted:
                async for record in self._deleted(rt):
                    out.line(f"{_name(plural, record.key)}  deleted: kubechronicle repair undo {record.revision}")
                continue
            for record, obj in await self.objects(plural):
                out.line(f"{_name(plural, record.key)}  {'; '.join(_details(plural, obj))}")
        return DONE

    async def _deleted(self, rt: ResourceType) -> AsyncIterator[Record]:
        """Yield the last record of each object that is gone, as far as history reaches."""
        head, last = await self.log.head(), dict[Key, Record]()
        after = head.compacted
        while True:
            chunk = await self.log.read_resource(rt.resource, after=after, until=head.revision, limit=PAGE)
            for record, _ in chunk:
                last[record.key] = record
                after = record.revision
            if chunk.is_last(PAGE):
                break
        for record in last.values():
            if record.operation is Operation.DELETE:
                yield record

    # -- writing ------------------------------------------------------------------------------------------------------

    async def commit(self, steps: list[RepairStep], arguments: argparse.Namespace) -> int:
        """Print the steps and commit them together, unless they are only to be shown."""
        out = terminal.stdout()
        if not steps:
            out.line("there is nothing to do")
            return NOTHING
        if arguments.dry_run:
            for step in steps:
                out.line(f"would {step.text}")
            return DONE
        login = _login()
        reason = " ".join(arguments.reason.split()) or f"kubechronicle repair {arguments.action}"
        who = Who(
            user=f"{REPAIRER}:{login}",
            verb="repair",
            user_agent=f"kubechronicle/{program_version()}",
            field_manager="kubechronicle-repair",
            reason=storable(reason)[:1024],
        )
        changes = tuple(step.change() for step in steps)
        batch = Batch(id=uuid4(), transactions=(Transaction(changes=changes, who=who),))
        async with open_session(self._url, application="kubechronicle repair") as session, shared_appends(session):
            result = await self.log.append(batch)
        (outcome,) = result.outcomes
        if isinstance(outcome, Rejected):
            raise OperatorError(f"{outcome.key.name} was changed meanwhile; try again")
        for step, record in zip(steps, outcome, strict=True):
            out.line(f"revision {record.revision}: {step.text}; undo: kubechronicle repair undo {record.revision}")
        return DONE


def _login() -> str:
    try:
        return storable(getuser())
    except (KeyError, OSError):
        return "unknown"


def _readable(record: Record) -> Object:
    if record.problem:
        raise TransformError(f"{record.key.resource} {record.key.name}: {record.problem}")
    obj: Object = orjson.loads(record.body)
    return obj


def _name(plural: str, key: Key) -> str:
    return f"{plural}/{key.name}" + (f" -n {key.namespace}" if key.namespace else "")


def _updated(obj: Object, **fields: Any) -> Object:
    """Return the object with other fields, as a change of its specification."""
    metadata = dict(obj["metadata"])
    if "generation" in metadata:
        metadata["generation"] += 1
    return {**obj, "metadata": metadata, **fields}


# -- details of a list ------------------------------------------------------------------------------------------------


def _details(plural: str, obj: Object) -> Iterator[str]:
    if plural in WEBHOOKS:
        hooks = obj.get("webhooks") or []
        for hook in hooks:
            closed = "fails closed" if hook.get("failurePolicy", "Fail") == "Fail" else "fails open"
            yield f"{hook['name']} at {_server(hook.get('clientConfig') or {})}, {closed}"
        if not hooks:
            yield "no webhooks"
    elif plural in POLICIES:
        spec = obj["spec"]
        yield "fails closed" if spec.get("failurePolicy", "Fail") == "Fail" else "fails open"
    elif plural in BINDINGS:
        role = obj["roleRef"]
        subjects = [_subject(each) for each in obj.get("subjects") or ()]
        yield f"{role['kind']} {role['name']} to {', '.join(subjects) or 'nobody'}"
    else:
        spec = obj["spec"]
        yield f"binds {spec.get('policyName', '')}"
        yield from (", ".join(spec[name]) for name in ("validationActions",) if spec.get(name))


def _server(config: Mapping[str, Any]) -> str:
    service = config.get("service")
    return f"service {service['namespace']}/{service['name']}" if service else config.get("url", "nowhere")


def _subject(subject: Mapping[str, Any]) -> str:
    where = f"{subject['namespace']}/" if subject.get("namespace") else ""
    return f"{subject['kind']} {where}{subject['name']}"


# -- the plans of the actions -----------------------------------------------------------------------------------------


async def _disable(repair: Repair, arguments: argparse.Namespace) -> list[RepairStep]:
    allowed = (*WEBHOOKS, *POLICIES, *POLICIES.values())
    plural, key = repair.key(arguments.object, "", allowed)
    record, obj = await repair.existing(key)
    if plural in WEBHOOKS:
        if not obj.get("webhooks"):
            return []
        count = len(obj["webhooks"])
        text = f"take {terminal.counted(count, 'webhook')} out of {_name(plural, key)}"
        return [RepairStep(repair.kinds[plural], key, record, _updated(obj, webhooks=[]), text)]
    if plural in POLICIES:
        binding = POLICIES[plural]
        bound = [
            (rec, each) for rec, each in await repair.objects(binding) if each["spec"].get("policyName") == key.name
        ]
        return [_deletion(repair, binding, rec) for rec, _ in bound]
    return [_deletion(repair, plural, record)]


def _deletion(repair: Repair, plural: str, record: Record) -> RepairStep:
    return RepairStep(repair.kinds[plural], record.key, record, None, f"delete {_name(plural, record.key)}")


async def _unbind(repair: Repair, arguments: argparse.Namespace) -> list[RepairStep]:
    plural, key = repair.key(arguments.object, arguments.namespace, BINDINGS)
    record, obj = await repair.existing(key)
    unwanted = list(_subjects(arguments))
    if not unwanted:
        return [_deletion(repair, plural, record)]
    held = obj.get("subjects") or []
    left = [each for each in held if _subject(each) not in unwanted]
    if len(left) == len(held):
        return []
    text = f"take {', '.join(unwanted)} out of {_name(plural, key)}"
    return [RepairStep(repair.kinds[plural], key, record, _updated(obj, subjects=left), text)]


def _subjects(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the subjects that the flags name, as `_subject` shows them."""
    if arguments.user:
        yield f"User {arguments.user}"
    if arguments.group:
        yield f"Group {arguments.group}"
    if arguments.serviceaccount:
        if arguments.serviceaccount.count("/") != 1:
            raise OperatorError(f"--serviceaccount: must be NAMESPACE/NAME, got {arguments.serviceaccount!r}")
        yield f"ServiceAccount {arguments.serviceaccount}"


async def _grant(repair: Repair, arguments: argparse.Namespace) -> list[RepairStep]:
    if bool(arguments.user) == bool(arguments.group):
        raise OperatorError("name the administrator: --user NAME or --group NAME")
    kind, who = ("User", arguments.user) if arguments.user else ("Group", arguments.group)
    rt = repair.kinds["clusterrolebindings"]
    name = f"repair:cluster-admin:{kind.lower()}:{who.replace('/', ':').replace('%', ':')}"
    key = Key(rt.resource, "", name)
    if await repair.get(key) is not None:
        return []
    body = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": RBAC, "kind": kind, "name": who}],
    }
    made = new_object(Target(rt=rt, name=name, manager="kubechronicle-repair"), body)
    return [RepairStep(rt, key, None, made, f"make {kind} {who} cluster-admin by clusterrolebindings/{name}")]


async def _undo(repair: Repair, arguments: argparse.Namespace) -> list[RepairStep]:
    revision, head = arguments.revision, await repair.log.head()
    if not 0 < revision <= head.revision:
        raise OperatorError(f"there is no revision {revision}; the newest is {head.revision}")
    (undone,) = await repair.log.read(after=revision - 1, limit=1)
    plural = next((name for name, rt in repair.kinds.items() if rt.resource == undone.key.resource), None)
    if plural is None:
        raise OperatorError(f"revision {revision} changed {undone.key.resource}, which repair does not change")
    now = await repair.log.get_at(undone.key, revision=head.revision)
    before = await repair.log.get_at(undone.key, revision=revision - 1)
    present = now if now is not None and now.operation is not Operation.DELETE else None
    if present is not None and present.revision != revision:
        raise OperatorError(f"{_name(plural, undone.key)} has changed since, at revision {present.revision}")
    if undone.operation is Operation.DELETE and present is None and before is not None:
        obj = _readable(before)
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        obj["metadata"] = {**obj["metadata"], "uid": new_uid(), "creationTimestamp": stamp}
        return [RepairStep(repair.kinds[plural], undone.key, None, obj, f"create {_name(plural, undone.key)} again")]
    if present is None:
        return []
    if before is None or before.operation is Operation.DELETE:
        return [_deletion(repair, plural, present)]
    text = f"give {_name(plural, undone.key)} its state of revision {before.revision} again"
    return [RepairStep(repair.kinds[plural], undone.key, present, _updated(_readable(before)), text)]


_PLANS: Final[Mapping[str, Callable[[Repair, argparse.Namespace], Any]]] = {
    "disable": _disable,
    "unbind": _unbind,
    "grant": _grant,
    "undo": _undo,
}
