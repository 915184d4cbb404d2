"""Revisions in the words of people: cells of a table, the action of a request, and the rule for deletions.

The creation of an Eviction evicts a Pod, that of a Binding binds it to a node.

Also the warnings of answers that lack something: the server's words, which its client knows again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.history.accesses import RESOURCE as ACCESSES
from kubechronicle.api.history.differences import CONSEQUENCES, is_within, shown_value
from kubechronicle.api.values.printable import printable

# -- deletions ---------------------------------------------------------------------------------------------------------
#
# Changes of the log that delete an object: they end it, or mark it for deletion.
#
#     verb of the request        operation        the object                           is a deletion
#     delete, deletecollection   Update, Delete                                        yes
#     create of an eviction      Update, Delete                                        yes
#     transaction                Update           marked by this change                yes
#     transaction                Delete           had finalizers before                no: it removed the last
#     transaction                Delete           had none                             yes
#     update, patch              Delete           an update removed the last finalizer no
#     another one, or none       Delete                                                yes
#     all others                                                                       no
#
# The log has one verb for all changes of a Transaction, so its objects tell them apart. A mark is a deletionTimestamp
# that the state before lacks, or has with another time.


DELETIONS: Final = ("delete", "deletecollection")
"""The verbs of requests to delete."""
UPDATES: Final = ("update", "patch")
EVICTION: Final = "eviction"
"""The subresource of a Pod whose creation deletes the Pod."""
TRANSACTION: Final = "transaction"
"""The verb of all changes of a Transaction."""
MARK: Final = "metadata.deletionTimestamp"
"""The field that marks an object for deletion."""
DELETION_FIELDS: Final = (MARK, "metadata.finalizers")
"""The fields that tell whether a Transaction deleted an object."""


def is_deletion(*, verb: str, operation: str, subresource: str = "", marks: bool = False, freed: bool = False) -> bool:
    """Tell whether a change deletes its object. ``operation``: Create, Update or Delete.

    ``marks``: it marked the object for deletion. ``freed``: it removed the last finalizer.
    """
    if operation == "Create":
        return False
    if verb in DELETIONS or subresource == EVICTION:
        return True
    if verb == TRANSACTION:
        return not freed if operation == "Delete" else marks
    return operation == "Delete" and verb not in UPDATES


# -- cells -------------------------------------------------------------------------------------------------------------


CREATIONS: Final = {EVICTION: "evict", "binding": "bind"}
"""The actions of requests that create a subresource. Another creation never has it at the end of its path."""
PAST_TENSES: Final = {"evict": "evicted", "bind": "bound"}


def changed_cell(revision: Mapping[str, Any]) -> str:
    """Return the last column of a table: a summary of the change."""
    if revision.get("redacted"):
        return "<no right to read>"
    if revision.get("erased"):
        return "<erased>"
    if revision["operation"] != "Update":
        return f"<{revision['operation'].lower()}d>"
    if revision.get("beforeErased"):
        return "<previous state erased>"
    return printable(revision.get("summary") or "<bookkeeping only>")


def object_cell(revision: Mapping[str, Any]) -> str:
    """Return TYPE/NAME as kubectl writes it."""
    of = revision["object"]
    group = of.get("apiVersion", "").rpartition("/")[0]
    kind = of.get("resource", "")
    return printable(f"{kind}.{group}/{of.get('name', '')}" if group else f"{kind}/{of.get('name', '')}")


def user_cell(revision: Mapping[str, Any]) -> str:
    """Return the user, with the impersonator if there is one."""
    who = revision["who"]
    name, impersonator = who.get("username", ""), who.get("impersonator", "")
    return shown_value(f"{name} (by {impersonator})" if impersonator else name) if name else "<unknown>"


def action_of(revision: Mapping[str, Any]) -> str:
    """Return the verb of a revision's request: ``patch``, ``evict``.

    Without a request, and for a change of a Transaction, it is that of the operation.
    """
    request = revision.get("request") or {}
    operation = str(revision["operation"])
    verb = str(request.get("verb") or operation.lower())
    if verb == TRANSACTION:
        marked = MARK in (revision.get("changed") or ())
        return "delete" if is_deletion(verb=verb, operation=operation, marks=marked) else operation.lower()
    last = str(request.get("uri") or "").partition("?")[0].rpartition("/")[2]
    return CREATIONS.get(last, verb) if verb == "create" else verb


def user_named(user: str, impersonator: str) -> str:
    """Return a user as texts name it, with the user that acted in its name."""
    name = user or "an unknown user"
    return f"{name} (impersonated by {impersonator})" if impersonator else name


# -- noise -------------------------------------------------------------------------------------------------------------
#
# Noise: changes that systems make all the time, which hide those of people.
#
# Clients leave them out unless they are asked for: kubectl's tables of revisions, the page, `between` and `incident`.
# A program that reads revisions gets everything, unless it selects ``noise=hidden``.


NOISY_RESOURCES: Final = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", ACCESSES)
"""Stored resources whose every change is noise: Events, Leases, which nodes and servers renew, and AccessRecords, which
have answers of their own."""

NOISY_FIELDS: Final = (
    "status.conditions.lastHeartbeatTime",
    "status.conditions.lastProbeTime",
    "metadata.annotations[control-plane.alpha.kubernetes.io/leader]",
    "metadata.resourceVersion",
    "metadata.managedFields",
    *sorted(CONSEQUENCES),
)
"""Fields that controllers renew. A change of nothing else is a heartbeat: of a node's status, or of a leader."""

NOISE: Final = "noise"
"""The selector of revisions, with one of its values."""
HIDDEN: Final = "hidden"
SHOWN: Final = "shown"


def is_heartbeat(changed: Iterable[str]) -> bool:
    """Tell whether an update changed nothing but noisy fields. ``changed``: its fields, as revisions list them."""
    return all(any(is_within(field, noisy) and len(field) >= len(noisy) for noisy in NOISY_FIELDS) for field in changed)


BY_TIME: Final = "revision {revision} is of one database; changes in another one are chosen by its commit time"
ERASED: Final = "left out: their contents were erased from history"
"""The warning of a list of the past, after the number of objects and their resource."""
ENDS: Final = "history of branch"
"""Begins the warning of answers about history in a branch, which lack its own changes."""
FORMER: Final = "changes of Events or Leases may be in another database, which this server is not given any more"
_KNOWN: Final = r'"(changes of Events or Leases may be in another database[^"]*|revision \d+ is of one database;[^"]*)"'


def notes_in(warnings: str) -> list[str]:
    """Return these warnings among those of a response's header ``Warning``."""
    return re.findall(_KNOWN, warnings) if warnings else []
