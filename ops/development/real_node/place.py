"""The place where a real node lives: network, mount and process namespaces of its own, held by one process.

A kubelet refuses a loopback address for its node, kube-proxy would write its rules into the machine's own tables, and
containers outlive containerd. So everything of the node runs in namespaces. The process that holds them dies with the
process that started it, and takes containers, mounts, devices and routes with it, even after ``kill -9``. The API
server stays outside, at the outer end of a pair of virtual Ethernet devices:

    API server, tests     10.88.0.1 ── kcn0o ═══ kcn0i ── 10.88.0.2     kubelet, containerd, kube-proxy, CoreDNS
                                                          cni0 10.89.0.1 ── pods 10.89.0.0/24

Several nodes may run at once, each with a number of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.ops.development.real_node.programs import BIN, CACHE, Unavailable

SERVICES = "10.96.0.0/16"
DNS = "10.96.0.10"
NODES_AT_ONCE = 4
# Folders with fixed names that kubelet and containerd use: empty ones in the place, so that the machine's stay as they
# are. /run holds the sockets of containerd's shims and the network namespaces of pods.
PRIVATE_FOLDERS = ("/run", "/var/log/containers", "/var/log/pods", "/var/lib/kubelet", "/var/lib/cni")
# Settings of the kernel that a kubelet changes, and its values. No namespace isolates them, so it sees files with these
# values in their places, and leaves the machine's alone.
KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
CGROUPS = ("kubepods", "k8s.io")  # of pods, and of containers without a pod
STOP_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """The namespaces of node number ``number``; ``holder`` is the process that holds them."""

    number: int
    holder: int

    @property
    def outside(self) -> str:
        """Return the address of this machine as the node sees it."""
        return f"10.{88 + 2 * self.number}.0.1"

    @property
    def inside(self) -> str:
        """Return the node's address."""
        return f"10.{88 + 2 * self.number}.0.2"

    @property
    def pods(self) -> str:
        return f"10.{89 + 2 * self.number}.0.0/24"

    @property
    def devices(self) -> tuple[str, str]:
        """Return the names of the outer and of the inner device."""
        return f"kcn{self.number}o", f"kcn{self.number}i"

    def command(self, *command: str) -> list[str]:
        """Return the command line that runs a command within the namespaces."""
        return ["nsenter", f"--target={self.holder}", "--net", "--mount", "--pid", "--", *command]

    def run(self, *command: str) -> str:
        """Run a command within the namespaces to its end. Return its output. Raises CalledProcessError."""
        return _run(*self.command(*command))

    def cut(self) -> None:
        """Cut the node off, as a broken cable does: packets are lost, and no connection is reset."""
        self.run("iptables", "-t", "raw", "-I", "PREROUTING", *self._from_outside)

    def mend(self) -> None:
        """Undo ``cut``."""
        self.run("iptables", "-t", "raw", "-D", "PREROUTING", *self._from_outside)

    @property
    def _from_outside(self) -> tuple[str, ...]:
        return "-i", self.devices[1], "-j", "DROP"

    def route(self) -> None:
        _run("ip", "route", "replace", self.pods, "via", self.inside, "dev", self.devices[0])


class Component:
    """A long-running program within the place, such as the kubelet. It can be killed and started again."""

    def __init__(
        self, place: Place, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self._command = place.command(*command)
        self._environment = os.environ | dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._environment, start_new_session=True,
            )  # fmt: skip

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end. nsenter does not pass signals on, so its child gets this one."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for child in _children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signum)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            for child in [*_children(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            process.wait()

    def tail(self, *, lines: int = 15) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """Set up the first place that no other process uses. It is gone afterwards. Raises Unavailable."""
    try:
        with contextlib.ExitStack() as stack:
            number = _reserve(stack)
            made = Place(number, stack.enter_context(_holder()))
            stack.callback(_remove, made)
            _remove(made)  # of a run that was killed
            try:
                _connect(made)
            except subprocess.CalledProcessError as error:
                said = str(error.stderr).strip() or str(error)
                command = shlex.join(error.cmd)
                raise Unavailable(f"a real node needs namespaces with a network; {command}: {said}") from error
            yield made
    finally:
        _remove_cgroups()


def _remove_cgroups() -> None:
    """Remove the empty cgroups of pods, unless another node runs, which has the same."""
    with contextlib.ExitStack() as stack, contextlib.suppress(BlockingIOError):
        for lock in CACHE.glob("place-*.lock"):
            fcntl.flock(stack.enter_context(lock.open("w")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in CGROUPS:
            for folder in Path("/sys/fs/cgroup").glob(f"*/{name}"):
                for below in sorted([folder, *folder.rglob("*/")], key=lambda path: -len(path.parts)):
                    with contextlib.suppress(OSError):
                        below.rmdir()


def _reserve(stack: contextlib.ExitStack) -> int:
    CACHE.mkdir(parents=True, exist_ok=True)
    for number in range(NODES_AT_ONCE):
        lock = stack.enter_context((CACHE / f"place-{number}.lock").open("w"))
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number
    raise Unavailable(f"{NODES_AT_ONCE} real nodes run on this machine already: wait until one has stopped")


@contextlib.contextmanager
def _holder() -> Iterator[int]:
    """Run the first process of the namespaces: the pause program, which reaps orphans. Yields its process id."""
    mounts = " && ".join(f"mkdir -p {path} && mount -t tmpfs tmpfs {path}" for path in PRIVATE_FOLDERS)
    kernel = " && ".join(
        f"echo {value} > /run/{number} && mount --bind /run/{number} /proc/sys/{name}"
        for number, (name, value) in enumerate(KERNEL.items())
        if (Path("/proc/sys") / name).exists()
    )
    script = f"mount --make-rshared / && {mounts} && {kernel} && mkdir -p /run/netns && echo ready && exec {BIN}/pause"
    unshare = [
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
    ]
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise Unavailable(f"a real node needs namespaces of its own; unshare: {process.stderr.read().strip()}")
            [first] = _children(process.pid)
            try:
                yield first
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
                process.wait()  # it ends after the last process of the namespace
        finally:
            process.kill()


def _connect(place: Place) -> None:
    outer, inner = place.devices
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", str(place.holder))
    _run("ip", "address", "add", f"{place.outside}/24", "dev", outer)
    _run("ip", "link", "set", outer, "up")
    place.run("ip", "address", "add", f"{place.inside}/24", "dev", inner)
    place.run("ip", "link", "set", inner, "up")
    place.run("ip", "link", "set", "lo", "up")
    place.run("ip", "route", "add", "default", "via", place.outside)
    place.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
    place.route()


def _remove(place: Place) -> None:
    """Remove the outer device, with the inner one and the routes. The kernel would do it a little later."""
    subprocess.run(["ip", "link", "delete", place.devices[0]], capture_output=True, check=False)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wait_for(look: Callable[[], object], condition: str, *, timeout: float, component: Component | None = None) -> None:
    """Wait until ``look()`` is true. Raises TimeoutError with the end of the component's log."""
    end = time.monotonic() + timeout
    while not look():
        ended = component is not None and not component.running
        if ended or time.monotonic() > end:
            log = f"; its log ends:\n{component.tail()}" if component is not None else ""
            raise TimeoutError(f"waited in vain until {condition}{log}")
        time.sleep(0.2)
