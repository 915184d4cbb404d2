"""The causes of a change, as the server tells them (actors/history/causes.py)."""

from __future__ import annotations

from typing import Final, NamedTuple

from kubechronicle.api.explaining.causes import DELETING
from kubechronicle.api.history.cells import PAST_TENSES, action_of
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.revision_reader import RevisionQuery, Scope, parameters_of, scopes_in
from kubechronicle.ops.client.subjects import Subject

ABOUT: Final = ("because", "known", "explained")
VERBS: Final = {"Create": "created", "Delete": "deleted"}


class Chain(NamedTuple):
    """A change and its causes.

    ``links``: the revisions, from the change itself to its first cause. All but the last have ``because``, ``known``
    (mark, recorded, inferred) and ``explained``.
    ``stopped``: why there may be earlier causes; "" if there are none.
    """

    links: list[Object]
    stopped: str = ""


def chain_of(client: Client, revision: Object) -> Chain:
    """Return a change with its causes. ApiError; a server without causes returns the change alone."""
    namespace = str(revision["object"].get("namespace", ""))
    scope = scopes_in(namespace)[0] if namespace else scopes_in("")[1]
    named = Scope(scope.path, (("metadata.name", revision["metadata"]["name"]),))
    query = RevisionQuery([named], content="")
    try:
        found = client.get(named.path, {"summary": "causes", **parameters_of(query, named)})
    except ApiError as error:
        if error.code != 400:
            raise
        return Chain([revision], "this server does not tell causes")
    links = found["links"] or [revision]
    about = {name: links[0][name] for name in ABOUT if name in links[0]}
    return Chain([revision | about, *links[1:]], str(found.get("stopped", "")))


def past_tense(revision: Object) -> str:
    """Return the act of a change as a verb: ``deleted`` for a mark for deletion, too."""
    action = action_of(revision)
    if action in PAST_TENSES:
        return PAST_TENSES[action]
    return "deleted" if action in DELETING else VERBS.get(revision["operation"], "changed")


def subject_of(kinds: Kinds, revision: Object) -> Subject:
    """Return the object of a revision, also of a kind that the server does not have any more."""
    of = revision["object"]
    group, namespace, plural = str(of.get("apiVersion", "")).rpartition("/")[0], of.get("namespace", ""), of["resource"]
    kind = kinds.of_resource(group, plural) or Kind(
        group, "", plural, str(of.get("kind", "")).lower(), of.get("kind", ""), bool(namespace), frozenset()
    )
    return Subject(kind, namespace, of.get("name", ""))
