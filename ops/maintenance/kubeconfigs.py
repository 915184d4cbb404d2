"""`kubechronicle kubeconfig`: credentials for a user, and contexts for a past moment of the cluster.

    kubechronicle kubeconfig --user jane --group developers      a kubeconfig with a new client certificate
    kubechronicle kubeconfig --at 2h                             the administrator's, with a context at-2h added
    kubechronicle kubeconfig --at 2h --kubeconfig ~/.kube/config  adds the context to that file

The new context has the cluster and user of the file's current context, with the moment in the cluster's URL. An age
such as 2h becomes a time when the context is made, so the context always shows the same moment. ``--moving`` keeps the
age.
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
from kubechronicle.api.history.tags import tag_named
from kubechronicle.api.meta.path_prefixes import HISTORY
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.ops import pki, terminal
from kubechronicle.ops.errors import OperatorError

Kubeconfig = dict[str, Any]


def run(arguments: argparse.Namespace, data_dir: Path) -> None:
    """Print the kubeconfig, or write it to --kubeconfig. Raise OperatorError."""
    if not arguments.at:
        if not arguments.user:
            raise OperatorError("name a user with --user, or a moment of history with --at")
        for flag in ("context_name", "moving", "kubeconfig"):
            if getattr(arguments, flag):
                raise OperatorError(f"--{flag.replace('_', '-')} goes with --at")
        terminal.stdout().lines(_issue(arguments, data_dir))
        return
    moment = resolve_moment(arguments.at, now=datetime.now(UTC), moving=arguments.moving)
    name = arguments.context_name or f"at-{arguments.at.removeprefix('-').replace('tag:', 'tag-')}"
    file = Path(arguments.kubeconfig).expanduser() if arguments.kubeconfig else None
    document = _base(arguments, data_dir, file)
    add_context(document, name, moment)
    text = yaml.safe_dump(document, sort_keys=False)
    if file is None:
        terminal.stdout().lines(text)
        return
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o600
    pki.write_whole(file.resolve(), text.encode(), mode=mode)
    command = f"kubectl --kubeconfig {arguments.kubeconfig} --context {name} get pods -A"
    terminal.stdout().line(f"context {name} shows {moment}; try: {command}")


def resolve_moment(text: str, *, now: datetime, moving: bool = False) -> str:
    """Return the moment for the URL. An age becomes a time unless ``moving``. Raise OperatorError."""
    try:
        if tag_named(text) and not moving:
            return text
        moment = parse_moment(text, now=now)
    except ValueError as error:
        raise OperatorError(f"--at: {error}") from None
    if moving:
        if not isinstance(moment, timedelta):
            raise OperatorError("--moving goes with how long ago, as in --at 2h")
        return text if text.startswith("-") else f"-{text}"
    if isinstance(moment, timedelta):
        moment = (now - moment).replace(microsecond=0)
    if isinstance(moment, datetime):
        if moment > now:
            raise OperatorError(f"--at: {text} lies in the future")
        return written(moment)
    return str(moment)


def add_context(document: Kubeconfig, name: str, moment: str) -> None:
    """Add a context for the current context's cluster at the moment. Raise OperatorError."""
    current = document.get("current-context") or ""
    context = _named(document, "contexts", current).get("context") or {}
    cluster = copy.deepcopy(_named(document, "clusters", context.get("cluster", "")).get("cluster") or {})
    server, _, _ = str(cluster.get("server", "")).partition(HISTORY)  # the current context may show a past moment too
    cluster["server"] = f"{server.rstrip('/')}{HISTORY}{quote(moment, safe=':')}"
    _put(document, "clusters", {"name": name, "cluster": cluster})
    _put(document, "contexts", {"name": name, "context": {**context, "cluster": name}})


def _base(arguments: argparse.Namespace, data_dir: Path, file: Path | None) -> Kubeconfig:
    """Return the kubeconfig to add the context to."""
    if arguments.user:
        if file is not None and file.exists():
            raise OperatorError("--user makes a kubeconfig of its own; leave it out to add to the file's current user")
        source, text = "the new kubeconfig", _issue(arguments, data_dir)
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


def _issue(arguments: argparse.Namespace, data_dir: Path) -> str:
    """Return a kubeconfig with a new client certificate, for the server of the administrator's kubeconfig."""
    authority = pki.Pki(data_dir)
    pair = pki.issue_client_certificate(authority.authority(), arguments.user, arguments.group)
    try:
        present = read_kubeconfig(authority.kubeconfig_file)
    except KubeconfigError as error:
        raise OperatorError(str(error)) from None
    server, _, _ = present.url.partition(HISTORY)  # the current context may show a past moment
    ca = present.ca.read_bytes() if isinstance(present.ca, Path) else present.ca or b""
    return pki.kubeconfig(server=server, ca=ca, user=arguments.user, pair=pair)


def _entries(document: Kubeconfig, kind: str) -> list[Any]:
    entries = document.get(kind)
    return entries if isinstance(entries, list) else []


def _named(document: Kubeconfig, kind: str, name: str) -> dict[str, Any]:
    for entry in _entries(document, kind):
        if isinstance(entry, dict) and name and entry.get("name") == name:
            return entry
    raise OperatorError(f"the kubeconfig has no current context with a cluster: its {kind} have no {name!r}")


def _put(document: Kubeconfig, kind: str, entry: dict[str, Any]) -> None:
    others = [
        each for each in _entries(document, kind) if not isinstance(each, dict) or each.get("name") != entry["name"]
    ]
    document[kind] = [*others, entry]
