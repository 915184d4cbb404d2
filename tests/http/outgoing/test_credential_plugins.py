"""Programs that issue credentials (``exec`` in a kubeconfig): real ones, which are right, wrong, slow or talkative."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing import credential_plugins
from kubechronicle.http.outgoing.client import AskError, Outgoing
from kubechronicle.http.outgoing.credential_plugins import CredentialPlugin, plugin_of
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig, read_webhook_users
from kubechronicle.http.outgoing.remote_server import RemoteServer, load_credentials

V1 = "client.authentication.k8s.io/v1"
COUNTED = 'echo x >> "$0.runs"; '


class Seen:
    """An application that records the credentials of requests. It answers with these statuses, and repeats the last."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.sent: list[str] = []

    async def __call__(self, request: Request) -> Response:
        self.sent.append(request.headers.get("authorization", ""))
        await request.body(1 << 20)
        return Response(self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0], [], b"{}")


def peer_of(wire: Any, plugin: CredentialPlugin) -> RemoteServer:
    return RemoteServer(url=f"https://localhost:{wire.server.port}/ask", ca=wire.authority.file, plugin=plugin)


class Program:
    """A shell script in a folder, which notes its runs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "issue"

    def does(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{COUNTED}{script}\n")
        self.path.chmod(stat.S_IRWXU)

    def issues(self, version: str = V1, **status: Any) -> None:
        self.does(
            f"cat <<'EOF'\n{json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status})}\nEOF"
        )

    @property
    def runs(self) -> int:
        notes = self.path.with_name("issue.runs")
        return len(notes.read_text().split()) if notes.exists() else 0

    def plugin(self, **fields: Any) -> CredentialPlugin:
        found = {"apiVersion": V1, "command": "./issue", "interactiveMode": "Never", **fields}
        return plugin_of(found, self.path.parent, {"server": "https://there"})


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def problem(plugin: CredentialPlugin) -> str:
    with pytest.raises(ValueError, match="exec: ") as caught:
        plugin.credentials()
    return str(caught.value)


def test_credentials_are_kept_until_they_expire_or_are_refused(program: Program) -> None:
    plugin = program.plugin()
    program.issues(token="one", expirationTimestamp="2099-01-01T00:00:00Z")
    first = plugin.credentials()
    before = plugin.stamp()
    assert (first.token, plugin.credentials(), program.runs, plugin.stamp()) == ("one", first, 1, before)
    plugin.refused(first.serial)
    assert plugin.stamp() != before
    program.issues(token="two", expirationTimestamp="2001-01-01T00:00:00Z")
    second = plugin.credentials()
    assert (second.token, program.runs) == ("two", 2)
    plugin.refused(first.serial)  # the answer to an earlier request
    assert plugin.stamp()[1] is not False  # expired
    program.issues(token="three")
    assert (plugin.credentials().token, program.runs, plugin.stamp()[1]) == ("three", 3, False)


def test_what_the_program_is_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "i")
    program.does(
        'printf \'{"kind":"ExecCredential","apiVersion":"%s","status":{"token":"%s"}}\' '
        f'{V1} "$1/$ADDED/$INHERITED/$(printf %s "$KUBERNETES_EXEC_INFO" | tr -d \'" \')"'
    )
    plugin = program.plugin(args=["a"], env=[{"name": "ADDED", "value": "e"}], provideClusterInfo=True)
    assert plugin.credentials().token == (
        f"a/e/i/{{apiVersion:{V1},kind:ExecCredential,spec:{{interactive:false,cluster:{{server:https://there}}}}}}"
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "failed with exit code 3"),
        ("echo hello", "printed no ExecCredential"),
        (f'echo \'{{"kind":"ExecCredential","apiVersion":"{V1}beta1","status":{{}}}}\'', "is configured to use"),
        (f'echo \'{{"kind":"ExecCredential","apiVersion":"{V1}"}}\'', "returned no status field"),
        (f'echo \'{{"kind":"ExecCredential","apiVersion":"{V1}","status":{{}}}}\'', "returned no token"),
        (
            f'echo \'{{"kind":"ExecCredential","apiVersion":"{V1}","status":{{"clientKeyData":"k"}}}}\'',
            "returned only a certificate or a key, not both",
        ),
        ("yes", "printed more than"),
    ],
)
def test_useless_programs(program: Program, script: str, why: str) -> None:
    program.does(script)
    plugin = program.plugin()
    assert why in problem(plugin)
    assert why in problem(plugin)  # the program is not run for every request
    assert program.runs == 1


def test_a_missing_program_is_named_with_its_hint(program: Program) -> None:
    text = problem(program.plugin(installHint="get it\n  here"))
    assert text == f"exec: {program.path}: No such file or directory; get it here"


def test_a_program_that_hangs_is_ended(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_plugins, "TIMEOUT", 0.2)
    program.does("sleep 60 & sleep 60")
    began = time.monotonic()
    assert "did not end within" in problem(program.plugin())
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"command": ""}, "command must be specified"),
        ({"apiVersion": ""}, "apiVersion must be specified"),
        ({"apiVersion": "v2"}, "invalid apiVersion 'v2'"),
        ({"interactiveMode": ""}, "interactiveMode must be specified"),
        ({"interactiveMode": "Maybe"}, "invalid interactiveMode 'Maybe'"),
        ({"interactiveMode": "Always"}, "needs a terminal"),
        ({"args": "a"}, "args must be a list"),
        ({"env": [{"value": "a"}]}, "env must be a list with names"),
        ({"command": 5}, "command must be a text"),
    ],
)
def test_wrong_fields(program: Program, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        program.plugin(**fields)


def test_users_of_kubeconfigs(program: Program, tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": V1, "command": "./issue", "interactiveMode": "Never"}}
    whole: dict[str, Any] = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "hook.ns.svc"}}],
        "clusters": [{"name": "a", "cluster": {"server": "https://there"}}],
        "users": [{"name": "hook.ns.svc", "user": user}],
    }
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(whole))
    program.issues(token="secret")
    peers = (read_kubeconfig(file), read_webhook_users(file).of("hook.ns.svc", 443))
    assert program.runs == 0  # only when its credentials are needed
    for peer in peers:
        assert load_credentials(peer).authorization == "Bearer secret"
    user["token"] = "other"  # type: ignore[assignment]
    file.write_text(yaml.safe_dump(whole))
    with pytest.raises(KubeconfigError, match="exec and other credentials may not both be set"):
        read_webhook_users(file)


async def test_a_refused_token_is_replaced(program: Program, wire: Any, outgoing: Outgoing) -> None:
    app = Seen(200, 401, 200)
    client = outgoing.client(peer_of(await wire(app), program.plugin()))
    program.issues(token="one")
    assert (await client.ask()).status == 200
    program.issues(token="two")
    assert [(await client.ask()).status for _ in range(3)] == [401, 200, 200]
    assert app.sent == ["Bearer one", "Bearer one", "Bearer two", "Bearer two"]
    assert program.runs == 2


async def test_a_slow_program_delays_only_its_request(program: Program, wire: Any, outgoing: Outgoing) -> None:
    app = Seen(200)
    client = outgoing.client(peer_of(await wire(app), program.plugin()))
    gate = program.path.with_name("gate")
    credential = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "late"}})
    program.does(f"while [ ! -e \"{gate}\" ]; do sleep 0.05; done\necho '{credential}'")
    with pytest.raises(AskError, match="no answer within the time-out"):
        await client.ask(timeout=0.3)
    gate.touch()
    with trio.fail_after(60):
        assert (await client.ask()).status == 200
    assert (app.sent, program.runs) == (["Bearer late"], 1)  # the result of the run before
