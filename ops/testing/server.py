"""The server of a test session: a fork of the prepared process of this user, or a process of its own without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.ephemeral.forks import Fork, TemplateEnded, request_fork
from kubechronicle.ops.ephemeral.launching import connect
from kubechronicle.ops.errors import OperatorError

READY: Final = re.compile(r"kubechronicle is ready at (https://\S+?);")
STOPPING: Final = 40.0  # seconds


class TestServer:
    """A server with its own directory, which the end of this process removes, too."""

    __test__ = False  # pytest looks for classes with this name

    def __init__(self, flags: Sequence[str] = ()) -> None:
        """Start a server, and wait until it is ready. OperatorError: it did not start."""
        self.directory = Path(tempfile.mkdtemp(prefix="kubechronicle-"))
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the server
        self._process = self._start(["--secure-port=0", f"--data-dir={self.directory}", *flags])
        assert self._process.stdout is not None
        found = READY.search(self._process.stdout.readline())
        if found is None:
            self._process.wait(STOPPING)
            self._log.seek(0)
            shutil.rmtree(self.directory, ignore_errors=True)
            raise OperatorError(f"the server did not start: {self._log.read()[-2000:].strip()}")
        self.url = found[1]
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self.admin = Client(HttpTransport(kubeconfig.of_file(self.kubeconfig)))
        self.mark = 0
        self._users = 0

    def _start(self, flags: Sequence[str]) -> Fork | subprocess.Popen[str]:
        command = [sys.argv[0], "serve", "--ephemeral=true", *flags]
        connection = connect() if sys.platform == "linux" else None
        if connection is not None:
            with connection, suppress(TemplateEnded):
                return request_fork(connection, command, os.environ, stderr=self._log, remove=str(self.directory))
        # -P: the present directory is that of the tests, and may have modules with names of the standard library.
        command = [sys.executable, "-P", "-m", "kubechronicle.ops.cli", *command[1:]]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True)

    def keep(self) -> None:
        """Let every test begin with the present state."""
        self.mark = self._post("/ephemeral/mark")["revision"]

    def reset(self) -> None:
        """Return to the state that is kept."""
        self.mark = self._post("/ephemeral/reset")["revision"]

    def _post(self, path: str) -> Any:
        return self.admin.request("POST", path)

    def credentials(self, user: str, groups: Sequence[str]) -> Path:
        """Return a kubeconfig for a user, with a certificate that names these groups. OperatorError."""
        from kubechronicle.ops import pki

        pair = pki.issue_client_certificate(pki.Pki(self.directory).authority(), user, groups)
        ca = (self.directory / "pki" / "ca.crt").read_bytes()
        self._users += 1
        file = self.directory / f"user-{self._users}.kubeconfig"
        file.write_text(pki.kubeconfig(server=self.url, ca=ca, user=user, pair=pair))
        return file

    def close(self) -> None:
        """Stop the server, and remove its directory."""
        self._process.terminate()
        self._process.wait(STOPPING)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)
