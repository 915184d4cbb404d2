"""The images of a real node's pods, made from programs of this machine and of .cache/node/bin.

No registry elsewhere is asked: registry.py serves these. The images of Kubernetes' end-to-end tests have their upstream
names, so that these tests run unchanged. Where upstream builds on Alpine Linux, these contain busybox, bash and a few
programs of this machine with their libraries. nginx is busybox' httpd: no test looks at more than the pages it serves.
Images that no module and no program here can build are absent, and ``docs/conformance.md`` names the tests that need
them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.real_node.archives import File, Folder, Image, Link, Tree, write_archive
from kubechronicle.ops.development.real_node.programs import BIN, CACHE, STAGING_MODULE, Unavailable, module_folder

UPSTREAM = "registry.k8s.io/e2e-test-images"
PAUSE = "registry.k8s.io/pause:3.10.2"
AGNHOST = "kubechronicle.local/agnhost:1"
BUSYBOX = "kubechronicle.local/busybox:1"
METRICS_SERVER = "kubechronicle.local/metrics-server:1"

TOOLS = ("curl", "dig", "nc.openbsd", "ss", "getent", "ipcs")
"""Programs of this machine that tests call within agnhost. One that is not installed is left out."""

USERS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n",
    "etc/group": "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


# An image in the table of Kubernetes' tests: its name and tag.
_LISTED = re.compile(r'= Config\{list\.(?:PromoterE2eRegistry|GcEtcdRegistry), "([^"]+)", "([^"]+)"\}')


@cache
def tags() -> dict[str, list[str]]:
    """Return the tags of upstream's images by name, as the tests of this version of Kubernetes have them."""
    found: dict[str, list[str]] = {}
    for name, tag in _LISTED.findall((_source("test/utils/image") / "manifest.go").read_text()):
        found.setdefault(name, []).append(tag)
    return found


def upstream(name: str) -> list[str]:
    """Return the full names of an image of upstream's tests, one for each tag."""
    return [f"{UPSTREAM}/{name}:{tag}" for tag in tags()[name]]


def make_images(folder: Path) -> list[Path]:
    """Write the archives of all images whose programs exist into ``folder``. Returns their paths."""
    made = []
    for number, image in enumerate(_images()):
        path = folder / f"image-{number}.tar"
        write_archive(path, image)
        made.append(path)
    return made


def _images() -> Iterator[Image]:
    base = _busybox()
    tools = _tools()
    agnhost: Tree = {
        "agnhost": File(BIN / "agnhost"),
        "agnhost-2": Link("agnhost"),
        "coredns": File(BIN / "coredns"),
        "uploads": Folder(0o777),
        **{
            f"localhost.{end}": File(_source("test/images/agnhost/porter") / f"localhost.{end}")
            for end in ("crt", "key")
        },
    }
    yield Image(names=[PAUSE], layers=[{"pause": File(pause_program())}], entrypoint=["/pause"], user="65535:65535")
    yield Image(
        names=[BUSYBOX, *upstream("busybox"), "docker.io/library/busybox:latest"], layers=[base], command=["sh"]
    )
    yield Image(names=upstream("nonroot"), layers=[base], command=["sh"], user="1234")
    yield Image(names=upstream("glibc-dns-testing"), layers=[base, tools], command=["sh"])
    yield Image(
        names=[AGNHOST, *upstream("agnhost")],
        layers=[base, tools, agnhost], entrypoint=["/agnhost"], command=["pause"],
    )  # fmt: skip
    for version in tags()["nginx"]:
        page = "usr/share/nginx/html"
        pages: Tree = {f"{page}/index.html": File(text=f"<h1>Welcome to nginx!</h1> {version}\n", mode=0o644)}
        command = ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", f"/{page}"]
        yield Image(names=[f"{UPSTREAM}/nginx:{version}"], layers=[base, pages], command=command)
    for name in ("kitten", "nautilus"):
        pages = {
            f"{name}.jpg": File(text=name, mode=0o644),
            "data.json": File(text=f'{{"image": "{name}.jpg"}}', mode=0o644),
            "etc/os-release": File(text='NAME="Alpine Linux"\n', mode=0o644),  # a test reads it in a volume
        }
        yield Image(
            names=upstream(name),
            layers=[base, tools, agnhost, pages], entrypoint=["/agnhost"], command=["test-webserver"],
        )  # fmt: skip
    yield Image(
        names=[METRICS_SERVER], layers=[{"metrics-server": File(BIN / "metrics-server"), "tmp": Folder(0o1777)}],
        entrypoint=["/metrics-server"],
    )  # fmt: skip
    yield from _images_of_specs(base)


def _images_of_specs(base: Tree) -> Iterator[Image]:
    """Yield the images that only the upstream tests need, if their programs were built."""
    if (BIN / "sample-apiserver").is_file():
        store = reference.etcd()
        server: Tree = {"sample-apiserver": File(BIN / "sample-apiserver"), "tmp": Folder(0o1777)}
        yield Image(names=upstream("sample-apiserver"), layers=[server], entrypoint=["/sample-apiserver"])
        etcd: Tree = {"usr/local/bin/etcd": File(store), **_libraries([store])}
        yield Image(names=[f"registry.k8s.io/etcd:{tag}" for tag in tags()["etcd"]], layers=[base, etcd])
    if (BIN / "nonewprivs").is_file():
        program: Tree = {"usr/local/bin/nnp": File(BIN / "nonewprivs", mode=0o6755)}
        yield Image(names=upstream("nonewprivs"), layers=[base, program], command=["nnp"])


def _busybox() -> Tree:
    """Return a small system: busybox under the names of its applets, bash, users, and a writable /tmp.

    The shell is bash. busybox' own runs its applets whatever PATH says, and drops environment variables whose names are
    not those of shell variables.
    """
    program, shell = (
        Path(shutil.which("busybox") or "busybox").resolve(),
        Path(shutil.which("bash") or "bash").resolve(),
    )
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    applets = {f"bin/{name}": Link("busybox") for name in listed.stdout.split() if name != "busybox"}
    return {
        **_libraries([program, shell]),
        **applets,
        "bin/busybox": File(program),
        "bin/bash": File(shell),
        "bin/sh": Link("bash"),
        "tmp": Folder(0o1777),
        "root": Folder(0o700),
        "usr/bin/env": Link("../../bin/busybox"),
        **{path: File(text=text, mode=0o644) for path, text in USERS.items()},
    }


def _tools() -> Tree:
    """Return the programs of ``TOOLS`` that this machine has, with their libraries."""
    found = {name: Path(path).resolve() for name in TOOLS if (path := shutil.which(name))}
    tree: dict[str, File | Link | Folder] = {
        f"usr/bin/{name.partition('.')[0]}": File(path) for name, path in found.items()
    }
    return tree | dict(_libraries(list(found.values())))


def _libraries(programs: Sequence[Path]) -> Tree:
    """Return the shared libraries of programs, at their paths on this machine, as ldd lists them."""
    tree: dict[str, File] = {}
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        for path in re.findall(r"(/\S+) \(0x", listed.stdout):
            tree[path.lstrip("/")] = File(Path(path).resolve())
    return tree


def pause_program() -> Path:
    """Return the program of the pause image, one C file of Kubernetes. It is compiled at the first call.

    The namespaces of the node need it before any image: their first process runs it (place.py).
    """
    program = BIN / "pause"
    if not program.is_file():
        source = _source("build/pause/linux") / "pause.c"
        command = ["gcc", "-Os", "-static", "-DVERSION=3.10.2", "-o", str(program), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"the pause image was not built: {done.stderr.strip().splitlines()[-1]}")
    return program


def _source(path: str) -> Path:
    return module_folder(reference.find_go(), STAGING_MODULE) / path


__all__ = ["AGNHOST", "BUSYBOX", "CACHE", "METRICS_SERVER", "PAUSE", "make_images", "pause_program"]
