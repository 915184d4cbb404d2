"""A cluster of one real node: an API server, kube-controller-manager, kube-scheduler, and the node's programs.

    with running_node(our_server) as node:
        node.kubectl("get", "nodes")

Everything lives in a temporary folder and in a ``Place``, and is gone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from kubechronicle.ops.development.real_node import configuration
from kubechronicle.ops.development.real_node.images import make_images, pause_program
from kubechronicle.ops.development.real_node.place import DNS, Component, Place, place, wait_for
from kubechronicle.ops.development.real_node.programs import BIN, NODE, ROOT, build
from kubechronicle.ops.development.real_node.registry import registry
from kubechronicle.ops.development.real_node.servers import ApiServer, apply

NAME = "node-1"
READY_TIMEOUT = 180.0
COMMAND_TIMEOUT = 300.0

KUBECTL = ROOT / ".cache" / "bin" / "kubectl"  # built by tests/clients/prepare.sh

StartServer = Callable[[Path, Place], AbstractContextManager[ApiServer]]


@dataclass(slots=True)
class Node:
    """A running cluster. ``components``: programs by name, to be killed and started by tests."""

    home: Path
    place: Place
    server: ApiServer
    admin: Path
    components: dict[str, Component] = field(default_factory=dict)
    proxied: bool = False
    """kube-proxy runs, so that Services have addresses."""

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a kubectl that is cluster administrator."""
        return os.environ | {"KUBECONFIG": str(self.admin), "HOME": str(self.home)} | dict(more or {})

    def call(
        self,
        *arguments: str,
        stdin: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = COMMAND_TIMEOUT,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl to its end."""
        return subprocess.run(
            [str(KUBECTL), *arguments],
            input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True, text=True, check=False, timeout=timeout, env=self.environment(environment),
        )  # fmt: skip

    def kubectl(self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Run kubectl. Return its output. Raises AssertionError if it fails."""
        done = self.call(*arguments, stdin=stdin, environment=environment)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def logs(self, *, lines: int = 10) -> str:
        """Return the ends of the components' logs."""
        return "\n".join(f"== {name}\n{component.tail(lines=lines)}" for name, component in self.components.items())


@contextlib.contextmanager
def running_node(start_server: StartServer) -> Iterator[Node]:
    """Run a cluster of one node until the end of the block. Raises Unavailable, or TimeoutError with a log."""
    build(NODE)
    pause_program()
    with contextlib.ExitStack() as stack:
        home = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kubechronicle-node-", ignore_cleanup_errors=True))
        )
        home.chmod(0o755)  # an embedded Postgres runs as another user
        located = stack.enter_context(place())
        server = stack.enter_context(start_server(home, located))
        admin = server.kubeconfig(home / "admin.kubeconfig", "kubernetes-admin", "system:masters")
        node = Node(home, located, server, admin)
        stack.callback(_stop, node)
        _start_controllers(node)
        images = stack.enter_context(registry(located.outside, home / "containerd"))
        configuration.mirror(home, images.url)
        images.images = _start_runtime(node)
        _start_kubelet(node)
        _start_services(node)
        yield node


def _start(node: Node, name: str, *command: str) -> Component:
    component = Component(node.place, [str(BIN / name), *command], node.home / f"{name}.log")
    node.components[name] = component
    component.start()
    return component


def _stop(node: Node) -> None:
    """Stop the programs in reverse. Containers and mounts go with the place."""
    for component in reversed(node.components.values()):
        component.kill(signal.SIGTERM)


def _start_controllers(node: Node) -> None:
    """Start kube-controller-manager and kube-scheduler, which run outside of the node in a real cluster."""
    pki = node.server.pki
    manager = node.server.kubeconfig(node.home / "manager.kubeconfig", "system:kube-controller-manager")
    _start(
        node, "kube-controller-manager", f"--kubeconfig={manager}", f"--authentication-kubeconfig={manager}",
        f"--authorization-kubeconfig={manager}", "--use-service-account-credentials", "--leader-elect=false",
        f"--service-account-private-key-file={pki / 'sa.key'}", f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}", f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--bind-address=127.0.0.1", "--controllers=*,bootstrapsigner,tokencleaner",
        # The node is not lost for the tests that stop its kubelet for a while, but for longer ones.
        "--node-monitor-grace-period=30s",
    )  # fmt: skip
    scheduler = node.server.kubeconfig(node.home / "scheduler.kubeconfig", "system:kube-scheduler")
    _start(
        node, "kube-scheduler", f"--kubeconfig={scheduler}", f"--authentication-kubeconfig={scheduler}",
        f"--authorization-kubeconfig={scheduler}", "--leader-elect=false", "--bind-address=127.0.0.1",
    )  # fmt: skip


def _start_runtime(node: Node) -> dict[str, str]:
    """Start containerd, and import the images. Return the digests of their manifests by name."""
    home = node.home
    runc = shutil.which("runc")
    assert runc is not None  # check_machine has found it
    (home / "containerd.toml").write_text(configuration.containerd(home, runc))
    (home / "cni").mkdir()
    (home / "cni" / "10-pods.conflist").write_text(configuration.cni(home, node.place))
    component = Component(
        node.place, [str(BIN / "containerd"), "--config", str(home / "containerd.toml")], home / "containerd.log",
        environment={"PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}"},  # to find the shim
    )  # fmt: skip
    node.components["containerd"] = component
    component.start()
    ctr = [str(BIN / "ctr"), "--address", configuration.socket(home), "--namespace", "k8s.io"]
    wait_for(lambda: _succeeds(node.place, *ctr, "version"), "containerd answers", timeout=60, component=component)
    folder = home / "images"
    folder.mkdir()
    for archive in make_images(folder):
        node.place.run(*ctr, "images", "import", "--local", str(archive))
        archive.unlink()
    lines = node.place.run(*ctr, "images", "list").splitlines()[1:]
    return {name: digest for name, _, digest, *_ in map(str.split, lines)}


def _start_kubelet(node: Node) -> None:
    home = node.home
    (home / "resolv.conf").write_text(f"nameserver {node.place.inside}\n")
    (home / "kubelet.yaml").write_text(configuration.kubelet(home, node.place, node.server.pki / "ca.crt"))
    credentials = node.server.kubeconfig(home / "kubelet.kubeconfig", f"system:node:{NAME}", "system:nodes")
    component = _start(
        node, "kubelet", f"--config={home / 'kubelet.yaml'}", f"--kubeconfig={credentials}",
        f"--root-dir={home / 'kubelet'}", f"--cert-dir={home / 'kubelet-pki'}", f"--hostname-override={NAME}",
        f"--node-ip={node.place.inside}",
    )  # fmt: skip
    wait_until_ready(node, component)


def wait_until_ready(node: Node, component: Component) -> None:
    """Wait until the node is Ready. Raises TimeoutError."""

    def is_ready() -> bool:
        answer = client.get(f"/api/v1/nodes/{NAME}")
        conditions = answer.json().get("status", {}).get("conditions", []) if answer.status_code == 200 else []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    with node.server.client() as client:
        wait_for(is_ready, "the node is Ready", timeout=READY_TIMEOUT, component=component)


def _start_services(node: Node) -> None:
    """Start kube-proxy, and CoreDNS behind a Service if the kernel has let kube-proxy work."""
    proxy = node.server.kubeconfig(node.home / "proxy.kubeconfig", "system:kube-proxy")
    _start(
        node, "kube-proxy", f"--kubeconfig={proxy}", "--proxy-mode=iptables", f"--cluster-cidr={node.place.pods}",
        f"--hostname-override={NAME}", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    )  # fmt: skip
    with node.server.client() as client:
        apply(client, configuration.dns_objects(node.place), configuration.PATHS)
    dns = node.server.kubeconfig(node.home / "dns.kubeconfig", "system:coredns")
    (node.home / "Corefile").write_text(configuration.corefile(dns, node.place))
    _start(node, "coredns", "-conf", str(node.home / "Corefile"))
    with contextlib.suppress(TimeoutError):
        wait_for(
            lambda: DNS in node.place.run("iptables-save", "-t", "nat"), "kube-proxy has written rules",
            timeout=60, component=node.components["kube-proxy"],
        )  # fmt: skip
        node.proxied = True


def _succeeds(place: Place, *command: str) -> bool:
    try:
        place.run(*command)
    except subprocess.CalledProcessError:
        return False
    return True
