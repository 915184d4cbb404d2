"""`at T …`: run kubectl in the cluster as it was. The arguments after the moment are passed to kubectl unchanged.

kubectl runs with a temporary kubeconfig, in which every cluster's URL leads to that moment; --context works, too.
Without kubectl on PATH, `get` alone works: it prints the server's tables.
"""

from __future__ import annotations

import argparse
import copy
import json
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

from kubechronicle.api.history.reasons import PREFIX as BECAUSE
from kubechronicle.api.meta.path_prefixes import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops import terminal
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import format_cell
from kubechronicle.ops.client.session import add_source_flags, connect, target_of
from kubechronicle.ops.client.subjects import Subject, split_words
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle at 2h get pods -A -o wide
  kubectl chronicle at 2026-11-20T18:00Z describe deployment/web
  kubectl chronicle at 41 get events -n shop
  kubectl chronicle at 1d get deployment web -o yaml > web.yaml; kubectl diff -f web.yaml
"""
# kubectl's flags for the server. They are removed from its arguments, as they would bypass the temporary kubeconfig.
SERVER_FLAGS: Final = {"--kubeconfig": "kubeconfig", "--server": "server", "-s": "server"}
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("moment", metavar="T", help="2h, a time, a revision")
    parser.add_argument("command", metavar="COMMAND …", nargs="*", help="of kubectl, with its arguments and flags")
    add_source_flags(parser)


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags before the moment, and pass the arguments after it on to kubectl. OperatorError."""
    return parse_kubectl(parser, argv, "at 2h get pods")


def parse_kubectl(parser: argparse.ArgumentParser, argv: Sequence[str], example: str) -> argparse.Namespace:
    """Parse the flags up to the first positional argument; ``command`` has the arguments after it. OperatorError."""
    first = 0
    while first < len(argv) and argv[first].startswith("-") and len(argv[first]) > 1:
        action = parser._option_string_actions.get(argv[first])
        first += 1 if action is None or action.nargs == 0 else 2
    arguments = parser.parse_args(argv[: first + 1])
    arguments.command = []
    after = argv[first + 1 :]
    rest = iter(after[1:] if after[:1] == ["--"] else after)
    for argument in rest:
        if argument == "--":
            arguments.command += [argument, *rest]
            break
        name, sign, value = argument.partition("=")
        if name in SERVER_FLAGS:
            setattr(arguments, SERVER_FLAGS[name], value if sign else next(rest, ""))
        else:
            arguments.command.append(argument)
    if not arguments.command:
        raise OperatorError(f"a kubectl command is missing, as in `{example}`")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Return kubectl's exit code. OperatorError."""
    target = target_of(arguments)
    client = connect(target)
    moment = client.resolve_moment(arguments.moment)
    program = shutil.which("kubectl")
    if program is None:
        return _get(client.at(moment), arguments.command)
    prefix = f"{HISTORY}{quote(moment, safe=':')}" if moment else ""
    return run_kubectl(program, arguments.command, target.document(), prefix)


def run_kubectl(program: str, command: Sequence[str], document: Mapping[str, Any], prefix: str) -> int:
    """Run kubectl with a kubeconfig whose servers have a path; return its exit code. ``prefix``: "" for none."""
    with _kubeconfig_with(document, prefix) as file:
        environment = os.environ | {"KUBECONFIG": str(file), "KUBECACHEDIR": str(file.parent / "cache")}
        process = subprocess.Popen([program, *command], env=environment)
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches kubectl: wait for its end
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
        return code if code >= 0 else 128 - code


@contextmanager
def _kubeconfig_with(document: Mapping[str, Any], prefix: str) -> Iterator[Path]:
    """Write a kubeconfig that exists within the block. Only its owner can read it."""
    document = copy.deepcopy(dict(document))
    for entry in document.get("clusters") or ():
        cluster = entry.get("cluster")
        if isinstance(cluster, dict) and cluster.get("server") and prefix:
            server = str(cluster["server"]).partition(HISTORY)[0].partition(BECAUSE)[0].rstrip("/")
            cluster["server"] = f"{server}{prefix}"
    with tempfile.TemporaryDirectory(prefix="kubechronicle-") as folder:
        file = Path(folder) / "config"
        file.touch(mode=0o600)
        # JSON is YAML, and needs no PyYAML. Other values than JSON's are times, which stand in extensions alone.
        file.write_text(json.dumps(document, default=str, ensure_ascii=False), encoding="utf-8")
        yield file


# -- without kubectl --------------------------------------------------------------------------------------------------


def _get(client: Client, command: Sequence[str]) -> int:
    """Run `get TYPE [NAME]`. Raises OperatorError for any other command."""
    if command[0] != "get":
        raise OperatorError(f"kubectl is not on PATH; without it, `at` supports only `get`, not {command[0]}")
    parser = argparse.ArgumentParser(prog="at T get", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("words", nargs="+")
    parser.add_argument("-n", "--namespace", default=client.namespace)
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("-l", "--selector", default="")
    parser.add_argument("--field-selector", default="")
    parser.add_argument("-o", "--output", choices=("", "wide", "json", "yaml", "name"), default="")
    try:
        arguments, unknown = parser.parse_known_intermixed_args(list(command[1:]))
    except argparse.ArgumentError as error:
        raise OperatorError(str(error)) from None
    if unknown:
        raise OperatorError(f"kubectl is not on PATH; without it, `get` does not support {unknown[0]}")
    type_name, name = split_words(arguments.words)
    kind = Kinds.discover(client).find(type_name)
    subject = Subject(kind, arguments.namespace if kind.namespaced and not arguments.all_namespaces else "", name)
    query = {"labelSelector": arguments.selector, "fieldSelector": arguments.field_selector}
    document = client.get(
        subject.path(),
        {key: value for key, value in query.items() if value},
        accept=TABLE if arguments.output in ("", "wide") else "application/json",
    )
    _print(document, arguments, kind)
    return 0


def _print(document: Object, arguments: argparse.Namespace, kind: Kind) -> None:
    out = terminal.stdout()
    if arguments.output == "json":
        out.json(document, indented=True)
    elif arguments.output == "yaml":
        out.yaml(document)
    elif arguments.output == "name":
        for item in document.get("items", [document]):
            out.line(kind.object_name(item["metadata"]["name"]))
    else:
        with_namespace = kind.namespaced and arguments.all_namespaces
        _print_table(document, wide=arguments.output == "wide", with_namespace=with_namespace)


def _print_table(table: Object, *, wide: bool, with_namespace: bool) -> None:
    out, definitions = terminal.stdout(), table["columnDefinitions"]
    columns = [index for index, definition in enumerate(definitions) if wide or not definition.get("priority")]
    titles = [re.sub(r"\s", "-", definitions[index]["name"].upper()) for index in columns]
    rows = [["NAMESPACE", *titles] if with_namespace else titles]
    for row in table.get("rows") or ():
        metadata = (row.get("object") or {}).get("metadata") or {}
        namespace = [metadata.get("namespace", "")] if with_namespace else []
        rows.append(namespace + [format_cell(row["cells"][index]) for index in columns])
    if len(rows) == 1:
        out.line("No resources found.")
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        out.line("   ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())
