"""The cluster of a test, as one user: objects, manifests, other users, the past, and ready-made clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.testing.history import History
from kubechronicle.ops.testing.named import named

if TYPE_CHECKING:
    from kubechronicle.ops.testing.server import TestServer

FIELD_MANAGER: Final = "pytest"
APPLY: Final = "application/apply-patch+yaml"
DEFINITION: Final = "CustomResourceDefinition"
PATIENCE: Final = 10.0  # seconds
RBAC: Final = "rbac.authorization.k8s.io"

Object = dict[str, Any]
Manifest = str | Path | Mapping[str, Any]
"""The path of a YAML file, a pattern of such paths (crds/*.yaml), or an object."""


class Cluster:
    """A cluster that began clean with this test.

    ``kubeconfig``: the file for other programs; KUBECONFIG names that of the admin while the test runs.
    """

    def __init__(self, server: TestServer, kubeconfig_file: Path | None = None, moment: str = "") -> None:
        self._server = server
        self.url = server.url
        self.kubeconfig = kubeconfig_file or server.kubeconfig
        target = kubeconfig.of_file(self.kubeconfig)
        self.client = Client(HttpTransport(target)).at(moment)

    # -- objects ------------------------------------------------------------------------------------------------------

    def get(self, wanted: Any, namespace: str = "default") -> Object | None:
        """Return an object, named as "deployment/web" or by any client's object; None if there is none."""
        return self.client.get_if(self._path(wanted, namespace))

    def objects(self, kind: str, namespace: str = "") -> list[Object]:
        """Return the objects of a kind, of one namespace or of all."""
        found = Kinds.discover(self.client).find(kind)
        return [dict(each) for each in self.client.items(found.path(namespace if found.namespaced else ""))]

    def apply(self, *manifests: Manifest, namespace: str = "default") -> list[Object]:
        """Apply manifests, on the server's side, and return the objects. Wait until definitions are established."""
        applied = []
        for manifest in manifests:
            for obj in _read(manifest):
                path = self._path(obj, namespace)
                query = {"fieldManager": FIELD_MANAGER, "force": "true"}
                applied.append(dict(self.client.request("PATCH", path, query, obj, content_type=APPLY)))
                if obj.get("kind") == DEFINITION:
                    self.wait_for(obj, _is_established)
        return applied

    def delete(self, wanted: Any, namespace: str = "default") -> None:
        """Delete an object, which may be gone already."""
        with suppress(ApiError):
            self.client.request("DELETE", self._path(wanted, namespace))

    def wait_for(
        self,
        wanted: Any,
        until: Callable[[Object], bool] = bool,
        *,
        namespace: str = "default",
        timeout: float = PATIENCE,
    ) -> Object:
        """Return the object as soon as it satisfies the condition. TimeoutError."""
        for obj in self._states(wanted, namespace, timeout):
            if obj is not None and until(obj):
                return obj
        raise TimeoutError(f"{_text(wanted)} is not as expected after {timeout:g} s: {self.get(wanted, namespace)}")

    def wait_gone(self, wanted: Any, *, namespace: str = "default", timeout: float = PATIENCE) -> None:
        """Wait until there is no such object. TimeoutError."""
        if all(obj is not None for obj in self._states(wanted, namespace, timeout)):
            raise TimeoutError(f"{_text(wanted)} is still there after {timeout:g} s")

    def _states(self, wanted: Any, namespace: str, timeout: float) -> Iterator[Object | None]:
        """Yield the present state of an object and the following ones, None while it does not exist."""
        path = self._path(wanted, namespace)
        folder, _, name = path.rpartition("/")
        only = {"fieldSelector": f"metadata.name={name}"}
        page = self.client.get(folder, only)
        yield next((dict(each) for each in page["items"]), None)
        query = {**only, "resourceVersion": page["metadata"]["resourceVersion"]}
        for event in self.client.watch(folder, {**query, "timeoutSeconds": str(max(1, math.ceil(timeout)))}):
            yield None if event["type"] == "DELETED" else dict(event["object"])

    def _path(self, wanted: Any, namespace: str) -> str:
        subject = named(wanted, namespace).subject(Kinds.discover(self.client))
        return subject.kind.path(subject.namespace, subject.name)

    # -- users --------------------------------------------------------------------------------------------------------

    def user(self, name: str, *, groups: Sequence[str] = (), role: str = "", namespace: str = "default") -> Cluster:
        """Return the cluster as another user, who has a certificate of its own.

        ``role``: a ClusterRole, such as view or edit, that the user gets in the namespace; with "" everywhere
        """
        if role:
            self._bind(name, role, namespace)
        return Cluster(self._server, self._server.credentials(name, groups))

    def _bind(self, name: str, role: str, namespace: str) -> None:
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        metadata = {"name": f"{name}-{role}".replace(":", "-")} | ({"namespace": namespace} if namespace else {})
        self.apply(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": kind,
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
            }
        )

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The newest revision: a moment to return to, with ``at``."""
        page = self.client.get("/api/v1/namespaces", {"limit": "1"})
        return int(page["metadata"]["resourceVersion"])

    def at(self, moment: int | str) -> Cluster:
        """Return the cluster as it was at a revision or a time, such as "2s"; it can be read only."""
        return Cluster(self._server, self.kubeconfig, self.client.resolve_moment(str(moment)))

    @property
    def history(self) -> History:
        """The changes of this test."""
        return History(self._server.admin, self._server.mark)

    # -- clients ------------------------------------------------------------------------------------------------------

    def kubernetes_client(self) -> Any:
        """Return an ApiClient of the package kubernetes."""
        from kubernetes import config

        return config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]

    async def kubernetes_asyncio_client(self) -> Any:
        """Return an ApiClient of the package kubernetes_asyncio, to be closed by the test."""
        from kubernetes_asyncio import config

        return await config.new_client_from_config(str(self.kubeconfig))

    def lightkube_client(self, namespace: str = "default") -> Any:
        """Return a Client of the package lightkube."""
        from lightkube import Client as LightkubeClient
        from lightkube import KubeConfig

        return LightkubeClient(KubeConfig.from_file(self.kubeconfig), namespace=namespace)

    def kr8s_client(self, namespace: str = "default") -> Any:
        """Return an Api of the package kr8s."""
        import kr8s

        return kr8s.api(kubeconfig=str(self.kubeconfig), namespace=namespace)

    def kopf(self, *arguments: str | Path) -> Any:
        """Run an operator of kopf within the block: ``with kubernetes.kopf("operator.py"):``.

        The arguments are those of `kopf run`. An error of the operator's start is raised at the end of the block.
        """
        from kopf.testing import KopfRunner

        scope = [] if any(each in ("-A", "-n", "--namespace", "--all-namespaces") for each in arguments) else ["-A"]
        return KopfRunner(["run", *scope, *map(str, arguments)])


def is_ready(obj: Object) -> bool:
    """Tell whether an object has the condition Ready: a pod, a node, and custom objects that follow the convention."""
    return _has_condition(obj, "Ready")


def _is_established(definition: Object) -> bool:
    return _has_condition(definition, "Established")


def _has_condition(obj: Object, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _text(wanted: Any) -> str:
    return wanted if isinstance(wanted, str) else "/".join(named(wanted, "")[:2])


def _read(manifest: Manifest) -> list[Object]:
    """Return the objects of a manifest: of files in the order of their names. OperatorError: there is no such file."""
    if isinstance(manifest, Mapping):
        return [dict(manifest)]
    path = Path(manifest)
    files = sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]
    if not path.exists():
        files = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    if not files:
        raise OperatorError(f"there is no manifest {manifest}")
    objects: list[Object] = []
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            if document:
                objects += document["items"] if str(document.get("kind", "")).endswith("List") else [document]
    return objects
