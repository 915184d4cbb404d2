"""Erasures: data removed from history as required by law, and the proof of the rest. Sans-IO.

An erasure removes the contents of rows (``contents``), contents and name (``object``), or the user (``who``), who may
also be named in the contents of a Tag. A row keeps its revision, uid and time, its digest and its hash, so that the
chain still links; but the digest is that of the removed data. So the log itself records an erasure: as the creation of
an object with number and reason, which is chained and covered by checkpoints as every change. And each erased row has a
tombstone:

    kubechronicle.erased     (revision, erasure, was, remains)     digests of the row before and after
    entry of the log         Erasure.spec.digest = sha256(int8 revision || was || remains, for each in order)

    digest(r) = was of the first erasure of r; its remains = was of the second, …; the last remains: of the present row

Contents cannot be removed without such an entry, nor an entry without breaking the chain; and the rest of an erased row
cannot be edited undetected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import orjson

from kubechronicle.eventlog.records import ERASED_BODY

RESOURCE: Final = "erasures.history.kubechronicle.dev"
"""The resource of the objects that record erasures. They are served only as revisions and in SQL."""
API_VERSION: Final = "history.kubechronicle.dev/v1"
KIND: Final = "Erasure"

ERASED_USER: Final = "<erased>"
"""Replaces the name of an erased user."""

TAGS: Final = "tags.history.kubechronicle.dev"
"""The resource of Tags. Their ``spec.user`` is set by the server, and nobody can edit it."""

MAX_RANGES: Final = 20
MAX_SAMPLES: Final = 2

ErasureScope: TypeAlias = Literal["contents", "object", "who"]
ErasedPart: TypeAlias = Literal["contents", "object", "who", "tag", "who and tag"]
"""The part of one row that is erased. ``tag``: the user whom a Tag names, of a change by somebody else."""
PARTS: Final[Mapping[ErasureScope, tuple[ErasedPart, ...]]] = {
    "contents": ("contents",),
    "object": ("object",),
    "who": ("who", "tag", "who and tag"),
}
Columns: TypeAlias = Mapping[str, Any]  # of a row of the log, by name: those of its digest


class Tombstone(NamedTuple):
    """One row and one erasure. ``was``, ``remains``: the digests of the row before and after the erasure."""

    revision: int
    erasure: str
    was: bytes
    remains: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """One erasure.

    ``resource``, ``namespace``, ``name``, ``uid``: the object; empty for ``who``.
    ``resources``: the resources with erased contents.
    ``by``: the author, as stated; ``os_user``, ``role``: the operating system user and the database role.
    ``count``: number of erased rows; ``first``, ``last``: their first and last revision.
    ``digest``: of all tombstones of the erasure.
    ``revision``, ``erased_at``: of the entry in the log.
    """

    id: str
    scope: ErasureScope
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resources: tuple[str, ...] = ()
    reason: str
    by: str
    os_user: str
    role: str
    count: int
    first: int
    last: int
    digest: bytes
    revision: int = 0
    erased_at: datetime | None = None

    def body(self, created: datetime) -> bytes:
        """Return the object of the entry, as JSON."""
        about = {"resource": self.resource, "namespace": self.namespace, "name": self.name, "uid": self.uid}
        spec = {
            "what": self.scope,
            "object": {name: value for name, value in about.items() if value},
            "resources": list(self.resources),
            "reason": self.reason,
            "by": self.by,
            "osUser": self.os_user,
            "databaseRole": self.role,
            "revisions": self.count,
            "firstRevision": self.first,
            "lastRevision": self.last,
            "digest": self.digest.hex(),
        }
        metadata = {"name": self.id, "uid": self.id, "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})

    def summary(self) -> str:
        """Return the erased data in a few words, without a user's name."""
        if self.scope == "who":
            return "the user"
        if self.scope == "object":
            return f"contents and name of an object of {self.resource}, now {self.name}"
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"contents of {self.resource} {where}" + (f" ({self.uid})" if self.uid else "")


def parse(body: bytes | str, *, revision: int = 0, erased_at: datetime | None = None) -> Erasure:
    """Return the erasure in an entry's object. ValueError: it is not an erasure."""
    try:
        entry = orjson.loads(body)
        spec = entry["spec"]
        about = spec["object"]
        if entry["kind"] != KIND or spec["what"] not in get_args(ErasureScope):
            raise ValueError("it is of another kind")
        return Erasure(
            id=str(entry["metadata"]["name"]),
            scope=spec["what"],
            resource=about.get("resource", ""),
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            uid=about.get("uid", ""),
            resources=tuple(map(str, spec["resources"])),
            reason=str(spec["reason"]),
            by=str(spec["by"]),
            os_user=str(spec["osUser"]),
            role=str(spec["databaseRole"]),
            count=int(spec["revisions"]),
            first=int(spec["firstRevision"]),
            last=int(spec["lastRevision"]),
            digest=bytes.fromhex(spec["digest"]),
            revision=revision,
            erased_at=erased_at,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no erasure: {error}") from None


# The rest of a row


def erased_columns(columns: Columns, part: ErasedPart, erasure: str) -> dict[str, Any]:
    """Return the columns of the row after the erasure."""
    if part == "contents":
        return _erase_contents(columns, erasure)
    if part == "object":
        return _erase_contents({**columns, "name": pseudonym(erasure), "request_uri": ""}, erasure)
    erased = _erase_who(columns) if part != "tag" else dict(columns)
    return _erase_tag(erased) if part != "who" else erased


def part_of(columns: Columns, user: str) -> ErasedPart | None:
    """Return the part of a row that names the user."""
    who = user in (columns["user_name"], columns["impersonator"]) and columns["user_name"] != ERASED_USER
    if tagged_by(columns) == user:
        return "who and tag" if who else "tag"
    return "who" if who else None


def tagged_by(columns: Columns) -> str:
    """Return the user whom a Tag names; "" for another object, and for an encrypted one."""
    if columns["resource"] != TAGS:
        return ""
    return str((orjson.loads(columns["object"]).get("spec") or {}).get("user") or "")


def pseudonym(erasure: str) -> str:
    """Return the name that replaces an object's name in all its rows."""
    return f"erased-{erasure}"


def is_tombstone(body: str) -> bool:
    return body.startswith(ERASED_BODY.decode())


class Remains(NamedTuple):
    """The rest of an erased row.

    ``contents``: the erasure named in the tombstone; "" if the contents are there, or not as an erasure leaves them.
    ``who``: True if the user is erased, of the change or of a Tag.
    ``uri``: of the request.
    """

    contents: str
    who: bool
    uri: str
    resource: str
    namespace: str
    name: str
    uid: str


def remains_of(columns: Columns) -> Remains | None:
    """Return the rest of an erased row; None: no erasure leaves such a row."""
    contents = ""
    if is_tombstone(columns["object"]):
        try:
            named = str(orjson.loads(columns["object"])["erased"])
            if _erase_contents(columns, named) == columns:
                contents = named
        except (AttributeError, TypeError, ValueError):
            contents = ""
    who = columns["user_name"] == ERASED_USER and _erase_who(columns) == columns
    if columns["resource"] == TAGS:
        who = who or bool(contents) or (tagged_by(columns) == ERASED_USER and _erase_tag(columns) == columns)
    if not contents and not who:
        return None
    about = (columns[name] for name in ("request_uri", "resource", "namespace", "name", "uid"))
    return Remains(contents, who, *about)


def _erase_contents(columns: Columns, erasure: str) -> dict[str, Any]:
    """Return the columns without contents.

    Kind, name, namespace and uid stay, so that clients can drop the object. The path of the request stays too, but not
    its query, which may have labels, nor the reason of the change, which is free text.
    """
    obj = orjson.loads(columns["object"])
    about = {"name": columns["name"], "namespace": columns["namespace"], "uid": columns["uid"]}
    tombstone = {
        "erased": erasure,
        "apiVersion": str(obj.get("apiVersion", "")),
        "kind": str(obj.get("kind", "")),
        "metadata": {name: value for name, value in about.items() if value},
    }
    return {
        **columns,
        "object": orjson.dumps(tombstone).decode(),
        "request_uri": columns["request_uri"].partition("?")[0],
        "reason": "",
    }


def _erase_who(columns: Columns) -> dict[str, Any]:
    """Return the columns without user. The audit id is erased too: in other logs it leads to the user. The reason is
    the user's own text."""
    texts = dict.fromkeys(("user_uid", "impersonator", "user_agent", "source_address", "audit_id", "reason"), "")
    return {**columns, **texts, "user_name": ERASED_USER, "user_groups": [], "user_extra": None}


def _erase_tag(columns: Columns) -> dict[str, Any]:
    """Return the columns of a Tag without its user, and without the reason, which is the user's own text."""
    if not tagged_by(columns):
        return dict(columns)
    obj = orjson.loads(columns["object"])
    spec = {name: value for name, value in obj["spec"].items() if name != "reason"}
    return {**columns, "object": orjson.dumps({**obj, "spec": {**spec, "user": ERASED_USER}}).decode()}


# Proof


def digest_of(tombstones: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the digest of (revision, was, remains) triples in revision order."""
    digest = sha256()
    for revision, was, remains in tombstones:
        digest.update(_encoded(revision, was, remains))
    return digest.digest()


def _encoded(revision: int, was: bytes, remains: bytes) -> bytes:
    return revision.to_bytes(8, "big") + was + remains


def digest_history(digest: bytes, tombstones: Sequence[Tombstone]) -> list[bytes] | None:
    """Return all digests of a row, from the appended one on; None: the tombstones belong to another row."""
    digests, unused = [digest], list(tombstones)
    while unused:
        following = next((each for each in unused if each.was == digests[-1]), None)
        if following is None:
            return None
        unused.remove(following)
        digests.append(following.remains)
    return digests


@dataclass(slots=True)
class _TombstoneSummary:
    """The tombstones of one erasure, added in revision order."""

    digest: Any = field(default_factory=sha256)
    count: int = 0
    first: int = 0
    last: int = 0
    unlike: dict[ErasureScope, int] = field(
        default_factory=dict
    )  # by scope: first revision with a row that such an erasure does not leave
    objects: set[tuple[str, str, str]] = field(default_factory=set)  # a few keys; "" for an erased name
    uids: set[str] = field(default_factory=set)  # a few
    ranges: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class ErasureCheck:
    """Compares tombstones with rows, then with the entries of the log. Memory: a summary per erasure."""

    entries: dict[str, Erasure] = field(default_factory=dict)
    _summaries: dict[str, _TombstoneSummary] = field(default_factory=dict)

    def add_entry(self, erasure: Erasure) -> str:
        """Add an entry of the log; return its problem, or ""."""
        if self.entries.setdefault(erasure.id, erasure).revision != erasure.revision:
            return f"it records an erasure that revision {self.entries[erasure.id].revision} records already"
        return ""

    def add_row(self, digest: bytes, tombstones: Sequence[Tombstone]) -> tuple[list[bytes], str]:
        """Add a row; return all its digests, and the problem of its tombstones, or "".

        The last digest must be that of the present row.
        """
        for each in tombstones:
            summary = self._summaries.setdefault(each.erasure, _TombstoneSummary())
            summary.digest.update(_encoded(each.revision, each.was, each.remains))
            summary.count += 1
            summary.first, summary.last = summary.first or each.revision, each.revision
            if summary.ranges and summary.ranges[-1][1] == each.revision - 1:
                summary.ranges[-1][1] = each.revision
            elif len(summary.ranges) <= MAX_RANGES:
                summary.ranges.append([each.revision, each.revision])
        digests = digest_history(digest, tombstones)
        if digests is None:
            return [digest], "it was erased, but its tombstone belongs to another row"
        return digests, ""

    def add_remains(self, revision: int, remains: Remains | None, tombstones: Sequence[Tombstone]) -> None:
        """Add the rest of an erased row. Notes an edit that poses as an erasure: no erasure leaves such a row."""
        ids = {each.erasure for each in tombstones}
        unnamed = remains is not None and remains.name in map(pseudonym, ids)
        unlike: list[ErasureScope] = []
        if remains is None or not remains.who:
            unlike.append("who")
        if remains is None or remains.contents not in ids:
            unlike += ("contents", "object")
        elif not unnamed or remains.uri:
            unlike.append("object")
        for each in tombstones:
            summary = self._summaries[each.erasure]
            for scope in unlike:
                summary.unlike.setdefault(scope, revision)
            if remains is not None and len(summary.objects) <= MAX_SAMPLES:
                summary.objects.add((remains.resource, remains.namespace, "" if unnamed else remains.name))
            if remains is not None and len(summary.uids) <= MAX_SAMPLES:
                summary.uids.add(remains.uid)

    def finish(self) -> tuple[int, str] | None:
        """Return (revision, problem) of the first erasure whose entry and tombstones differ; None: there is none."""
        problems: list[tuple[int, str]] = []
        for name, summary in self._summaries.items():
            entry = self.entries.get(name)
            if entry is None:
                problems.append((summary.first, "it was erased, but the log has no record of that erasure"))
            elif (summary.count, summary.digest.digest()) != (entry.count, entry.digest):
                problems.append((entry.revision, "the tombstones are not those of the erasure that it records"))
            elif (revision := summary.unlike.get(entry.scope)) is not None:
                problems.append((revision, "the row was edited: no erasure leaves such a row"))
            elif not _fits(entry, summary):
                problems.append((entry.revision, "it does not record the erasure that was made"))
        problems += [
            (entry.revision, "the tombstones of the erasure that it records are missing")
            for name, entry in self.entries.items()
            if name not in self._summaries
        ]
        return min(problems) if problems else None

    def ranges(self, erasure: str) -> str:
        """Return the revisions of an erasure as text: 4-7, 9, 12-20."""
        ranges = self._summaries[erasure].ranges
        texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:MAX_RANGES]]
        return ", ".join(texts) + (", …" if len(ranges) > MAX_RANGES else "")


def _fits(entry: Erasure, summary: _TombstoneSummary) -> bool:
    """Return whether the entry describes the erased rows correctly."""
    if (summary.first, summary.last) != (entry.first, entry.last) or summary.last >= entry.revision:
        return False
    if entry.scope == "who":
        return True
    about = (entry.resource, entry.namespace)
    objects = {(*about, ""), (*about, entry.name)}
    return summary.objects <= objects and (not entry.uid or summary.uids <= {entry.uid})
