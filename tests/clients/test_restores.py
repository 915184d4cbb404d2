"""Restores with the rights of their user, and of a namespace that is still being deleted.

documents/ runs the whole story of docs/forensics.md.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from harness import BINARIES, Server, prepare, unique
from programs import Kubectl

from kubechronicle.ops import cli


@dataclass
class Shop:
    """``config``: the administrator's kubeconfig. ``namespace``: one with a Secret, which the administrator created."""

    now: Kubectl
    config: Path
    namespace: str

    def ask(self, *arguments: str, code: int = 0) -> str:
        """Run `kubechronicle …` and assert its exit code. Return its output, or its errors if ``code`` is 2."""
        output, errors = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            patch.setenv("KUBECONFIG", str(self.config))
            exit_code = cli.main(arguments)
        assert exit_code == code, f"{arguments}: {exit_code}: {output.getvalue()}{errors.getvalue()}"
        return output.getvalue() if code < 2 else errors.getvalue()


@pytest.fixture(scope="module")
def shop(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    prepare("kubectl")
    home, api = tmp_path_factory.mktemp("restores"), server.api()
    name = api.namespace(unique("shop"))
    now = Kubectl(str(BINARIES / "kubectl"), server, home)
    config = home / "config"
    config.write_text(server.kubeconfig.read_text())
    now("create", "secret", "generic", "key", "-n", name, "--from-literal=password=hush")
    yield Shop(now, config, name)
    api.request("DELETE", f"/api/v1/namespaces/{name}")
    api.close()


def test_a_user_sees_only_permitted_objects(shop: Shop) -> None:
    """The command has the rights of its user, as kubectl."""
    as_other = ("-n", shop.namespace, "--as", "mallory")  # jane may edit, which includes revisions
    message = shop.ask("who", "set", "secret/key", "data.password", *as_other, code=2)
    assert message.startswith(
        "kubechronicle: permission denied: revisions.history.kubechronicle.dev is forbidden: User"
    )


def test_restore_waits_for_a_namespace_in_deletion(shop: Shop) -> None:
    """A finalizer keeps the namespace. Without a timeout it is reported. After its removal, everything is restored."""
    now, name = shop.now, unique("stuck")
    now("create", "namespace", name)
    now("create", "configmap", "kept", "-n", name, "--from-literal=a=b")
    now("patch", "configmap/kept", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/mine"]}}')
    moment = datetime.now(UTC).isoformat()
    now("delete", "namespace", name, "--wait=false")
    # The report has the finalizer as soon as the namespace controller has written it to the conditions.
    now("wait", f"namespace/{name}", "--for=condition=NamespaceFinalizersRemaining", "--timeout=60s")
    restore = ("restore", "-n", name, "--to", moment, "--yes")
    hindered = shop.ask(*restore, "--timeout", "0.3", code=2)
    assert hindered.endswith(
        f"{name} is still being deleted after 0.3 s: blocked by finalizers: configmap/kept has example.com/mine\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "kubechronicle.ops.cli", *restore],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"KUBECONFIG": str(shop.config)},
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith(f"To restore namespace {name} as of ")
        now("patch", "configmap/kept", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert "configmap/kept created\n" in waiting.communicate(timeout=60)[0]
        assert waiting.returncode == 0
    assert now("get", "configmap/kept", "-n", name, "-o", "jsonpath={.metadata.finalizers[0]}") == "example.com/mine"
    now("patch", "configmap/kept", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    now("delete", "namespace", name, "--wait=false")
