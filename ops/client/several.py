"""Several objects in one command: TYPE/NAME TYPE/NAME, TYPE NAME NAME, TYPE,TYPE, or TYPE with a label selector."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.revision_reader import RevisionQuery, read_revisions, scopes_of
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError


def add_selector_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-l", "--selector", metavar="LABELS", default="", help="objects with these labels at the change, as app=web"
    )


def split_objects(words: Sequence[str]) -> list[Sequence[str]]:
    """Return the words of each object: TYPE/NAME, or TYPE and NAME; or of each kind in TYPE,TYPE."""
    if len(words) == 1 and "," in words[0] and "/" not in words[0]:
        return [[kind] for kind in words[0].split(",") if kind]
    if len(words) > 1 and all("/" in word for word in words):
        return [[word] for word in words]
    if len(words) > 2 and not any("/" in word for word in words):
        return [[words[0], name] for name in words[1:]]
    return [words]


def subjects(session: Session, words: Sequence[str], kinds: Kinds, *, selector: str = "") -> list[Subject]:
    """Return the objects that the words name, each once. OperatorError.

    ``selector``: labels instead of names. Objects of the past count too.
    """
    if not selector:
        named = [session.subject(each, kinds) for each in split_objects(words)]
        return list(dict.fromkeys(named))
    kind = session.subject(words, kinds, name_required=False)
    if kind.name:
        raise OperatorError("a name and --selector exclude each other")
    query = RevisionQuery(scopes_of(kind), content="", labels=selector)
    found: dict[Subject, None] = {}
    for revision in read_revisions(session.client, query):
        reference = revision["object"]
        found[kind._replace(namespace=reference.get("namespace", ""), name=reference["name"])] = None
    if not found:
        raise OperatorError(f"no {kind.description} had the labels {selector} in the history")
    return list(found)
