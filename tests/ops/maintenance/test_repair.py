"""`kubechronicle repair` on a real server with its own Postgres, beside it and without it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starting.forks import FORKS

from kubechronicle.ops.exit_codes import MISTAKE

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))
PATIENCE = 120.0
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
HOOK: dict[str, Any] = {
    "metadata": {"name": "broken"},
    "webhooks": [
        {
            "name": "broken.example.com",
            "rules": [EVERYTHING],
            "clientConfig": {"service": {"namespace": "default", "name": "gone"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}
POLICY = {
    "metadata": {"name": "nothing"},
    "spec": {"matchConstraints": {"resourceRules": [EVERYTHING]}, "validations": [{"expression": "false"}]},
}
EVERYBODY = {
    "metadata": {"name": "everybody"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"},
        {"kind": "ServiceAccount", "namespace": "default", "name": "robot"},
    ],
}


class Cluster:
    """A data directory, and the server on it while it runs."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.data, self._folder = folder / "data", folder
        self.flags = flags
        (folder / "tokens.csv").write_text('a,admin,1,"system:masters"\nj,jane,2\n')

    @contextmanager
    def serving(self) -> Iterator[None]:
        arguments = ["--bind-address", "127.0.0.1", "--advertise-address", "10.1.0.1", "--secure-port", "0"]
        tokens = ["--token-auth-file", str(self._folder / "tokens.csv")]
        command = [COMMAND, "serve", "--data-dir", str(self.data), *arguments, *tokens, *self.flags]
        with (self._folder / "server.log").open("a") as log:
            process = FORKS.start(command, os.environ, stderr=log)
        try:
            line = process.stdout.readline()
            assert "https://" in line, line
            self._port = int(line.split(";")[0].rpartition(":")[2])
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0

    def ask(self, method: str, path: str, body: Any = None, token: str = "a") -> tuple[int, Any]:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=context, timeout=PATIENCE)
        try:
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content.startswith(b"{") else content.decode()
        finally:
            connection.close()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        flags = [flag for flag in self.flags if arguments[0] == "repair"]
        return FORKS.run([COMMAND, *arguments, "--data-dir", str(self.data), *flags])

    def repair(self, *arguments: str) -> str:
        done = self.run("repair", *arguments)
        assert done.returncode == 0, done
        return done.stdout


def make(cluster: Cluster, path: str, body: Any) -> None:
    status, answer = cluster.ask("POST", path, body)
    assert status == 201, json.dumps(answer)


def test_a_cluster_behind_a_broken_webhook_is_repaired(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.serving():
        make(cluster, BINDINGS, EVERYBODY)
        make(cluster, f"{ADMISSION}/validatingadmissionpolicies", POLICY)
        binding = {"metadata": {"name": "nothing"}, "spec": {"policyName": "nothing", "validationActions": ["Deny"]}}
        make(cluster, f"{ADMISSION}/validatingwebhookconfigurations", HOOK)
        make(cluster, f"{ADMISSION}/validatingadmissionpolicybindings", binding)
    with cluster.serving():  # it starts, serves, and is ready: all its objects are there
        assert cluster.ask("GET", "/readyz")[0] == 200
        assert cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})[0] == 422
        assert cluster.ask("DELETE", f"{ADMISSION}/validatingwebhookconfigurations/broken")[0] == 422
        listed = cluster.repair("list")
        for line in (
            "validatingwebhookconfigurations/broken  broken.example.com at service default/gone, fails closed",
            "validatingadmissionpolicies/nothing  fails closed",
            "validatingadmissionpolicybindings/nothing  binds nothing; Deny",
            "clusterrolebindings/everybody  ClusterRole cluster-admin to Group system:authenticated, "
            "ServiceAccount default/robot",
        ):
            assert line in listed.splitlines()
        shown = cluster.repair("disable", "validatingwebhookconfigurations/broken", "--dry-run")
        assert shown == "would take 1 webhook out of validatingwebhookconfigurations/broken\n"
        said = cluster.repair("disable", "ValidatingWebhookConfiguration/broken", "--reason", "its service is gone")
        undo = said.split("undo: kubechronicle repair undo ")[1].strip()
        assert said.startswith(f"revision {undo}: take 1 webhook out of")
        assert cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})[0] == 422
        cluster.repair("disable", "validatingadmissionpolicy/nothing")
        assert cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})[0] == 201
        _, change = cluster.ask("GET", f"/apis/history.kubechronicle.dev/v1/clusterrevisions/{undo}")
        assert "system:kubechronicle-repair:" in json.dumps(change)
        assert "its service is gone" in json.dumps(change)
        assert cluster.run("repair", "disable", "validatingwebhookconfiguration/broken").returncode == 1
    # Without a server: undo, which puts the webhook back.
    cluster.repair("undo", undo)
    assert "broken.example.com at service default/gone" in cluster.repair("list")
    verified = cluster.run("verify")
    assert verified.returncode == 0, verified
    with cluster.serving():
        assert cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "y"}})[0] == 500


def test_roles_are_taken_given_and_given_back(tmp_path: Path) -> None:
    """The objects are encrypted at rest."""
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["clusterrolebindings.rbac.authorization.k8s.io"],
                "providers": [{"secretbox": {"keys": [{"name": "k", "secret": "A" * 43 + "="}]}}],
            }
        ],
    }
    file = tmp_path / "encryption"
    file.write_text(json.dumps(configuration))
    cluster = Cluster(tmp_path, "--encryption-provider-config", str(file))
    with cluster.serving():
        make(cluster, BINDINGS, EVERYBODY)
        assert cluster.ask("GET", "/api/v1/secrets", token="j")[0] == 200
        cluster.repair("unbind", "clusterrolebinding/everybody", "--group", "system:authenticated")
        assert cluster.ask("GET", "/api/v1/secrets", token="j")[0] == 403
        subjects = cluster.ask("GET", f"{BINDINGS}/everybody")[1]["subjects"]
        assert [each["name"] for each in subjects] == ["robot"]
        cluster.repair("unbind", "clusterrolebinding/everybody")
        assert cluster.ask("GET", f"{BINDINGS}/everybody")[0] == 404
    (line,) = cluster.repair("list", "--deleted").splitlines()
    assert line.startswith("clusterrolebindings/everybody  deleted: kubechronicle repair undo ")
    cluster.repair("undo", line.split()[-1])
    cluster.repair("grant", "--user", "jane", "--reason", "on call")
    without_key = FORKS.run([COMMAND, "repair", "list", "--data-dir", str(cluster.data)])
    assert without_key.returncode == MISTAKE
    assert "give the server's --encryption-provider-config" in without_key.stderr.splitlines()[-1]
    assert cluster.run("verify").returncode == 0
    with cluster.serving():
        assert cluster.ask("GET", "/api/v1/secrets", token="j")[0] == 200
        held = cluster.ask("GET", f"{BINDINGS}/everybody")[1]
        assert [each["name"] for each in held["subjects"]] == ["robot"]
        for arguments, message in (
            (("unbind", "foo/x"), "'foo' is none of clusterrolebindings, rolebindings"),
            (("unbind", "rolebinding/x"), "rolebindings are in a namespace: give -n"),
            (("unbind", "clusterrolebinding"), "'clusterrolebinding' is no TYPE/NAME"),
            (("unbind", "clusterrolebinding/none"), "there is no clusterrolebindings.rbac.authorization.k8s.io none"),
            (("disable", "clusterrolebinding/x"), "'clusterrolebinding' is none of validatingwebhookconfigurations"),
            (("grant",), "name the administrator: --user NAME or --group NAME"),
            (("undo", "999999"), "there is no revision 999999"),
            (("undo", "5"), "which repair does not change"),
            (("undo", "five"), "invalid int value"),
        ):
            done = cluster.run("repair", *arguments)
            assert done.returncode == MISTAKE
            assert message in done.stderr
            assert done.stderr.count("\n") == 1


def test_without_a_database_it_says_so(tmp_path: Path) -> None:
    done = Cluster(tmp_path).run("repair", "list")
    assert done.returncode == MISTAKE
    assert "there is no database in" in done.stderr


@pytest.mark.parametrize("action", ["list", "disable", "unbind", "grant", "undo"])
def test_each_action_has_help(action: str) -> None:
    done = subprocess.run([COMMAND, "repair", action, "--help"], capture_output=True, text=True, check=True)
    assert "--data-dir" in done.stdout
