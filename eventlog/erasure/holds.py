"""Holds: decides whether a legal hold covers what an erasure is to remove.

A hold covers objects by resource, namespace, name and label selector; a part that it leaves out covers any. An object
is a resource, namespace and name: a later object with the same name is the same. A selector covers an object, with all
of its history, if a revision in the database or in the archives that are read ever matched it. The labels are looked at
when something is to be erased, so objects that match later are covered, too. Nothing is missing then, because retention
keeps the whole history of the resource while the hold is in force (``move_marks``).

What cannot be judged is covered: encrypted revisions, a selector that cannot be read, archives that are not read, more
than MOST sets of labels or objects of archives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import orjson

from kubechronicle.eventlog.erasure import statements
from kubechronicle.eventlog.erasure.plan import ErasureRequest
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.postgres.session import PostgresSession, Row

Matcher = Callable[[Mapping[str, str]], bool]
SelectorReader = Callable[[str], Matcher]
"""Returns the matcher of a label selector. ValueError: it cannot be read."""
ObjectKey = tuple[str, str, str]
"""Resource, namespace and name."""
MOST: Final = 100_000
"""Different sets of labels that are compared with a selector, and objects of archives that are remembered: some 20 MB
each."""
ENCRYPTED: Final = "encrypted"


class UnderLegalHold(LogError):
    """A legal hold covers what is to be erased."""


class Holds:
    """The legal holds in force, as an erasure sees them. ``selector_of``: reads a hold's label selector."""

    def __init__(
        self, session: PostgresSession, request: ErasureRequest, selector_of: SelectorReader, *, archives_read: bool
    ) -> None:
        self._session = session
        self._request = request
        self._selector_of = selector_of
        self._archives_read = archives_read
        self._tables: Sequence[str] = ()
        self._rows: Sequence[Row] = ()
        self._archived_changes: set[ObjectKey] = set()  # objects of archives of which something is to be erased
        self._archived_matches: dict[ObjectKey, Row] = {}  # objects of archives that a selector covers, with its hold

    async def check(self, tables: Sequence[str]) -> None:
        """Refuse what a hold covers in the database. ``tables``: all tables with rows. UnderLegalHold.

        Cost of a selector: for each object to erase, one index range of the log.
        """
        self._tables, self._rows = tables, await self._session.fetch(statements.HOLDS)
        objects, arguments = self._objects()
        for row in self._rows:
            if await self._covers(row, objects, arguments):
                raise _held(row)
            if row["selector"] and not self._archives_read and await self._has_archives(objects, arguments, row):
                raise UnderLegalHold(
                    f"archives may show that the legal hold {row['hold']} covers it; give --history-archive DIR"
                )

    async def check_archived(self) -> None:
        """Refuse what a hold covers, after all archives passed ``checked``. UnderLegalHold."""
        objects, arguments = self._objects()
        found = self._archived_changes & self._archived_matches.keys()
        if self._archived_matches:
            places = [f"${len(arguments) + each}::text[]" for each in (1, 2, 3)]
            statement = (
                f"select distinct resource, namespace, name from ({objects}) c where (resource, namespace, name) in "
                f"(select * from unnest({', '.join(places)})) limit 1"
            )
            rows = await self._session.fetch(statement, *arguments, *_columns(self._archived_matches))
            found |= {(each[0], each[1], each[2]) for each in rows}
        for key in sorted(found):
            raise _held(self._archived_matches[key])
        for row in self._rows if self._archived_changes else ():
            if await self._covers(row, statements.THESE_OBJECTS, _columns(self._archived_changes)):
                raise _held(row)

    async def check_new(self) -> None:
        """Refuse if a hold began after ``check``. UnderLegalHold.

        The caller's transaction has appended, so none begins afterwards.
        """
        known = {row["revision"] for row in self._rows}
        for row in await self._session.fetch(statements.HOLDS):
            if row["revision"] not in known:
                raise UnderLegalHold(f"the legal hold {row['hold']} began meanwhile; repeat the command")

    def checked(self, archived: Iterator[ArchivedRow]) -> Iterator[ArchivedRow]:
        """Pass the rows of an archive on, and note objects for ``check_archived``. UnderLegalHold: too many."""
        request = self._request
        selectors = [(row, self._matcher(row["selector"])) for row in self._rows if row["selector"]]
        for archived_row in archived:
            columns = archived_row.columns
            key = (columns["resource"], columns["namespace"], columns["name"])
            if self._rows and request.part(columns) is not None:
                self._archived_changes.add(key)
            if request.scope == "who" or key == (request.resource, request.namespace, request.name):
                for row, matches in selectors:
                    is_new = key not in self._archived_matches and _in_scope(row, key)
                    if is_new and _text_matches(_labels_of(columns["object"]), matches):
                        self._archived_matches[key] = row
            if max(len(self._archived_changes), len(self._archived_matches)) > MOST:
                raise UnderLegalHold(f"archives have more than {MOST} objects that a legal hold may cover")
            yield archived_row

    def _objects(self) -> tuple[str, tuple[object, ...]]:
        """Return the statement for the objects that the erasure changes in the database, with its arguments."""
        request = self._request
        if request.scope != "who":
            return statements.THESE_OBJECTS, ([request.resource], [request.namespace], [request.name])
        condition, arguments = request.condition()
        return statements.changed_objects(self._tables, condition), (request.first, request.last, *arguments)

    async def _covers(self, row: Row, objects: str, arguments: Sequence[object]) -> bool:
        """Tell whether a hold covers one of some objects by what the database has."""
        scope, place = (row["resource"], row["namespace"], row["name"]), len(arguments) + 1
        if not row["selector"]:
            statement = f"{statements.objects_under_hold(objects, place)} limit 1"
            return bool(await self._session.fetch(statement, *arguments, *scope))
        statement = statements.labels_under_hold(objects, place, self._tables)
        found = await self._session.fetch(statement, *arguments, *scope, MOST + 1)
        matches = self._matcher(row["selector"])
        return len(found) > MOST or any(_text_matches(each["labels"], matches) for each in found)

    async def _has_archives(self, objects: str, arguments: Sequence[object], row: Row) -> bool:
        """Tell whether archives may have revisions of objects to erase that a hold names."""
        scope = (row["resource"], row["namespace"], row["name"])
        statement = f"{statements.objects_under_hold(objects, len(arguments) + 1)} limit 1"
        if not await self._session.fetch(statement, *arguments, *scope):
            return False
        return bool(await self._session.fetch(statements.ARCHIVED_FILES, 2**63 - 1, self._request.resource))

    def _matcher(self, selector: str) -> Matcher:
        try:
            return self._selector_of(selector)
        except ValueError:
            return lambda _: True


def _columns(keys: Iterable[ObjectKey]) -> tuple[list[str], list[str], list[str]]:
    """Return the resources, namespaces and names of objects."""
    each = list(keys)
    return [key[0] for key in each], [key[1] for key in each], [key[2] for key in each]


def _held(row: Row) -> UnderLegalHold:
    return UnderLegalHold(f"the legal hold {row['hold']} covers it ({row['reason']})")


def _in_scope(row: Row, key: ObjectKey) -> bool:
    resource, namespace, name = key
    return row["resource"] in ("*", resource) and row["namespace"] in ("", namespace) and row["name"] in ("", name)


def _text_matches(labels: str | None, matches: Matcher) -> bool:
    """Tell whether labels match. ``labels``: JSON; ENCRYPTED; None if the revision has no contents."""
    return labels is not None and (labels == ENCRYPTED or matches(orjson.loads(labels)))


def _labels_of(text: str) -> str | None:
    """Return the labels of a stored object, as ``statements.labels_under_hold`` does."""
    if text.startswith('{"encrypted":'):
        return ENCRYPTED
    if text.startswith('{"erased":'):
        return None
    return orjson.dumps(orjson.loads(text)["metadata"].get("labels") or {}).decode()
