"""Erasures: what is taken out of history by law, and how what is left is proved. Sans-IO.

An erasure takes the contents out of rows (``contents``), the contents and the name (``object``), or who asked for them
(``who``). A row keeps its revision, uid and time, its digest and its hash, so that the chain still links; but its
digest is of what is not there any more. So an erasure is told by the log itself, as the creation of an object that says
how much was erased and why, chained and covered by checkpoints as everything else; and each row it touched has a
tombstone:

    kubechronicle.erased     (revision, erasure, was, remains)     digests of the row before and after
    entry of the log         Erasure.spec.digest = sha256(int8 revision || was || remains, for each in order)

    digest(r) = was of the first erasure of r; its remains = was of the second, …; the last remains: of the row as it is

Nobody can take out contents without such an entry, nor an entry without breaking the chain, and what remains of an
erased row can't be edited either.
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
"""What the log calls the objects that tell of erasures. They are served to nobody, but in revisions and in SQL."""
API_VERSION: Final = "history.kubechronicle.dev/v1"
KIND: Final = "Erasure"

ERASED_USER: Final = "<erased>"
"""In the place of a user's name."""

RANGES_TOLD: Final = 20
FEW: Final = 2

What: TypeAlias = Literal["contents", "object", "who"]
Columns: TypeAlias = Mapping[str, Any]  # of a row of the log, by name: those of its digest


class Tombstone(NamedTuple):
    """Of one row and one erasure. ``was``, ``remains``: the row's digests before and after it."""

    revision: int
    erasure: str
    was: bytes
    remains: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """One erasure. ``id`` names it; ``resource`` to ``uid``: of which object (of ``who``: empty); ``by``: who says they
    did it, ``os_user`` and ``role`` as whom; ``resources``: those of which contents were erased; ``first`` to ``last``:
    revisions of ``count`` rows; ``digest``: of all its tombstones. ``revision`` and ``erased_at`` of the entry."""

    id: str
    what: What
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
        """The entry's object."""
        about = {"resource": self.resource, "namespace": self.namespace, "name": self.name, "uid": self.uid}
        spec = {
            "what": self.what,
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

    def told(self) -> str:
        """Of what, in a few words; a person is not named."""
        if self.what == "who":
            return "who asked"
        if self.what == "object":
            return f"contents and name of one of {self.resource}, now {self.name}"
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"contents of {self.resource} {where}" + (f" ({self.uid})" if self.uid else "")


def parse(body: bytes | str, *, revision: int = 0, erased_at: datetime | None = None) -> Erasure:
    """From an entry's object. ValueError: it is none."""
    try:
        told = orjson.loads(body)
        spec = told["spec"]
        about = spec["object"]
        if told["kind"] != KIND or spec["what"] not in get_args(What):
            raise ValueError("it is of another kind")
        return Erasure(
            id=str(told["metadata"]["name"]),
            what=spec["what"],
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


# What remains of a row


def without(columns: Columns, what: What, erasure: str) -> dict[str, Any]:
    """The row as an erasure leaves it."""
    if what == "who":
        return _without_who(columns)
    if what == "object":
        return _without_contents({**columns, "name": pseudonym(erasure), "request_uri": ""}, erasure)
    return _without_contents(columns, erasure)


def is_without(columns: Columns, what: What) -> bool:
    """Whether there is nothing of it left; that a name is left, which is asked by, goes without saying."""
    if what == "who":
        return bool(columns["user_name"] == ERASED_USER)
    return what == "contents" and is_tombstone(columns["object"])


def pseudonym(erasure: str) -> str:
    """In the place of an object's name, in all its rows."""
    return f"erased-{erasure}"


def is_tombstone(body: str) -> bool:
    return body.startswith(ERASED_BODY.decode())


class Left(NamedTuple):
    """What a row has that something was erased from. ``contents``: the erasure its object names, "" if it is there
    or not as erasures leave it; ``who``: whether nobody is told any more; ``uri``: of the request."""

    contents: str
    who: bool
    uri: str
    resource: str
    namespace: str
    name: str
    uid: str


def left_in(columns: Columns) -> Left | None:
    """None: it is not a row that an erasure has left."""
    contents = ""
    if is_tombstone(columns["object"]):
        try:
            named = str(orjson.loads(columns["object"])["erased"])
            if _without_contents(columns, named) == columns:
                contents = named
        except (AttributeError, TypeError, ValueError):
            contents = ""
    who = columns["user_name"] == ERASED_USER and _without_who(columns) == columns
    if not contents and not who:
        return None
    about = (columns[name] for name in ("request_uri", "resource", "namespace", "name", "uid"))
    return Left(contents, who, *about)


def _without_contents(columns: Columns, erasure: str) -> dict[str, Any]:
    """Kind, name, namespace and uid stay, by which clients drop what they hold; so does the path of the request,
    without its query, in which labels may be."""
    obj = orjson.loads(columns["object"])
    about = {"name": columns["name"], "namespace": columns["namespace"], "uid": columns["uid"]}
    left = {
        "erased": erasure,
        "apiVersion": str(obj.get("apiVersion", "")),
        "kind": str(obj.get("kind", "")),
        "metadata": {name: value for name, value in about.items() if value},
    }
    return {**columns, "object": orjson.dumps(left).decode(), "request_uri": columns["request_uri"].partition("?")[0]}


def _without_who(columns: Columns) -> dict[str, Any]:
    """The audit id goes too: elsewhere it leads to the name."""
    texts = dict.fromkeys(("user_uid", "impersonator", "user_agent", "source_address", "audit_id"), "")
    return {**columns, **texts, "user_name": ERASED_USER, "user_groups": [], "user_extra": None}


# Proof


def digest_of(tombstones: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Of (revision, was, remains), in the order of revisions."""
    told = sha256()
    for revision, was, remains in tombstones:
        told.update(_encoded(revision, was, remains))
    return told.digest()


def _encoded(revision: int, was: bytes, remains: bytes) -> bytes:
    return revision.to_bytes(8, "big") + was + remains


def states(digest: bytes, tombstones: Sequence[Tombstone]) -> list[bytes] | None:
    """The digests a row has had, beginning with the one it was appended with; None: the tombstones are not of it."""
    found, left = [digest], list(tombstones)
    while left:
        following = next((each for each in left if each.was == found[-1]), None)
        if following is None:
            return None
        left.remove(following)
        found.append(following.remains)
    return found


@dataclass(slots=True)
class _Told:
    """The tombstones of one erasure, as they come."""

    digest: Any = field(default_factory=sha256)
    count: int = 0
    first: int = 0
    last: int = 0
    unlike: dict[What, int] = field(default_factory=dict)  # first revision with a row such an erasure does not leave
    objects: set[tuple[str, str, str]] = field(default_factory=set)  # a few; "" for a name that was erased
    uids: set[str] = field(default_factory=set)  # likewise
    ranges: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class ErasureCheck:
    """Compares the tombstones with the rows, then with the entries of the log. One number per erasure is kept."""

    entries: dict[str, Erasure] = field(default_factory=dict)
    _told: dict[str, _Told] = field(default_factory=dict)

    def entry(self, erasure: Erasure) -> str:
        """What is wrong with it, if anything."""
        if self.entries.setdefault(erasure.id, erasure).revision != erasure.revision:
            return f"it tells of an erasure that revision {self.entries[erasure.id].revision} tells of"
        return ""

    def row(self, digest: bytes, tombstones: Sequence[Tombstone]) -> tuple[list[bytes], str]:
        """The digests the row of this digest has had, the last of which must be that of what is there now; and what is
        wrong with its tombstones."""
        for each in tombstones:
            told = self._told.setdefault(each.erasure, _Told())
            told.digest.update(_encoded(each.revision, each.was, each.remains))
            told.count += 1
            told.first, told.last = told.first or each.revision, each.revision
            if told.ranges and told.ranges[-1][1] == each.revision - 1:
                told.ranges[-1][1] = each.revision
            elif len(told.ranges) <= RANGES_TOLD:
                told.ranges.append([each.revision, each.revision])
        had = states(digest, tombstones)
        return (had, "") if had is not None else ([digest], "it was erased, but its tombstone is of another row")

    def left(self, revision: int, left: Left | None, tombstones: Sequence[Tombstone]) -> None:
        """What is there of an erased row. An erasure is told by whoever makes it, and could be told of a row that was
        edited, were it not for this: of what is there nothing may be made up."""
        names = {each.erasure for each in tombstones}
        unnamed = left is not None and left.name in map(pseudonym, names)
        unlike: list[What] = []
        if left is None or not left.who:
            unlike.append("who")
        if left is None or left.contents not in names:
            unlike += ("contents", "object")
        elif not unnamed or left.uri:
            unlike.append("object")
        for each in tombstones:
            told = self._told[each.erasure]
            for what in unlike:
                told.unlike.setdefault(what, revision)
            if left is not None and len(told.objects) <= FEW:
                told.objects.add((left.resource, left.namespace, "" if unnamed else left.name))
            if left is not None and len(told.uids) <= FEW:
                told.uids.add(left.uid)

    def finish(self) -> tuple[int, str] | None:
        """(revision, what is wrong): the first erasure of which the log and its tombstones tell different things."""
        wrong: list[tuple[int, str]] = []
        for name, told in self._told.items():
            entry = self.entries.get(name)
            if entry is None:
                wrong.append((told.first, "it was erased, but the log does not tell of that erasure"))
            elif (told.count, told.digest.digest()) != (entry.count, entry.digest):
                wrong.append((entry.revision, "the tombstones are not those of the erasure it tells of"))
            elif (revision := told.unlike.get(entry.what)) is not None:
                wrong.append((revision, "the row was edited: no erasure leaves that of it"))
            elif not _fits(entry, told):
                wrong.append((entry.revision, "it tells of another erasure than there was"))
        wrong += [
            (entry.revision, "the tombstones of the erasure it tells of are missing")
            for name, entry in self.entries.items()
            if name not in self._told
        ]
        return min(wrong) if wrong else None

    def ranges(self, erasure: str) -> str:
        """The revisions it erased: 4-7, 9, 12-20."""
        found = self._told[erasure].ranges
        texts = [str(first) if first == last else f"{first}-{last}" for first, last in found[:RANGES_TOLD]]
        return ", ".join(texts) + (", …" if len(found) > RANGES_TOLD else "")


def _fits(entry: Erasure, told: _Told) -> bool:
    """Whether what the entry says of its rows is so."""
    if (told.first, told.last) != (entry.first, entry.last) or told.last >= entry.revision:
        return False
    if entry.what == "who":
        return True
    about = (entry.resource, entry.namespace)
    objects = {(*about, ""), (*about, entry.name)}
    return told.objects <= objects and (not entry.uid or told.uids <= {entry.uid})
