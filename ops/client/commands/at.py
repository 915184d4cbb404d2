"""`at T …`: kubectl in the cluster as it was. What follows the moment is kubectl's, as it is.

kubectl gets a kubeconfig of its own for the time it runs, in which every cluster's URL leads to that moment; so also
--context works. Without a kubectl on PATH `get` is answered here, as the server's tables have it.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from kubechronicle.api.meta.request_info import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import json_text, yaml_text
from kubechronicle.ops.client.session import CONNECT, Subject, split
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle at 2h get pods -A -o wide
  kubectl chronicle at 2026-11-20T18:00Z describe deployment/web
  kubectl chronicle at 41 get events -n shop
  kubectl chronicle at 1d get deployment web -o yaml > web.yaml; kubectl diff -f web.yaml
"""
# Flags before kubectl's command that choose the server are ours to obey: kubectl sees the server's past alone.
OURS: Final = {"--kubeconfig": "kubeconfig", "--server": "server", "-s": "server"}
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("moment", metavar="T", help="2h, a time, a revision")
    parser.add_argument("command", metavar="COMMAND …", nargs="*", help="of kubectl, with its arguments and flags")
    kubeconfig.add_flags(parser)


def words(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Flags before the moment are parsed, what follows it is kubectl's. OperatorError."""
    first = 0
    while first < len(arguments) and arguments[first].startswith("-") and len(arguments[first]) > 1:
        known = parser._option_string_actions.get(arguments[first])
        first += 1 if known is None or known.nargs == 0 else 2
    given = parser.parse_args(arguments[: first + 1])
    given.command = []
    after = arguments[first + 1 :]
    rest = iter(after[1:] if after[:1] == ["--"] else after)
    for argument in rest:
        if argument == "--":
            given.command += [argument, *rest]
            break
        name, sign, value = argument.partition("=")
        if name in OURS:
            setattr(given, OURS[name], value if sign else next(rest, ""))
        else:
            given.command.append(argument)
    if not given.command:
        raise OperatorError("what of kubectl? as in `at 2h get pods`")
    return given


def run(given: argparse.Namespace) -> int:
    """kubectl's exit code. OperatorError."""
    target = kubeconfig.load(given)
    client = Client(CONNECT[-1](target), target.namespace)
    moment = client.settled(given.moment)
    program = shutil.which("kubectl")
    if program is None:
        return _get(client.at(moment), given.command)
    with kubeconfig_at(target.document, moment) as file:
        environment = os.environ | {"KUBECONFIG": str(file), "KUBECACHEDIR": str(file.parent / "cache")}
        process = subprocess.Popen([program, *given.command], env=environment)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # kubectl has it, too, and its end is awaited
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        return code if code >= 0 else 128 - code


@contextmanager
def kubeconfig_at(document: Mapping[str, Any], moment: str) -> Iterator[Path]:
    """A file for the time of the block, which only its owner may read. ``moment`` "" is now."""
    found = copy.deepcopy(dict(document))
    for entry in found.get("clusters") or ():
        cluster = entry.get("cluster")
        if isinstance(cluster, dict) and cluster.get("server") and moment:
            server = str(cluster["server"]).partition(HISTORY)[0].rstrip("/")
            cluster["server"] = f"{server}{HISTORY}{quote(moment, safe=':')}"
    with tempfile.TemporaryDirectory(prefix="kubechronicle-") as folder:
        file = Path(folder) / "config"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(found, sort_keys=False))
        yield file


# -- without kubectl --------------------------------------------------------------------------------------------------


def _get(client: Client, command: Sequence[str]) -> int:
    """`get TYPE [NAME]`. OperatorError for anything else."""
    if command[0] != "get":
        raise OperatorError(f"there is no kubectl on PATH; without it, `at` knows `get` alone, not {command[0]}")
    parser = argparse.ArgumentParser(prog="at T get", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("what", nargs="+")
    parser.add_argument("-n", "--namespace", default=client.namespace)
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("-l", "--selector", default="")
    parser.add_argument("--field-selector", default="")
    parser.add_argument("-o", "--output", choices=("", "wide", "json", "yaml", "name"), default="")
    try:
        given, unknown = parser.parse_known_intermixed_args(list(command[1:]))
    except argparse.ArgumentError as error:
        raise OperatorError(str(error)) from None
    if unknown:
        raise OperatorError(f"there is no kubectl on PATH, and `get` knows no {unknown[0]} here")
    type_, name = split(given.what)
    kind = Kinds.of(client).named(type_)
    subject = Subject(kind, given.namespace if kind.namespaced and not given.all_namespaces else "", name)
    query = {"labelSelector": given.selector, "fieldSelector": given.field_selector}
    table = given.output in ("", "wide")
    found = client.get(
        subject.path(),
        {key: value for key, value in query.items() if value},
        accept=TABLE if table else "application/json",
    )
    _print(found, given, kind.namespaced and given.all_namespaces, kind.titled)
    return 0


def _print(found: Object, given: argparse.Namespace, everywhere: bool, titled: Any) -> None:
    if given.output == "json":
        print(json_text(found))
    elif given.output == "yaml":
        print(yaml_text(found), end="")
    elif given.output == "name":
        for item in found.get("items", [found]):
            print(titled(item["metadata"]["name"]))
    else:
        _print_table(found, wide=given.output == "wide", everywhere=everywhere)


def _print_table(table: Object, *, wide: bool, everywhere: bool) -> None:
    columns = [place for place, each in enumerate(table["columnDefinitions"]) if wide or not each.get("priority")]
    namespaces = ["NAMESPACE"] if everywhere else []
    rows = [namespaces + [re.sub(r"\s", "-", table["columnDefinitions"][place]["name"].upper()) for place in columns]]
    for row in table.get("rows") or ():
        metadata = (row.get("object") or {}).get("metadata") or {}
        first = [metadata.get("namespace", "")] if everywhere else []
        rows.append(first + [output.cell(row["cells"][place]) for place in columns])
    if len(rows) == 1:
        print("No resources found.")
        return
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        print("   ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())
