"""Credentials that a program issues (``exec`` in a kubeconfig): client.authentication.k8s.io/v1 and v1beta1.

Source: k8s.io/client-go ``plugin/pkg/client/auth/exec``.

    user:
      exec:
        apiVersion: client.authentication.k8s.io/v1
        command: issue-token
        args: [--audience, webhooks]
        interactiveMode: Never

The program runs when its credentials are first needed, when they have expired, and after the server has answered 401.
Its output is bounded. All peers with the same user share its credentials.

    of a server    it gets no standard input, and has TIMEOUT seconds
    of a command   it may use the terminal, and its user decides how long
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kubechronicle.http.outgoing.remote_server import Issued

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MODES: Final = ("Never", "IfAvailable", "Always")
TIMEOUT: Final = 30.0
"""Seconds for one run of a server. A webhook gives up earlier if its own time is shorter; the result serves the next
request."""
MAX_OUTPUT: Final = 1 << 20
"""Bytes of its output."""
RETRY: Final = 5.0
"""Seconds after a failed run until the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The program and its arguments. ``cluster``: the server that it may be told of. ``interactive``: it may use the
    terminal. ``timeout``: seconds for one run."""

    version: str
    program: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    cluster: Mapping[str, Any] | None = None
    interactive: bool = False
    timeout: float = TIMEOUT


class CredentialPlugin:
    """One program with the credentials that it has issued. Its methods may be called from several threads."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._running = threading.Lock()
        self._issued: Issued | None = None
        self._runs = 0
        self._refused = False
        self._failed: tuple[float, str] | None = None

    def stamp(self) -> tuple[object, ...]:
        """Return a value that differs once other credentials should be asked for. It costs next to nothing."""
        issued = self._issued
        if issued is None:
            return (0, False)
        return (issued.serial, int(time.monotonic() / RETRY) if self._is_stale(issued) else False)

    def refused(self, serial: int) -> None:
        """Note that the server has answered 401 to credentials."""
        if self._issued is not None and self._issued.serial == serial:
            self._refused = True

    def credentials(self) -> Issued:
        """Return valid credentials; run the program if there are none. Blocks. ValueError: it issues none."""
        with self._running:
            issued = self._issued
            if issued is not None and not self._is_stale(issued):
                return issued
            if self._failed is not None and time.monotonic() < self._failed[0] + RETRY:
                raise ValueError(self._failed[1])
            try:
                found = _read(self._command, _output(self._command), self._runs + 1)
            except ValueError as error:
                self._failed = (time.monotonic(), str(error))
                raise
            self._runs += 1
            self._issued, self._refused, self._failed = found, False, None
            return found

    def _is_stale(self, issued: Issued) -> bool:
        return self._refused or (issued.expires is not None and time.time() >= issued.expires)


def plugin_of(
    found: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any], *, by_user: bool = False
) -> CredentialPlugin:
    """Return the plugin of an ``exec`` field. ValueError: it cannot be used.

    ``folder``: of the kubeconfig, for a relative path of the program.
    ``cluster``: the server, as provideClusterInfo tells it.
    ``by_user``: a user runs this program, perhaps on a terminal.
    """
    program, version, mode = (_text(found, name) for name in ("command", "apiVersion", "interactiveMode"))
    if not program:
        raise ValueError("exec: command must be specified")
    if not version:
        raise ValueError("exec: apiVersion must be specified")
    if version not in VERSIONS:
        raise ValueError(f"exec: invalid apiVersion {version!r}, must be one of {', '.join(VERSIONS)}")
    if not mode and version == VERSIONS[0]:
        raise ValueError("exec: interactiveMode must be specified")
    if mode and mode not in MODES:
        raise ValueError(f"exec: invalid interactiveMode {mode!r}, must be one of {', '.join(MODES)}")
    is_terminal = by_user and sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not is_terminal:
        why = "which is not there" if by_user else "which a server does not have"
        raise ValueError(f"exec: interactiveMode Always needs a terminal, {why}")
    arguments, variables = found.get("args") or [], found.get("env") or []
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise ValueError("exec: args must be a list of texts")
    if not isinstance(variables, list) or not all(isinstance(each, dict) and each.get("name") for each in variables):
        raise ValueError("exec: env must be a list with names")
    relative = "/" in program and not program.startswith("/")
    return CredentialPlugin(
        Command(
            version=version,
            program=str(folder / program) if relative else program,
            arguments=tuple(arguments),
            environment=tuple((str(each["name"]), str(each.get("value") or "")) for each in variables),
            hint=" ".join(_text(found, "installHint").split()),
            cluster=cluster if found.get("provideClusterInfo") else None,
            interactive=is_terminal and mode != "Never",
            timeout=math.inf if by_user else TIMEOUT,
        )
    )


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"exec: {name} must be a text")
    return value or ""


def _output(command: Command) -> bytes:
    """Run the program and return its output. ValueError."""
    spec: dict[str, Any] = {"interactive": command.interactive}
    if command.cluster is not None:
        spec["cluster"] = command.cluster
    info = json.dumps({"apiVersion": command.version, "kind": "ExecCredential", "spec": spec})
    try:
        process = subprocess.Popen(
            [command.program, *command.arguments],
            stdin=None if command.interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=os.environ | dict(command.environment) | {"KUBERNETES_EXEC_INFO": info},
            start_new_session=not command.interactive,  # a new session has no terminal
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"exec: {command.program}: {why}" + (f"; {command.hint}" if command.hint else "")) from None
    try:
        output = _read_all(process, command.timeout)
    except ValueError as error:
        raise ValueError(f"exec: {command.program}: {error}") from None
    finally:
        _end(process, command)
    if process.returncode:
        raise ValueError(f"exec: {command.program} failed with exit code {process.returncode}")
    return output


def _read_all(process: subprocess.Popen[bytes], timeout: float) -> bytes:
    assert process.stdout is not None, "a pipe"
    end = time.monotonic() + timeout
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0 or not selector.select(None if math.isinf(left) else left):
                raise ValueError(f"it did not end within {timeout:.0f} seconds")
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                break
            output += chunk
            if len(output) > MAX_OUTPUT:
                raise ValueError(f"it printed more than {MAX_OUTPUT} bytes")
    try:
        process.wait(None if math.isinf(end) else max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ValueError(f"it did not end within {timeout:.0f} seconds") from None
    return bytes(output)


def _end(process: subprocess.Popen[bytes], command: Command) -> None:
    """End the program if it still runs, and those that it has started in a session of its own."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            if command.interactive:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(command: Command, output: bytes, serial: int) -> Issued:
    """Return the credentials in an output. ValueError."""
    name = f"exec: {command.program}"
    try:
        found = json.loads(output)
    except ValueError:
        raise ValueError(f"{name} printed no ExecCredential") from None
    if not isinstance(found, dict) or found.get("kind") != "ExecCredential":
        raise ValueError(f"{name} printed no ExecCredential")
    if found.get("apiVersion") != command.version:
        raise ValueError(f"{name} is configured to use {command.version}, it returned {found.get('apiVersion')}")
    status = found.get("status")
    if not isinstance(status, dict):
        raise ValueError(f"{name} returned no status field")
    token, certificate, key = (
        value if isinstance(value := status.get(each), str) else ""
        for each in ("token", "clientCertificateData", "clientKeyData")
    )
    if not (token or certificate or key):
        raise ValueError(f"{name} returned no token or certificate with its key")
    if bool(certificate) != bool(key):
        raise ValueError(f"{name} returned only a certificate or a key, not both")
    expires = _time(status.get("expirationTimestamp"), name)
    return Issued(serial, token, certificate.encode() or None, key.encode() or None, expires)


def _time(text: object, name: str) -> float | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise ValueError(f"{name} returned an expirationTimestamp that is no time") from None
