"""`apply --atomic -f FILE`: apply the objects of files in one transaction, which is committed whole or not at all.

The server commits it (docs/transactions.md). Other applies are kubectl's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kubechronicle.api.codecs import yaml
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import ApiError
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_reason_flag
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle apply --atomic -f release.yaml              all of its objects, or none
  kubectl chronicle apply --atomic -f release.yaml --dry-run
  kustomize build . | kubectl chronicle apply --atomic -f -
  kubectl chronicle apply --atomic -f transaction.yaml          a Transaction, with any changes
exit code: 0 committed, 1 rejected (nothing was changed), 2 for errors
"""
PATH: Final = f"/apis/{HISTORY}/v1/transactions"
TRANSACTION: Final = "Transaction"
MANAGER: Final = "kubectl-chronicle"
COLOURS: Final = {"created": "new", "changed": "who", "deleted": "old", "marked": "old", "unchanged": "dim"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--filename", metavar="FILE", action="append", required=True, help="a file, or - (stdin)")
    parser.add_argument("--atomic", action="store_true", required=True, help="all objects or none; without it: kubectl")
    parser.add_argument("--dry-run", action="store_true", help="only try it")
    parser.add_argument("--force-conflicts", action="store_true", help="take fields from their owners")
    parser.add_argument(
        "--field-manager", metavar="NAME", default=MANAGER, help=f"the owner of the fields (default {MANAGER})"
    )
    add_reason_flag(parser)
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if the server rejected the transaction. OperatorError."""
    session = Session.open(arguments)
    objects = [obj for name in arguments.filename for obj in _read(name)]
    transaction = _transaction(session, objects)
    query = {"fieldManager": arguments.field_manager} | ({"dryRun": "All"} if arguments.dry_run else {})
    screen = session.screen
    try:
        answer = session.client.request("POST", PATH, query, transaction)
    except ApiError as error:
        if error.code == 404 and error.reason in ("", "NotFound") and "spec.changes" not in error.message:
            raise OperatorError("this server has no transactions; is it kubechronicle?") from None
        if error.code in (401, 429) or error.code >= 500 or "spec.changes" not in error.message:
            raise
        screen.note(error.message)
        return 1
    if screen.format == "text":
        _print(screen, answer.get("status") or {}, session.kinds(), dry_run=arguments.dry_run)
    else:
        screen.document(answer.get("status") or {})
    return 0


def _read(name: str) -> Iterator[Object]:
    """Yield the objects of a file: YAML or JSON, with one or several documents, and the items of Lists."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        documents = yaml.decode_all(data)
    except OSError as error:
        raise OperatorError(f"{name} cannot be read: {error.strerror}") from None
    except DecodeError as error:
        raise OperatorError(f"{name}: {error.message}") from None
    for document in documents:
        if document is None:
            continue
        is_list = isinstance(document, dict) and document.get("kind") == "List"
        items: Sequence[Any] = document.get("items") or () if is_list else (document,)
        for item in items:
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise OperatorError(f"{name} has a document that is no object with apiVersion and kind")
            yield item


def _transaction(session: Session, objects: Sequence[Object]) -> Object:
    """Return the transaction that applies the objects, or that of the file. OperatorError."""
    if any(obj["kind"] == TRANSACTION for obj in objects):
        if len(objects) > 1:
            raise OperatorError("a Transaction must be the only object")
        return objects[0]
    if not objects:
        raise OperatorError("the files have no objects")
    kinds = session.kinds()
    changes = [
        {"verb": "apply", "object": _placed(session, kinds, obj)}
        | ({"force": True} if session.arguments.force_conflicts else {})
        for obj in objects
    ]
    return {"apiVersion": f"{HISTORY}/v1", "kind": TRANSACTION, "spec": {"changes": changes}}


def _placed(session: Session, kinds: Kinds, obj: Object) -> Object:
    """Return the object with a namespace, if its kind has one: by default that of the context, as for kubectl."""
    kind, metadata = kinds.of_object(str(obj.get("apiVersion", "")), obj["kind"]), obj.get("metadata")
    if not isinstance(metadata, dict) or kind is None or not kind.namespaced or metadata.get("namespace"):
        return obj
    return {**obj, "metadata": {**metadata, "namespace": session.namespace}}


def _print(screen: Screen, status: Object, kinds: Kinds, *, dry_run: bool) -> None:
    for each in status.get("changes") or ():
        kind = kinds.of_object(each["apiVersion"], each["kind"])
        name = kind.object_name(each["name"]) if kind is not None else f"{each['kind']}/{each['name']}"
        colour = COLOURS.get(each["outcome"], "strong")
        screen.line(f"{name} ", Painted(each["outcome"], colour), " (dry run)" if dry_run else "")
    first, last = status.get("firstRevision"), status.get("lastRevision")
    if first:
        screen.line(f"revision {first}" if first == last else f"revisions {first} to {last}")
