"""Credentials from a program of the user's (``exec`` in a kubeconfig): client.authentication.k8s.io/v1 and v1beta1,
run as client-go runs it (k8s.io/client-go/plugin/pkg/client/auth/exec)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.ops.errors import OperatorError

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# What a plugin is told of the cluster, where it asks for it.
TOLD: Final = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")


@dataclass(frozen=True, slots=True)
class Issued:
    """A token, or a certificate and its key (PEM), or all."""

    token: str = field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


def run(plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> Issued:
    """Run it; what it says on stderr, and asks, is between it and the user. OperatorError."""
    command, version = str(plugin.get("command") or ""), str(plugin.get("apiVersion") or "")
    if not command:
        raise OperatorError("kubeconfig: exec names no command")
    if version not in VERSIONS:
        raise OperatorError(f"kubeconfig: exec is of {version or 'no apiVersion'}; known are {', '.join(VERSIONS)}")
    interactive = _interactive(plugin)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": interactive}}
    if plugin.get("provideClusterInfo"):
        known = {name: cluster[name] for name in TOLD if name in cluster}
        info["spec"] = {"interactive": interactive, "cluster": known}
    variables = {str(each["name"]): str(each.get("value") or "") for each in plugin.get("env") or []}
    try:
        done = subprocess.run(
            [command, *map(str, plugin.get("args") or [])],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
            env=os.environ | variables | {"KUBERNETES_EXEC_INFO": json.dumps(info)},
        )
    except OSError as error:
        hint = " ".join(str(plugin.get("installHint") or "").split())
        why = f"{error.strerror}; {hint}" if hint else error.strerror
        raise OperatorError(f"exec: {command} cannot be run: {why}") from None
    if done.returncode:
        raise OperatorError(f"exec: {command} failed with exit code {done.returncode}")
    return _issued(command, version, done.stdout)


def _interactive(plugin: Mapping[str, Any]) -> bool:
    mode = plugin.get("interactiveMode") or "IfAvailable"
    if mode == "Never":
        return False
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not terminal:
        raise OperatorError(f"exec: {plugin.get('command')} must be run on a terminal")
    return terminal


def _issued(command: str, version: str, output: bytes) -> Issued:
    try:
        found = json.loads(output)
        status = found.get("status") or {}
        token, certificate, key = (
            str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
        )
    except (ValueError, AttributeError):
        raise OperatorError(f"exec: {command} printed no ExecCredential") from None
    if found.get("apiVersion") != version:
        raise OperatorError(f"exec: {command} printed an ExecCredential of {found.get('apiVersion')}, not {version}")
    if not token and not (certificate and key):
        raise OperatorError(f"exec: {command} issued neither a token nor a certificate with its key")
    return Issued(token, certificate.encode() or None, key.encode() or None)
