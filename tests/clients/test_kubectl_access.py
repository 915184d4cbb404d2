"""kubectl commands about users and permissions: auth, create token, config, and the kubeconfigs the server writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import BINARIES, Api, Server, prepare, unique
from programs import Kubectl

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Api]:
    with closing(server.api()) as connection:
        yield connection


@pytest.fixture
def admin(server: Server, api: Api, tmp_path: Path) -> Iterator[Kubectl]:
    prepare("kubectl")
    name = api.namespace(unique("auth"))
    yield Kubectl(str(BINARIES / "kubectl"), server, tmp_path, name)
    api.request("DELETE", f"/api/v1/namespaces/{name}")


@dataclass
class As(Kubectl):
    """kubectl with a kubeconfig of its own."""

    kubeconfig: Path = Path()

    def _environment(self) -> dict[str, str]:
        return {**Kubectl._environment(self), "KUBECONFIG": str(self.kubeconfig)}


def kubeconfig(server: Server, *arguments: str) -> str:
    """Return the output of `kubechronicle kubeconfig`."""
    command = [*server.command(), "kubeconfig", "--data-dir", str(server.data_dir), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture
def jane(admin: Kubectl, tmp_path: Path) -> As:
    """A developer with a kubeconfig from `kubechronicle kubeconfig`."""
    file = tmp_path / "jane.kubeconfig"
    file.write_text(kubeconfig(admin.server, "--user", "jane", "--group", "developers", "--group", "oncall"))
    return As(admin.binary, admin.server, admin.home, admin.namespace, kubeconfig=file)


def whoami(kubectl: Kubectl, *arguments: str) -> Any:
    """Return the user from `kubectl auth whoami`."""
    return json.loads(kubectl("auth", "whoami", "-o", "json", *arguments))["status"]["userInfo"]


def rules(text: str) -> dict[str, list[str]]:
    """Return the rows of `auth can-i --list`: resource (or URL) to its verbs."""
    verbs: dict[str, list[str]] = {}
    header, *rows = text.splitlines()
    assert header.split() == ["Resources", "Non-Resource", "URLs", "Resource", "Names", "Verbs"]
    for row in rows:
        resource = row.split()[0] if not row.startswith(" ") else row[row.index("[") + 1 : row.index("]")]
        verbs[resource] = row[row.rindex("[") + 1 : -1].split()
    return verbs


def test_whoami_names_the_user_of_a_kubeconfig(admin: Kubectl, jane: As) -> None:
    her = whoami(jane)
    assert her["username"] == "jane"
    assert set(her["groups"]) == {"developers", "oncall", "system:authenticated"}
    assert her["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
    shown = [line.split() for line in jane("auth", "whoami").splitlines()]
    assert shown[:2] == [["ATTRIBUTE", "VALUE"], ["Username", "jane"]]
    assert shown[2][0] == "Groups"
    assert "system:masters" in whoami(admin)["groups"]


def test_a_new_user_may_only_read_discovery(jane: As) -> None:
    assert jane("get", "--raw", "/readyz") == "ok"
    assert "Server Version: v1.37." in jane("version")
    assert "configmaps" in jane("api-resources")
    refused = jane.refused("get", "configmaps")
    assert refused == (
        'Error from server (Forbidden): configmaps is forbidden: User "jane" cannot list resource "configmaps" '
        f'in API group "" in the namespace "{jane.namespace}"\n'
    )
    no = jane.call("auth", "can-i", "list", "configmaps")
    assert (no.returncode, no.stdout) == (1, "no\n")
    listed = rules(jane("auth", "can-i", "--list"))
    assert listed["selfsubjectaccessreviews.authorization.k8s.io"] == ["create"]
    assert listed["selfsubjectreviews.authentication.k8s.io"] == ["create"]
    assert listed["/readyz"] == ["get"]
    assert "configmaps" not in listed


def test_a_grant_to_a_group_takes_effect_at_once(admin: Kubectl, jane: As) -> None:
    admin("create", "role", "editor", "--verb=get,list,create", "--resource=configmaps,deployments.apps")
    admin("create", "role", "one", "--verb=delete", "--resource=secrets", "--resource-name=hers")
    admin("create", "rolebinding", "editors", "--role=editor", "--group=developers")
    admin("create", "rolebinding", "one", "--role=one", "--user=jane")
    assert jane("auth", "can-i", "create", "deployments.apps") == "yes\n"
    assert jane("create", "configmap", "hers") == "configmap/hers created\n"
    listed = rules(jane("auth", "can-i", "--list"))
    assert (sorted(listed["configmaps"]), sorted(listed["deployments.apps"])) == (["create", "get", "list"],) * 2
    assert listed["secrets"] == ["delete"]
    for arguments, answer in (
        (("delete", "secrets/hers"), "yes\n"),
        (("delete", "secrets/his"), "no\n"),
        (("get", "configmaps/status"), "yes\n"),  # one object by its name
        (("get", "configmaps", "--subresource=status"), "no\n"),
        (("list", "configmaps", "-A"), "no\n"),
    ):
        assert jane.call("auth", "can-i", *arguments).stdout == answer, arguments
    assert admin("auth", "can-i", "list", "configmaps", "--as=jane", "--as-group=developers") == "yes\n"
    assert admin.call("auth", "can-i", "list", "configmaps", "--as=jane").stdout == "no\n"
    admin("delete", "rolebinding", "editors")
    assert jane.call("auth", "can-i", "create", "deployments.apps").stdout == "no\n"
    assert jane("auth", "can-i", "delete", "secrets/hers") == "yes\n"


def test_roles_are_reconciled_without_escalation(admin: Kubectl, jane: As) -> None:
    """`auth reconcile` changes only differences. A user who may write roles cannot grant more than their own rights."""
    admin("create", "role", "granter", "--verb=get,create,update,patch,list", f"--resource=roles.{RBAC},pods")
    admin("create", "rolebinding", "granters", "--role=granter", "--user=jane")

    def role(*verbs: str) -> str:
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}
        metadata = {"name": "made", "namespace": jane.namespace}
        return json.dumps({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})

    assert "role.rbac.authorization.k8s.io/made reconciled" in jane("auth", "reconcile", "-f", "-", stdin=role("get"))
    jane("auth", "reconcile", "-f", "-", stdin=role("get", "list"))
    held = json.loads(admin("get", "role", "made", "-o", "json"))["rules"]
    assert {verb for rule in held for verb in rule["verbs"]} == {"get", "list"}
    complaint = jane.refused("auth", "reconcile", "-f", "-", stdin=role("get", "delete"))
    assert 'roles.rbac.authorization.k8s.io "made" is forbidden: user "jane"' in complaint
    assert "is attempting to grant RBAC permissions not currently held" in complaint


def test_impersonation(admin: Kubectl, jane: As) -> None:
    user = whoami(
        admin, "--as=sam", "--as-group=developers", "--as-group=oncall", "--as-uid=7", "--as-user-extra=why=a,b"
    )
    assert (user["username"], user["uid"]) == ("sam", "7")
    assert set(user["groups"]) == {"developers", "oncall", "system:authenticated"}
    assert user["extra"] == {"why": ["a,b"]}
    assert 'is forbidden: User "jane" cannot impersonate' in jane.refused("get", "--raw", "/api/v1/nodes", "--as=sam")


def test_a_token_in_a_kubeconfig(admin: Kubectl, tmp_path: Path) -> None:
    admin("create", "serviceaccount", "robot")
    token = admin("create", "token", "robot", "--duration=10m").strip()
    name = f"system:serviceaccount:{admin.namespace}:robot"
    file = tmp_path / "robot.kubeconfig"
    file.write_text(admin("config", "view", "--raw", "--minify"))
    robot = As(admin.binary, admin.server, admin.home, admin.namespace, kubeconfig=file)
    robot("config", "set-credentials", "robot", f"--token={token}")
    robot("config", "set-context", "--current", "--user=robot", f"--namespace={admin.namespace}")
    user = whoami(robot)
    assert user["username"] == name
    assert f"system:serviceaccounts:{admin.namespace}" in user["groups"]
    assert whoami(replace(robot, kubeconfig=admin.server.kubeconfig), f"--as={name}")["groups"] == user["groups"]
    admin("create", "rolebinding", "viewers", "--clusterrole=view", f"--serviceaccount={admin.namespace}:robot")
    assert robot("auth", "can-i", "list", "configmaps") == "yes\n"
    assert robot.call("auth", "can-i", "list", "secrets").stdout == "no\n"
    admin("delete", "serviceaccount", "robot")
    assert "You must be logged in to the server (Unauthorized)" in robot.refused("auth", "whoami")


def test_the_written_kubeconfig(admin: Kubectl, jane: As) -> None:
    """`kubectl config` reads and changes the kubeconfig, and shows no secrets."""
    server = admin.server
    shown = yaml.safe_load(admin("config", "view"))
    assert shown["clusters"][0]["cluster"] == {"certificate-authority-data": "DATA+OMITTED", "server": server.url}
    assert shown["users"][0]["user"] == {
        "client-certificate-data": "DATA+OMITTED",
        "client-key-data": "DATA+OMITTED",
    }
    assert "PRIVATE KEY" not in jane("config", "view")
    context = jane("config", "current-context").strip()
    assert jane("config", "get-contexts", "-o", "name").split() == [context]
    assert jane("config", "get-users").split() == ["NAME", "jane"]
    assert len(jane("config", "get-clusters").split()) == 2
    jane("config", "rename-context", context, "mine")
    jane("config", "set-context", "sam", f"--cluster={shown['clusters'][0]['name']}", "--user=jane")
    jane("config", "set", "users.jane.act-as", "sam")
    jane("config", "use-context", "sam")
    assert yaml.safe_load(jane("config", "view", "--minify"))["users"][0]["user"]["as"] == "sam"
    assert 'User "jane" cannot impersonate' in jane.refused("get", "--raw", "/api/v1/nodes")
    jane("config", "unset", "users.jane.act-as")
    assert whoami(jane)["username"] == "jane"
    # Both files together, as KUBECONFIG may name several.
    both = replace(jane, kubeconfig=Path(f"{server.kubeconfig}:{jane.kubeconfig}"))
    assert len(both("config", "get-users").split()) == 3
    assert whoami(both, "--user=jane")["username"] == "jane"
    assert "system:masters" in whoami(both)["groups"]
