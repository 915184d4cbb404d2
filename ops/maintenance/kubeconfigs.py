"""`kubechronicle kubeconfig`: credentials for a user, and contexts whose URL leads to a moment of history.

    kubechronicle kubeconfig --user jane --group developers      a kubeconfig with a new client certificate
    kubechronicle kubeconfig --at 2h                             the administrator's, with one more context, at-2h
    kubechronicle kubeconfig --at 2h --kubeconfig ~/.kube/config  puts the context into that file

A context made so has the cluster and user of the file's current context, and the moment in its cluster's URL. How long
ago is turned into a time when the context is made, so that what it shows stays the same; ``--moving`` keeps it.
"""

from __future__ import annotations

import argparse
import copy
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from kubechronicle.api.history.moments import parse_moment, written
from kubechronicle.http.request_info import HISTORY
from kubechronicle.ops import pki
from kubechronicle.ops.errors import OperatorError

Kubeconfig = dict[str, Any]


def run(given: argparse.Namespace, data_dir: Path) -> None:
    """Print, or write to --kubeconfig. OperatorError."""
    if not given.at:
        if not given.user:
            raise OperatorError("name a user with --user, or a moment of history with --at")
        for flag in ("context_name", "moving", "kubeconfig"):
            if getattr(given, flag):
                raise OperatorError(f"--{flag.replace('_', '-')} goes with --at")
        print(_issued(given, data_dir), end="")
        return
    moment = settled(given.at, now=datetime.now(UTC), moving=given.moving)
    name = given.context_name or f"at-{given.at.removeprefix('-')}"
    file = Path(given.kubeconfig).expanduser() if given.kubeconfig else None
    document = _base(given, data_dir, file)
    add_context(document, name, moment)
    text = yaml.safe_dump(document, sort_keys=False)
    if file is None:
        print(text, end="")
        return
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o600
    pki.write_whole(file.resolve(), text.encode(), mode=mode)
    print(f"context {name} shows {moment}; try: kubectl --kubeconfig {given.kubeconfig} --context {name} get pods -A")


def settled(text: str, *, now: datetime, moving: bool = False) -> str:
    """The moment as the URL is to name it: how long ago becomes a time unless it is ``moving``. OperatorError."""
    try:
        asked = parse_moment(text)
    except ValueError as error:
        raise OperatorError(f"--at: {error}") from None
    if moving:
        if not isinstance(asked, timedelta):
            raise OperatorError("--moving goes with how long ago, as in --at 2h")
        return text if text.startswith("-") else f"-{text}"
    if isinstance(asked, timedelta):
        asked = (now - asked).replace(microsecond=0)
    if isinstance(asked, datetime):
        if asked > now:
            raise OperatorError(f"--at: {text} lies in the future")
        return written(asked)
    return str(asked)


def add_context(document: Kubeconfig, name: str, moment: str) -> None:
    """A context of this name beside the current one, for the same cluster at the moment. OperatorError."""
    current = document.get("current-context") or ""
    context = _named(document, "contexts", current).get("context") or {}
    cluster = copy.deepcopy(_named(document, "clusters", context.get("cluster", "")).get("cluster") or {})
    server, _, _ = str(cluster.get("server", "")).partition(HISTORY)  # the current context may show history itself
    cluster["server"] = f"{server.rstrip('/')}{HISTORY}{quote(moment, safe=':')}"
    _put(document, "clusters", {"name": name, "cluster": cluster})
    _put(document, "contexts", {"name": name, "context": {**context, "cluster": name}})


def _base(given: argparse.Namespace, data_dir: Path, file: Path | None) -> Kubeconfig:
    """What the context is added to."""
    if given.user:
        if file is not None and file.exists():
            raise OperatorError("--user makes a kubeconfig of its own; leave it out to add to the file's current user")
        source, text = "the new kubeconfig", _issued(given, data_dir)
    elif file is not None and file.exists():
        source, text = str(file), _text_of(file)
    else:
        own = pki.Pki(data_dir).kubeconfig_file
        if not own.exists():
            raise OperatorError(f"there is no {own}; name its --data-dir, or a --kubeconfig to add to")
        source, text = str(own), _text_of(own)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        document = None
    if not isinstance(document, dict):
        raise OperatorError(f"{source} is no kubeconfig")
    return document


def _text_of(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{file} can't be read: {error}") from None


def _issued(given: argparse.Namespace, data_dir: Path) -> str:
    """A kubeconfig with a new client certificate, for the server of the administrator's."""
    authority = pki.Pki(data_dir)
    pair = pki.issue_client_certificate(authority.authority(), given.user, given.group)
    cluster = yaml.safe_load(authority.kubeconfig_file.read_text())["clusters"][0]["cluster"]
    ca = pki.decode_data(cluster["certificate-authority-data"])
    return pki.kubeconfig(server=cluster["server"], ca=ca, user=given.user, pair=pair)


def _entries(document: Kubeconfig, kind: str) -> list[Any]:
    found = document.get(kind)
    return found if isinstance(found, list) else []


def _named(document: Kubeconfig, kind: str, name: str) -> dict[str, Any]:
    for entry in _entries(document, kind):
        if isinstance(entry, dict) and name and entry.get("name") == name:
            return entry
    raise OperatorError(f"the kubeconfig has no current context with a cluster: nothing among its {kind} is {name!r}")


def _put(document: Kubeconfig, kind: str, entry: dict[str, Any]) -> None:
    others = [
        each for each in _entries(document, kind) if not isinstance(each, dict) or each.get("name") != entry["name"]
    ]
    document[kind] = [*others, entry]
