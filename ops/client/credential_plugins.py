"""Credentials issued by a program (``exec`` in a kubeconfig): client.authentication.k8s.io/v1 and v1beta1.

It is run as client-go runs it (k8s.io/client-go/plugin/pkg/client/auth/exec).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.ops.errors import OperatorError

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# Fields of the cluster that a plugin receives if it asks for them (provideClusterInfo).
CLUSTER_FIELDS: Final = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
)


@dataclass(frozen=True, slots=True)
class Issued:
    """A token, or a certificate and its key (PEM), or all three."""

    token: str = field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


def run(plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> Issued:
    """Run the plugin and return the credentials. It may use stderr and, on a terminal, stdin. OperatorError."""
    command, version = str(plugin.get("command") or ""), str(plugin.get("apiVersion") or "")
    if not command:
        raise OperatorError("kubeconfig: exec has no command")
    if version not in VERSIONS:
        versions = " and ".join(VERSIONS)
        raise OperatorError(f"kubeconfig: exec has the apiVersion {version!r}; supported are {versions}")
    interactive = _is_interactive(plugin)
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = {name: cluster[name] for name in CLUSTER_FIELDS if name in cluster}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    variables = {str(each["name"]): str(each.get("value") or "") for each in plugin.get("env") or []}
    import subprocess  # few kubeconfigs have a plugin, and commands start sooner without it

    try:
        process = subprocess.run(
            [command, *map(str, plugin.get("args") or [])],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
            env=os.environ | variables | {"KUBERNETES_EXEC_INFO": json.dumps(info)},
        )
    except OSError as error:
        hint = " ".join(str(plugin.get("installHint") or "").split())
        reason = f"{error.strerror}; {hint}" if hint else error.strerror
        raise OperatorError(f"exec: {command} cannot be run: {reason}") from None
    if process.returncode:
        raise OperatorError(f"exec: {command} failed with exit code {process.returncode}")
    return _read_credential(command, version, process.stdout)


def _is_interactive(plugin: Mapping[str, Any]) -> bool:
    mode = plugin.get("interactiveMode") or "IfAvailable"
    if mode == "Never":
        return False
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not is_terminal:
        raise OperatorError(f"exec: {plugin.get('command')} must be run on a terminal")
    return is_terminal


def _read_credential(command: str, version: str, output: bytes) -> Issued:
    try:
        credential = json.loads(output)
        status = credential.get("status") or {}
        token, certificate, key = (
            str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
        )
    except (ValueError, AttributeError):
        raise OperatorError(f"exec: {command} printed no ExecCredential") from None
    if credential.get("apiVersion") != version:
        printed = credential.get("apiVersion")
        raise OperatorError(f"exec: {command} printed an ExecCredential of {printed}, not {version}")
    if not token and not (certificate and key):
        raise OperatorError(f"exec: {command} issued neither a token nor a certificate with its key")
    return Issued(token, certificate.encode() or None, key.encode() or None)
