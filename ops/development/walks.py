"""``python -m kubechronicle.ops.development.walks``: how much code a newcomer walks through to follow one request.

A real server runs in this process, on an embedded Postgres and with TLS sockets. Each walk is taken once to warm up,
then traced three times with ``sys.setprofile``. A function counts if all three called it: others belong to other tasks.

    files       files of this project with a function that was called
    functions   these functions; a comprehension counts as part of its function
    changes     pairs of a function and one in another file that it called, directly or through a library
    climbs      of these pairs, those whose second function is in a higher layer, as tests/test_layers.py orders them

The walk of a new field is not traced: it is the number of files that name a field of a kind.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import io
import json
import os
import re
import runpy
import signal
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

import trio

from kubechronicle.ops import commands, terminal
from kubechronicle.ops.client import dispatch
from kubechronicle.ops.server.serve import serve
from kubechronicle.ops.settings.command_line import load_settings

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("api", "eventlog", "actors", "http", "ops")
REPEATS: Final = 3
PATIENCE: Final = 60.0
FIELDS: Final = ("progressDeadlineSeconds", "podReplacementPolicy", "trafficDistribution", "hostnameOverride")
"""Fields of the last walk: of Deployments, Jobs, Services and Pods, and of no other kind."""
KIND: Final = {"apiVersions": ["v1"], "resources": ["deployments"]}
PATCH: Final = [{"op": "add", "path": "/metadata/annotations", "value": {"seen": "yes"}}]
PARTS: Final = re.compile(r"\.<locals>\.<(genexpr|listcomp|dictcomp|setcomp)>")


class Function(NamedTuple):
    file: str
    name: str


class Walk(NamedTuple):
    """The functions in the order of their first calls, and the pairs of which one called the other."""

    order: tuple[Function, ...]
    calls: frozenset[tuple[Function, Function]]

    @property
    def functions(self) -> frozenset[Function]:
        return frozenset(self.order)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(each.file for each in self.functions)

    @property
    def changes(self) -> frozenset[tuple[Function, Function]]:
        return frozenset(call for call in self.calls if call[0].file != call[1].file)

    @property
    def climbs(self) -> frozenset[tuple[Function, Function]]:
        return frozenset(call for call in self.changes if climbs(call[0].file, call[1].file))

    def shared_with(self, other: Walk) -> Walk:
        return Walk(tuple(each for each in self.order if each in other.functions), self.calls & other.calls)


@cache
def layers() -> Mapping[str, Sequence[str]]:
    """Return the folders of each top folder from the ground up."""
    tables = runpy.run_path(str(ROOT / "tests" / "test_layers.py"))
    return cast("Mapping[str, Sequence[str]]", tables["STAIRCASES"])


@cache
def climbs(caller: str, called: str) -> bool:
    """Tell whether a call leads into a higher layer. api and eventlog are of the same height, and so are modules
    directly in a top folder and the folders beside them."""
    (from_top, *origin), (to_top, *target) = Path(caller).parts, Path(called).parts
    if from_top != to_top:
        both_grounds = {from_top, to_top} <= {"api", "eventlog"}
        return not both_grounds and FOLDERS.index(to_top) > FOLDERS.index(from_top)
    stairs = list(layers()[from_top])
    if len(origin) < 2 or len(target) < 2:
        return False
    return stairs.index(target[0]) > stairs.index(origin[0])


class Tracer:
    """Notes the calls of one thread, within ``noting``."""

    def __init__(self) -> None:
        self._known: dict[CodeType, Function | None] = {}
        self._calls: dict[tuple[Function | None, Function], None] = {}
        self._on = False

    def install(self) -> None:
        sys.setprofile(self._profile)

    def begin(self) -> None:
        self._calls = {}
        self._on = True

    def end(self) -> Walk:
        self._on = False
        seen = tuple(self._calls)  # at once: another task of that thread may still be in a call
        order = dict.fromkeys(called for _, called in seen)
        calls = ((caller, called) for caller, called in seen if caller is not None)
        return Walk(tuple(order), frozenset(calls))

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._on or event != "call":
            return
        function = self._function(frame.f_code)
        if function is None:
            return
        outer, caller = frame.f_back, None
        while outer is not None and (caller := self._function(outer.f_code)) is None:
            outer = outer.f_back
        if caller != function:
            self._calls[caller, function] = None

    def _function(self, code: CodeType) -> Function | None:
        """Return the function of this project that a code object belongs to; None: it is a library's, or a module."""
        try:
            return self._known[code]
        except KeyError:
            pass
        function, path = None, Path(os.path.realpath(code.co_filename))
        if code.co_filename[:1] == "/" and path.is_relative_to(ROOT) and code.co_name != "<module>":
            file = path.relative_to(ROOT)
            if file.parts[0] in FOLDERS and file != Path("ops/development/walks.py"):
                function = Function(str(file), PARTS.sub("", code.co_qualname))
        self._known[code] = function
        return function


class Client:
    """A client of the server, on one connection."""

    def __init__(self, url: str, directory: Path, token: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
        self._address = (address.hostname, address.port)
        self._context, self._token = context, token
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(*self._address, context=self._context, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """Send a request, and return the JSON of its answer. SystemExit: it is an error."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "User-Agent": "walks/1"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {content[:300]!r}")
        return json.loads(content)

    def watch(self, path: str) -> Iterator[Any]:
        """Watch on a connection of its own, and yield the events."""
        connection = self._connect()
        connection.request("GET", path, None, {"Authorization": f"Bearer {self._token}"})
        answer = connection.getresponse()
        while line := answer.readline():
            yield json.loads(line)


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "web",
        "image": "registry.example/web:1",
        "ports": [{"containerPort": 8080}],
        "env": [{"name": "COLOUR", "value": "blue"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


class _Reviews(BaseHTTPRequestHandler):
    """A webhook that adds an annotation to each object."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": True}
        if self.path == "/mutate":
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(PATCH).encode()).decode()}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def webhooks(client: Client, directory: Path) -> Iterator[None]:
    """Serve a mutating and a validating webhook of Deployments within the block, with the server's own certificate."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Reviews)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "pki" / "apiserver.crt", directory / "pki" / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    bundle = base64.b64encode((directory / "pki" / "ca.crt").read_bytes()).decode()
    group = "/apis/admissionregistration.k8s.io/v1"
    kinds = (("MutatingWebhookConfiguration", "mutate"), ("ValidatingWebhookConfiguration", "validate"))
    for kind, path in kinds:
        webhook = {
            "name": f"{path}.walks.example",
            "clientConfig": {"url": f"https://localhost:{server.server_port}/{path}", "caBundle": bundle},
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps"], **KIND}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        configuration = {"kind": kind, "apiVersion": group[6:], "metadata": {"name": path}, "webhooks": [webhook]}
        client.ask("POST", f"{group}/{kind.lower()}s", configuration)
    try:
        yield
    finally:
        for kind, path in kinds:
            client.ask("DELETE", f"{group}/{kind.lower()}s/{path}")
        server.shutdown()
        server.server_close()


class Walks:
    """The walks, taken by a thread beside the server. ``server``: the tracer of the server's thread."""

    def __init__(self, server: Tracer, directory: Path, token: str) -> None:
        self._server, self._directory, self._token = server, directory, token
        self._own = Tracer()
        self.found: dict[str, Walk] = {}

    def take(self, url: str) -> None:
        client, path = Client(url, self._directory, self._token), "/apis/apps/v1/namespaces/default/deployments"
        events = client.watch(f"{path}?watch=true")

        def create(number: int) -> None:
            client.ask("POST", path, deployment(f"web-{number}"))
            while next(events)["object"]["metadata"]["name"] != f"web-{number}":
                pass

        self._walk("create, with a watcher", create)

        def get(number: int) -> None:
            client.ask("GET", f"{path}/web-{number}")

        self._walk("GET", get)
        with webhooks(client, self._directory):

            def apply(number: int) -> None:
                changed = deployment(f"web-{number}")
                changed["spec"]["template"]["metadata"]["annotations"] = {"step": str(number)}
                kind = "application/apply-patch+yaml"
                client.ask("PATCH", f"{path}/web-{number}?fieldManager=walks&force=true", changed, kind)

            self._walk("apply, with two webhooks", apply)
        self._own.install()
        kubeconfig = str(self._directory / "admin.kubeconfig")

        def who(number: int) -> None:
            question = ["set", f"deployment/web-{number}", "spec.replicas", "--kubeconfig", kubeconfig]
            with contextlib.redirect_stdout(io.StringIO()):
                dispatch.run("who", question)

        self._walk("who set: server", who, client="who set: client")
        sys.setprofile(None)

    def _walk(self, name: str, step: Callable[[int], None], *, client: str = "") -> None:
        """Take one walk. ``step``: with a number for each time. ``client``: the name of the walk of this thread."""
        step(0)
        for number in range(1, REPEATS + 1):
            self._server.begin()
            self._own.begin()
            step(number)
            for tracer, of in ((self._server, name), (self._own, client)):
                walk = tracer.end()
                if of:
                    self.found[of] = self.found[of].shared_with(walk) if of in self.found else walk


def take_walks(directory: Path) -> dict[str, Walk]:
    """Run a server in this thread, and take the walks beside it."""
    token = "token-of-walks"
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{token},walks,walks,"system:masters"\n')
    data = directory / "data"
    arguments = ["serve", "--data-dir", str(data), "--secure-port", "0", "--token-auth-file", str(tokens)]
    arguments.append("--controllers=")  # their tasks would follow each change, too
    settings = load_settings(commands.make_parser(only="serve").parse_args(arguments))
    tracer = Tracer()
    walks, problems = Walks(tracer, data, token), list[BaseException]()
    lines, written = os.pipe()

    def beside() -> None:
        try:
            with open(lines) as output:
                for line in output:
                    if ready := re.search(r"is ready at (https://\S+?);", line):
                        walks.take(ready[1])
                        return
        except BaseException as problem:
            problems.append(problem)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=beside, daemon=True).start()
    tracer.install()
    try:
        with open(written, "w", buffering=1) as output, contextlib.redirect_stdout(output):
            trio.run(serve, settings)
    finally:
        sys.setprofile(None)
    for problem in problems:
        raise problem
    return walks.found


def files_of_field(field: str) -> list[str]:
    """Return the Python files of the project that name a field of a kind."""
    word = re.compile(rf"\b{field}\b")
    found = [path for top in FOLDERS for path in sorted((ROOT / top).rglob("*.py")) if word.search(path.read_text())]
    return [str(path.relative_to(ROOT)) for path in found if "development" not in path.parts]


def report(walks: Mapping[str, Walk], shown: str) -> Iterator[str]:
    yield f"{'walk':<28}{'files':>8}{'functions':>11}{'changes':>9}{'climbs':>8}"
    for name, walk in walks.items():
        numbers = len(walk.files), len(walk.functions), len(walk.changes), len(walk.climbs)
        yield f"{name:<28}{numbers[0]:>8}{numbers[1]:>11}{numbers[2]:>9}{numbers[3]:>8}"
    for field in FIELDS:
        yield f"{'field ' + field:<28}{len(files_of_field(field)):>8}"
    for name, walk in walks.items():
        if shown and name.startswith(shown):
            yield f"{name}:"
            for file in sorted(walk.files):
                functions = sorted(each.name for each in walk.functions if each.file == file)
                yield f"  {file}: {', '.join(functions)}"
            yield "  climbs:"
            for caller, called in sorted(walk.climbs):
                yield f"  {caller.file} {caller.name} -> {called.file} {called.name}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.development.walks", description=__doc__)
    parser.add_argument("--show", default="", metavar="WALK", help="list the files and climbs of a walk")
    parser.add_argument("--order", action="store_true", help="list the functions of all walks as they are first called")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="kubechronicle-walks-") as directory:
        home = Path(directory)
        home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
        walks = take_walks(home)
    if arguments.order:
        lines = [f"{name}: {each.file} {each.name}" for name, walk in walks.items() for each in walk.order]
    else:
        lines = list(report(walks, arguments.show))
    for line in lines:
        terminal.stdout().line(line)
    terminal.stdout().flush()


if __name__ == "__main__":
    main()
