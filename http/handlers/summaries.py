"""?summary=QUESTION of revisions: an answer about all changes that a list would have, instead of the list.

    ?summary=density      their number over time instead of a list; with &bucket=1h, &by=user (resource, namespace,
                          operation), and for all namespaces also &include=clusterrevisions
    ?summary=groups       their number by &by=user,operation (resource, namespace, name, …), first and last revision
    ?summary=incident     the changes of a time, the unusual ones first, each consequence with its cause; with
                          &include=clusterrevisions also those of cluster-scoped objects, or of the Namespace alone;
                          with &report=html or markdown, as a text to share instead (api/explaining/reports.py)
    ?summary=causes       one change, named by metadata.name=N, with the chain of its causes (actors/history/causes.py)
    ?summary=consequences the deletions that followed from such changes, with the objects; with
                          &include=clusterrevisions also from changes of cluster-scoped objects
    ?summary=activity     the changes of people and their programs, newest first in pages, each with what followed; with
                          &include=clusterrevisions also those of cluster-scoped objects, with &controllers=shown also
                          rows of controllers, with &text= only changes that put a text into an object or removed it
    ?summary=lanes        the changes as columns of numbers, newest first in pages, with the state after each
    ?summary=tree         an object with its owners, dependents, changes and Events in a time
    ?summary=retention    whether all changes after a revision (revision.from=N+1) are kept, for feeds
    ?summary=extent       what such a search covers, and since when: for answers that nothing was found
    ?summary=bisect       since when a condition held (bisect.py); rights: who was allowed to do something (rights.py)

Each question is a function of SUMMARIES, by the name in the URL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.actors.history.activity import ActivityOptions, activity
from kubechronicle.actors.history.causes import MayList, causes, consequences
from kubechronicle.actors.history.change_groups import BY as GROUPS_BY
from kubechronicle.actors.history.change_groups import groups
from kubechronicle.actors.history.density import BY, DensityOptions, density
from kubechronicle.actors.history.extent import extent, retention
from kubechronicle.actors.history.incident import incident
from kubechronicle.actors.history.lanes import lanes
from kubechronicle.actors.history.log_changes import NEVER
from kubechronicle.actors.history.revision_selection import revisions_named
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.actors.history.tree import tree
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.explaining.reports import FORMATS, Period, report
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.history.revisions import API_VERSION, GROUP
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.revisions import check_listed, first_revision, readable_revisions
from kubechronicle.http.messages import Response
from kubechronicle.http.representation.answers import CACHE_CONTROL

SUMMARY: Final = "summary"
"""The query parameter."""
BYTES_OF_CHANGE: Final = 2048
"""Bytes that a change counts in a report: a report of many is made in a thread."""


class HistoryQuestion(NamedTuple):
    """A question about the changes that a selection names. ``everything``: those of cluster-scoped objects, too."""

    backend: Backend
    context: Context
    rt: ResourceType
    selection: Selection
    changes: ChangeReads
    everything: bool


async def summarize(backend: Backend, context: Context, rt: ResourceType, selection: Selection) -> Response:
    """Answer a question about the revisions that a list would have. StatusError 400; 403 without the right to list
    the included clusterrevisions."""
    wanted, include = context.query.get(SUMMARY), context.query.get("include")
    if wanted not in SUMMARIES:
        raise status.bad_request(f"{SUMMARY}={wanted}: must be {', '.join(SUMMARIES)}, or left out")
    whole = not selection.namespace or wanted == "incident"
    if include and not (include == "clusterrevisions" and rt.namespaced and whole):
        raise status.bad_request(
            f"include={include}: must be clusterrevisions, with the revisions of all namespaces or with an incident, "
            "or left out"
        )
    if include:
        await check_listed(backend, context, GROUP, context.info.version, "clusterrevisions")
    _by(context, several=wanted == "groups")
    changes = readable_revisions(backend, context)
    answer = await SUMMARIES[wanted](HistoryQuestion(backend, context, rt, selection, changes, bool(include)))
    return Response(200, [("content-type", "application/json"), CACHE_CONTROL], orjson.dumps(answer))


async def _causes(question: HistoryQuestion) -> dict[str, Any]:
    """Return the causes of the change that a selection names. StatusError 400."""
    backend, context = question.backend, question.context
    named = [number for field, number in revisions_named(question.selection) if field == "metadata.name"]
    if len(named) != 1:
        raise status.bad_request("causes are those of one change: fieldSelector=metadata.name=4711")

    may_list = _may_list(backend, context)
    return await causes(question.changes.of_revision, may_list, backend.store.registry, named[0])


def _may_list(backend: Backend, context: Context) -> MayList:
    """Return the check for the right to list the revisions of a namespace, or those of cluster-scoped objects."""

    async def may_list(namespace: str) -> int:
        plural = "revisions" if namespace else "clusterrevisions"
        try:
            await check_listed(backend, context, GROUP, context.info.version, plural, namespace)
        except StatusError as error:
            if error.code != 403:
                raise
            return NEVER
        return await first_revision(backend, context, namespace) if namespace else 0

    return may_list


async def _consequences(question: HistoryQuestion) -> dict[str, Any]:
    """Return the deletions that followed from changes of objects in the main log."""
    main = await question.changes.main(question.rt, question.selection)
    may_list = _may_list(question.backend, question.context)
    return await consequences(main.changes, may_list, main.selected, everything=question.everything)


async def _density(question: HistoryQuestion) -> dict[str, Any]:
    width, by = _width(question.context.query.get("bucket")), _by(question.context, several=False)
    options = DensityOptions(width=width, by=by[0], everything=question.everything)
    return await density(await question.changes.shares(question.rt, question.selection), options)


async def _groups(question: HistoryQuestion) -> dict[str, Any]:
    by = _by(question.context, several=True)
    shares = await question.changes.shares(question.rt, question.selection)
    return await groups(shares, by, everything=question.everything)


async def _extent(question: HistoryQuestion) -> dict[str, Any]:
    shares = await question.changes.shares(question.rt, question.selection)
    return await extent(shares, everything=question.everything)


async def _retention(question: HistoryQuestion) -> dict[str, Any]:
    return await retention(await question.changes.shares(question.rt, question.selection))


async def _incident(question: HistoryQuestion) -> dict[str, Any]:
    """Return the unusual changes of objects that are in the main log. StatusError 400."""
    form = question.context.query.get("report")
    if form and form not in FORMATS:
        raise status.bad_request(f"report={form}: must be {' or '.join(FORMATS)}, or left out")
    main = await question.changes.main(question.rt, question.selection)
    found = await incident(main.changes.log, main.changes, main.selected, everything=question.everything)
    if not form:
        return found
    terms = question.selection.fields.terms if question.selection.fields is not None else ()
    bounds = {term.field: term.value for term in terms}
    period = Period(_time_in(bounds, "time.from"), _time_in(bounds, "time.to"), question.selection.namespace)
    turn, size = main.changes.turn, len(found["changes"]) * BYTES_OF_CHANGE
    await turn.begin(size)
    text = await turn.run(size, partial(report, found, period, form))
    return {"apiVersion": API_VERSION, "kind": "RevisionIncidentReport", "text": text}


def _time_in(bounds: Mapping[str, str], name: str) -> str:
    """Return a bound if it is a time; an age says less than the first and the last change."""
    try:
        moment = parse_moment(bounds.get(name, ""))
    except ValueError:
        return ""
    return moment.isoformat() if isinstance(moment, datetime) else ""


async def _activity(question: HistoryQuestion) -> dict[str, Any]:
    """Return the changes of people to objects that are in the main log. StatusError 400."""
    query = question.context.query
    shown = query.get("controllers")
    if shown not in ("", "shown"):
        raise status.bad_request(f"controllers={shown}: must be shown, or left out")
    options = ActivityOptions(question.everything, controllers=bool(shown), text=query.get("text"))
    main = await question.changes.main(question.rt, question.selection)
    return await activity(main.changes, main.selected, options)


async def _lanes(question: HistoryQuestion) -> dict[str, Any]:
    main = await question.changes.main(question.rt, question.selection)
    return await lanes(main.changes, main.selected, everything=question.everything)


async def _tree(question: HistoryQuestion) -> dict[str, Any]:
    """Return an object that is in the main log among its owners and dependents."""
    main = await question.changes.main(question.rt, question.selection)
    events = await question.changes.events(question.rt, question.selection)
    registry = question.backend.store.registry
    return await tree(main.changes.log, main.changes, main.selected, registry, events=events)


SUMMARIES: Final[Mapping[str, Callable[[HistoryQuestion], Awaitable[dict[str, Any]]]]] = {
    "density": _density,
    "groups": _groups,
    "extent": _extent,
    "incident": _incident,
    "activity": _activity,
    "lanes": _lanes,
    "retention": _retention,
    "tree": _tree,
    "causes": _causes,
    "consequences": _consequences,
}


def _by(context: Context, *, several: bool) -> list[str]:
    """Return the columns to count by. StatusError 400."""
    text, allowed = context.query.get("by", "resource"), (GROUPS_BY if several else BY)
    names = text.split(",") if several else [text]
    if not all(name in allowed for name in names):
        one = "one or more" if several else "one"
        raise status.bad_request(f"by={text}: must be {one} of {', '.join(allowed)}")
    return list(dict.fromkeys(names))


def _width(text: str) -> timedelta | None:
    if not text:
        return None
    try:
        width = parse_moment(text)
    except ValueError:
        width = 0
    if not isinstance(width, timedelta) or width < timedelta(milliseconds=1):
        raise status.bad_request(f"bucket={text}: must be how long a bucket is, such as 30s, 1h or 1d")
    return width
