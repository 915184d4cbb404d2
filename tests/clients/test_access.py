"""Credentials of real clients:

- kubeconfigs of each kind with client-go; none of them starts a program
- tokens mounted as into a Pod, and rotated while an informer runs
- the in-cluster configuration of the Python client
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import BINARIES, Api, Server, configmap, unique
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config.incluster_config import InClusterConfigLoader
from programs import GoProgram

pytestmark = pytest.mark.usefixtures("rotation")  # it starts before all tests here, and the last test waits for it

Kubeconfig = dict[str, Any]
IN_NO_CERTIFICATE = "127.0.0.2"  # an address of the server that is not in its certificate


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Api]:
    with closing(server.api()) as connection:
        yield connection


@dataclass
class Robot:
    """A service account that may read and watch the ConfigMaps of its namespace."""

    api: Api
    namespace: str
    name: str = "robot"

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def token(self, *, bound_to: str = "") -> str:
        """Return a token of ten minutes, bound to a new Secret of the name ``bound_to`` if given."""
        spec: dict[str, Any] = {"expirationSeconds": 600}
        if bound_to:
            self.api.create(f"{self.path}/secrets", {"metadata": {"name": bound_to}})
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Secret", "name": bound_to}
        made = self.api.create(f"{self.path}/serviceaccounts/{self.name}/token", {"spec": spec})
        return str(made["status"]["token"])

    def revoke(self, bound_to: str) -> None:
        self.api.request("DELETE", f"{self.path}/secrets/{bound_to}").expect(200)


def made_robot(api: Api) -> Robot:
    namespace = api.namespace(unique("access"))
    robot = Robot(api, namespace)
    api.create(f"{robot.path}/serviceaccounts", {"metadata": {"name": robot.name}})
    grant(api, namespace, {"kind": "ServiceAccount", "name": robot.name, "namespace": namespace})
    return robot


@pytest.fixture
def robot(api: Api) -> Iterator[Robot]:
    account = made_robot(api)
    yield account
    api.request("DELETE", f"/api/v1/namespaces/{account.namespace}")


def grant(api: Api, namespace: str, subject: Any) -> None:
    """Allow the subject to read ConfigMaps in the namespace."""
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    api.create(f"{base}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    api.create(f"{base}/rolebindings", {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]})


def put(file: Path, text: str) -> Path:
    """Replace the file in one step, as the kubelet changes mounted files."""
    temporary = file.with_suffix(".new")
    temporary.write_text(text)
    temporary.rename(file)
    return file


# Kubeconfigs


@dataclass
class Kubeconfigs:
    """Variants of the administrator's kubeconfig, written into a folder."""

    server: Server
    folder: Path

    def of(self, name: str, user: Any, **cluster: Any) -> Path:
        """Write a kubeconfig with this user, and changes of the cluster; None removes a field."""
        config = yaml.safe_load(self.server.kubeconfig.read_text())
        config["users"][0]["user"] = user
        entry = {**config["clusters"][0]["cluster"], **{key.replace("_", "-"): cluster[key] for key in cluster}}
        config["clusters"][0]["cluster"] = {key: value for key, value in entry.items() if value is not None}
        return put(self.folder / f"{name}.kubeconfig", yaml.safe_dump(config))

    @property
    def admin(self) -> dict[str, str]:
        """The administrator's user entry: certificate and key inline."""
        user = yaml.safe_load(self.server.kubeconfig.read_text())["users"][0]["user"]
        assert user.keys() == {"client-certificate-data", "client-key-data"}
        return dict(user)

    @property
    def admin_files(self) -> dict[str, str]:
        """The same with certificate and key in files, named by relative paths."""
        for key, name in (("client-certificate-data", "admin.crt"), ("client-key-data", "admin.key")):
            (self.folder / name).write_bytes(base64.b64decode(self.admin[key]))
        return {"client-certificate": "admin.crt", "client-key": "admin.key"}

    @property
    def authority(self) -> str:
        (self.folder / "ca.crt").write_bytes((self.server.data_dir / "pki" / "ca.crt").read_bytes())
        return "ca.crt"


@pytest.fixture
def kubeconfigs(server: Server, tmp_path: Path) -> Kubeconfigs:
    return Kubeconfigs(server, tmp_path)


def users_of(*kubeconfigs: Path) -> list[tuple[dict[str, Any], str]]:
    """Return (user, error) for each kubeconfig, from client-go."""
    files = ",".join(map(str, kubeconfigs))
    command = [str(BINARIES / "informers"), "whoami", "--kubeconfig", files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["kubeconfig"] for answer in answers] == files.split(",")
    return [(answer["user"], answer["error"]) for answer in answers]


def test_certificates_and_tokens(kubeconfigs: Kubeconfigs, robot: Robot) -> None:
    token = robot.token()
    put(kubeconfigs.folder / "token", f"{token}\n")
    by_data, by_files, by_token, by_token_file = users_of(
        kubeconfigs.of("data", kubeconfigs.admin),
        kubeconfigs.of(
            "files",
            kubeconfigs.admin_files,
            certificate_authority_data=None,
            certificate_authority=kubeconfigs.authority,
        ),
        kubeconfigs.of("token", {"token": token}),
        # If both are given, the file counts.
        kubeconfigs.of("token-file", {"token": "not.a.token", "tokenFile": "token"}),
    )
    for user, error in (by_data, by_files):
        assert error == ""
        assert set(user["groups"]) == {"system:masters", "system:authenticated"}
        assert [key for key in user["extra"] if key.endswith("/credential-id")]
    assert by_data[0]["username"] == by_files[0]["username"]
    for user, error in (by_token, by_token_file):
        assert error == ""
        assert user["username"] == robot.user
        assert set(user["groups"]) == {
            "system:serviceaccounts",
            f"system:serviceaccounts:{robot.namespace}",
            "system:authenticated",
        }
        assert user["uid"]


def test_invalid_credentials(kubeconfigs: Kubeconfigs, robot: Robot) -> None:
    token = robot.token()
    head, _, signature = token.rpartition(".")
    altered = f"{head}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"
    put(kubeconfigs.folder / "empty", "")
    answers = users_of(
        kubeconfigs.of("altered", {"token": altered}),
        kubeconfigs.of("stranger", {"token": "abcdef.0123456789abcdef"}),
        kubeconfigs.of("basic", {"username": "admin", "password": "admin"}),
        kubeconfigs.of("both", {**kubeconfigs.admin, "token": altered}),
        kubeconfigs.of("nobody", {}),
        kubeconfigs.of("empty", {"tokenFile": "empty"}),
    )
    altered_token, stranger, basic, both, nobody, empty = answers
    for _, error in (altered_token, stranger):
        assert error == "Unauthorized"
    for user, _ in (altered_token, stranger, basic, nobody, empty):
        assert "username" not in user
    assert nobody[1].startswith('selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous"')
    # The certificate is checked first, and is valid.
    assert set(both[0]["groups"]) == {"system:masters", "system:authenticated"}


def test_impersonation(kubeconfigs: Kubeconfigs, robot: Robot) -> None:
    jane = {
        "as": "jane",
        "as-uid": "42",
        "as-groups": ["developers", "oncall"],
        "as-user-extra": {"reason": ["trouble", "3 a.m."], "example.com/Ticket": ["a b"]},
    }
    files = [
        kubeconfigs.of("jane", {**kubeconfigs.admin, **jane}),
        kubeconfigs.of("robot", {**kubeconfigs.admin, "as": robot.user}),
        kubeconfigs.of("refused", {"token": robot.token(), "as": "jane"}),
        kubeconfigs.of("incomplete", {**kubeconfigs.admin, "as-groups": ["developers"]}),
    ]
    as_jane, as_robot, refused, incomplete = users_of(*files)
    assert as_jane[1] == ""
    assert (as_jane[0]["username"], as_jane[0]["uid"]) == ("jane", "42")
    assert set(as_jane[0]["groups"]) == {"developers", "oncall", "system:authenticated"}
    # Header names have no case: capitals arrive as small letters.
    assert as_jane[0]["extra"] == {"reason": ["trouble", "3 a.m."], "example.com/ticket": ["a b"]}
    assert as_robot[0]["username"] == robot.user
    assert f"system:serviceaccounts:{robot.namespace}" in as_robot[0]["groups"]
    assert f'is forbidden: User "{robot.user}" cannot impersonate' in refused[1]
    assert "username" not in incomplete[0]
    assert incomplete[1]


def test_the_name_in_the_server_certificate(server: Server, kubeconfigs: Kubeconfigs) -> None:
    elsewhere = f"https://{IN_NO_CERTIFICATE}:{server.port}"
    by_address, by_name, by_wrong_name, trusting = users_of(
        kubeconfigs.of("address", kubeconfigs.admin, server=elsewhere),
        kubeconfigs.of("name", kubeconfigs.admin, server=elsewhere, tls_server_name="kubernetes.default.svc"),
        kubeconfigs.of("wrong", kubeconfigs.admin, server=elsewhere, tls_server_name="example.com"),
        kubeconfigs.of(
            "trusting",
            kubeconfigs.admin,
            server=elsewhere,
            certificate_authority_data=None,
            insecure_skip_tls_verify=True,
        ),
    )
    assert "x509" in by_address[1]
    assert IN_NO_CERTIFICATE in by_address[1]
    assert "not example.com" in by_wrong_name[1]
    for user, error in (by_name, trusting):
        assert error == ""
        assert "system:masters" in user["groups"]


# Tokens in files


@dataclass
class Rotation:
    """Informers started with the token t-0 in a file, which has since been replaced by t-1."""

    robot: Robot
    programs: list[GoProgram]


@pytest.fixture(scope="module")
def rotation(server: Server, api: Api, tmp_path_factory: pytest.TempPathFactory, informers: Path) -> Iterator[Rotation]:
    """Start once for the module: client-go needs most of a minute to reread the file, while other tests run."""
    folder = tmp_path_factory.mktemp("rotated")
    made, robot = Kubeconfigs(server, folder), made_robot(api)
    put(folder / "token", robot.token(bound_to="t-0"))
    assert made.authority == "ca.crt"
    api.create(f"{robot.path}/configmaps", configmap("a", value="0"))
    sources = (
        ["--server", server.url, "--mount", str(folder)],
        ["--kubeconfig", str(made.of("rotated", {"tokenFile": "token"}))],
    )
    with ExitStack() as stack:
        programs = [
            stack.enter_context(closing(GoProgram(folder, "inform", *source, "--namespace", robot.namespace)))
            for source in sources
        ]
        for program in programs:
            program.wait("seen", timeout=60, wanted=lambda event: event["value"] == "0")
        put(folder / "token", robot.token(bound_to="t-1"))
        yield Rotation(robot, programs)
    api.request("DELETE", f"/api/v1/namespaces/{robot.namespace}")


def test_the_python_client_in_a_pod(kubeconfigs: Kubeconfigs, robot: Robot, server: Server) -> None:
    """As config.load_incluster_config, on a folder of the test. The token is reread on request."""
    mounted = kubeconfigs.folder
    authority = mounted / kubeconfigs.authority
    token = put(mounted / "token", robot.token(bound_to="t-0"))

    def core() -> client.CoreV1Api:
        configuration = client.Configuration()
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
        loader = InClusterConfigLoader(token_filename=str(token), cert_filename=str(authority), environ=environment)
        loader.load_and_set(configuration)
        return client.CoreV1Api(client.ApiClient(configuration))

    before = core()
    assert before.list_namespaced_config_map(robot.namespace).items == []
    with pytest.raises(ApiException) as caught:
        before.list_namespaced_secret(robot.namespace)
    assert caught.value.status == 403
    assert f'User "{robot.user}" cannot list resource "secrets"' in json.loads(caught.value.body)["message"]
    put(token, robot.token(bound_to="t-1"))
    robot.revoke("t-0")
    with pytest.raises(ApiException) as caught:
        before.list_namespaced_config_map(robot.namespace)
    assert caught.value.status == 401
    after = core()
    assert after.list_namespaced_config_map(robot.namespace).items == []
    review = client.AuthenticationV1Api(after.api_client).create_self_subject_review({})
    assert review.status.user_info.username == robot.user
    assert review.status.user_info.extra["authentication.kubernetes.io/credential-id"]


def test_a_token_is_rotated_while_informers_run(rotation: Rotation) -> None:
    """The informers read the new token in time: no request is rejected, although the old token is invalid by then.
    When the new token becomes invalid as well, requests are rejected."""
    robot, maps = rotation.robot, f"{rotation.robot.path}/configmaps"
    for program in rotation.programs:
        program.wait("token", timeout=90, wanted=lambda event: event["number"] == 2)
    robot.revoke("t-0")
    robot.api.request("PUT", f"{maps}/a", configmap("a", value="1")).expect(200)
    robot.api.create(maps, configmap("b", value="2"))
    seen = []
    for program in rotation.programs:
        program.wait("seen", timeout=60, wanted=lambda event: event["value"] == "1")
        seen.append(program.wait("seen", timeout=60)["name"])
    assert seen == ["b", "b"]
    robot.revoke("t-1")
    for program in rotation.programs:
        program.wait("refused", timeout=60)
        assert program.finish(timeout=60)["tokens"] == 2
