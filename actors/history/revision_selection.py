"""Selectors of a revision list: the part that is a query of the log, and the part that needs the objects."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.reading.reads import Reads, Selection
from kubechronicle.api.errors import status
from kubechronicle.api.history.cells import HIDDEN, NOISE, NOISY_RESOURCES, SHOWN
from kubechronicle.api.history.differences import canonical
from kubechronicle.api.history.moments import epoch_of, parse_moment
from kubechronicle.api.history.positions import parse_position
from kubechronicle.api.history.revisions import kinds_named, resources_named
from kubechronicle.api.history.suggestions import nearest_name
from kubechronicle.api.history.tags import RESOURCE as TAGS
from kubechronicle.api.history.tags import tag_named, unknown
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.selectors.field_selectors import FieldTerm
from kubechronicle.api.selectors.selectable_fields import BOUNDS, CAUSE, KIND_FIELDS, REASON, TEXT_FIELDS
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text
from kubechronicle.eventlog.records import Operation

MAX_TERMS: Final = 100
"""Terms of a field selector. The log evaluates each on every change, and a bound of time costs it a query."""
LONGEST_REVISION: Final = 18
"""Digits of a number that may be a revision."""
NAMING: Final = frozenset({"metadata.name", "revision.from", "revision.after", "revision.to"})
"""Fields that name revisions."""

TaggedRevision = Callable[[str], Awaitable[int]]
"""Return the revision of a tag, by its name. StatusError 400: there is no such tag."""


class RevisionBounds(Protocol):
    """The bounds of selections as revisions of one log."""

    async def at(self, when: datetime | timedelta) -> int:
        """Return the newest revision at a time: 0 before the history, the current revision for the future."""
        ...

    async def reached(self, position: int) -> int:
        """Return the newest revision at a position (api/history/positions.py): of another log, at its time."""
        ...

    def holds(self, revision: int) -> bool:
        """Tell whether a number is one of this log."""
        ...


DeletedTypes = Callable[[], Awaitable[Sequence[ResourceType]]]
"""Return the types of custom resources that were deleted within the retained history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionSelection:
    """A selection of revisions.

    ``query``: the part of the selectors that the log evaluates.
    ``selection``: the selectors as requested.
    ``fields``: the ``changed`` terms: fields that the change must concern, or must not.
    ``reasons``: the ``reason`` terms: texts that its reason must have, or must not.
    ``is_empty``: no revision can match.
    """

    query: ChangeQuery
    selection: Selection
    fields: tuple[FieldTerm, ...] = ()
    reasons: tuple[FieldTerm, ...] = ()
    is_empty: bool = False

    @property
    def needs_objects(self) -> bool:
        """True if labels, changed fields or reasons are selected: an annotation of the object may be the reason."""
        return self.selection.labels is not None or bool(self.fields) or bool(self.reasons)


async def select_revisions(
    rt: ResourceType,
    selection: Selection,
    registry: Registry,
    bounds: RevisionBounds,
    deleted: DeletedTypes,
    tagged: TaggedRevision,
) -> RevisionSelection:
    """Split a list's selectors. ``deleted``: returns the types that have existed. StatusError 400."""
    terms = _Terms()
    count = len(selection.fields.terms) if selection.fields is not None else 0
    if count > MAX_TERMS:
        raise status.bad_request(f"a field selector of revisions has at most {MAX_TERMS} terms, not {count}")
    for term in selection.fields.terms if selection.fields is not None else ():
        if term.field in BOUNDS or term.field == "metadata.name":
            await _add_bound(terms, term, bounds, tagged)
        elif term.field in KIND_FIELDS:
            # Objects of a deleted definition are still in history.
            types = await deleted()
            named = resources_named(registry, types, term.field, term.value)
            if term.equal and not named:
                raise status.bad_request(_unknown(term, kinds_named(registry, types, term.field)))
            terms.add_kind(term, named)
        elif term.field == NOISE:
            terms.add_noise(term)
        else:
            terms.add(term)
    query = ChangeQuery(
        after=terms.after,
        until=terms.until,
        namespaced=rt.namespaced,
        namespace=selection.namespace,
        resources=tuple(sorted(terms.resources)) if terms.resources is not None else (),
        not_resources=tuple(sorted({NODE_PORTS, *terms.not_resources})),
        operations=tuple(sorted(terms.operations)) if len(terms.operations) < len(Operation) else (),
        texts=tuple(terms.texts),
        causes=tuple(terms.causes or ()),
        reason=next((term.value for term in terms.reasons if term.equal), ""),
    )
    is_empty = terms.resources == frozenset() or terms.causes == frozenset() or not terms.operations
    is_empty = is_empty or terms.after >= terms.until
    fields, reasons = tuple(terms.fields), tuple(terms.reasons)
    return RevisionSelection(query=query, selection=selection, fields=fields, reasons=reasons, is_empty=is_empty)


def _unknown(term: FieldTerm, known: Iterable[str]) -> str:
    nearest = nearest_name(term.value, known)
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"{term.field}={term.value}: there is no such kind, nor was there in the history that is kept{hint}"


async def _add_bound(terms: _Terms, term: FieldTerm, bounds: RevisionBounds, tagged: TaggedRevision) -> None:
    """Narrow the range of revisions. StatusError 400."""
    if not term.equal:
        raise status.bad_request(f"{term.field}!={term.value}: {term.field} takes = only")
    name = term.field
    if name.startswith("time."):
        number, until = await _time_bound(name, term.value, bounds, tagged)
    else:
        number, until = _position_named(name, term.value), None
    if name == "metadata.name":
        terms.narrow(number, number if bounds.holds(number) else 0)
    elif name.endswith(".to"):
        terms.narrow(0, await bounds.reached(number) if until is None else until)
    elif name == "revision.after" or until is not None:
        terms.narrow((await bounds.reached(number) if until is None else until) + 1, math.inf)
    elif bounds.holds(number):
        terms.narrow(number, math.inf)
    else:
        terms.narrow(await bounds.reached(number - 1) + 1, math.inf)


async def _time_bound(name: str, text: str, bounds: RevisionBounds, tagged: TaggedRevision) -> tuple[int, int | None]:
    """Return the revision that a bound of time names; or 0, and the newest one at a time or tag. StatusError 400."""
    try:
        tag = tag_named(text)
        when = None if tag else parse_moment(text, now=datetime.now(UTC))
    except ValueError as error:
        raise status.bad_request(f"{name}: {error}") from None
    if when is None:
        return 0, await bounds.reached(await tagged(tag))
    if isinstance(when, int):
        when = epoch_of(when) or when
    return (when, None) if isinstance(when, int) else (0, await bounds.at(when))


def _position_named(name: str, text: str) -> int:
    """Return the number of a bound. StatusError 400."""
    number = parse_position(text) if name in ("revision.after", "revision.to") else None
    if number is None and not _is_revision(text):
        raise status.bad_request(f"{name}={text}: must be a revision, such as 12345")
    return int(text) if number is None else number


def revisions_named(selection: Selection) -> list[tuple[str, int]]:
    """Return the bounds of a selection that are single revisions. Terms that do not parse are rejected elsewhere."""
    terms = selection.fields.terms if selection.fields is not None else ()
    return [(term.field, int(term.value)) for term in terms if term.field in NAMING and _is_revision(term.value)]


def _is_revision(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= LONGEST_REVISION


class _Terms:
    """The terms of a field selector, combined."""

    def __init__(self) -> None:
        self.after = 0
        self.until = 2**62
        self.resources: frozenset[str] | None = None
        self.not_resources: set[str] = set()
        self.operations: set[Operation] = set(Operation)
        self.texts: list[tuple[str, Text]] = []
        self.fields: list[FieldTerm] = []
        self.reasons: list[FieldTerm] = []
        self.causes: frozenset[int] | None = None

    def narrow(self, first: float, last: float) -> None:
        """Restrict the revisions to ``first`` to ``last``."""
        self.after = max(self.after, int(first) - 1)
        self.until = self.until if last == math.inf else min(self.until, int(last))

    def add_kind(self, term: FieldTerm, named: frozenset[str]) -> None:
        """Add a term about kinds. ``named``: the resources that it names."""
        if not term.equal:
            self.not_resources |= named
        else:
            self.resources = named if self.resources is None else self.resources & named

    def add_noise(self, term: FieldTerm) -> None:
        """Leave out the noisy resources (api/history/cells.py), or not. StatusError 400."""
        if term.value not in (HIDDEN, SHOWN) or not term.equal:
            raise status.bad_request(f"{NOISE}={term.value}: must be {NOISE}={HIDDEN} or {NOISE}={SHOWN}")
        if term.value == HIDDEN:
            self.not_resources |= set(NOISY_RESOURCES)

    def add(self, term: FieldTerm) -> None:
        """Add a term that is no bound and about no kind. StatusError 400."""
        if term.field == "changed":
            try:
                self.fields.append(FieldTerm(term.field, term.equal, canonical(term.value)))
            except ValueError as error:
                raise status.bad_request(f"changed: {error}") from None
        elif term.field == CAUSE:
            if not term.equal or not _is_revision(term.value):
                raise status.bad_request(
                    f"cause={term.value}: must be a revision, such as 12345, and cause takes = only"
                )
            self.causes = frozenset((int(term.value),)) if self.causes is None else frozenset()
        elif term.field == REASON:
            self.reasons.append(term)
        elif term.field == "operation":
            named = {operation for operation in Operation if operation.name.lower() == term.value.lower()}
            if not named:
                raise status.bad_request(f"operation={term.value}: must be Create, Update or Delete")
            self.operations &= named if term.equal else set(Operation) - named
        else:
            prefix = term.value.endswith("*")
            text = Text(value=term.value.removesuffix("*"), equal=term.equal, prefix=prefix)
            self.texts.append((TEXT_FIELDS[term.field], text))


def tagged_revisions(reads: Reads, registry: Registry) -> TaggedRevision:
    async def tagged(name: str) -> int:
        rt = registry.storage(TAGS)
        entry = await reads.get(rt, "", name) if rt is not None else None
        if entry is None:
            raise status.bad_request(unknown(name))
        spec: dict[str, Any] = entry.object()["spec"]
        return int(spec["revision"])

    return tagged
