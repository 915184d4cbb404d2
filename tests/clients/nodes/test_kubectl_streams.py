"""kubectl exec, attach, cp and port-forward, over WebSocket and SPDY, with the streaming code of real kubelets."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness import Server, eventually, unique

from tests.clients.nodes.session_pods import Pod

PAGE = bytes(range(256)) * 4_000
COPIED = 20_000_000
CONNECTIONS = 50


def test_exec_returns_output_and_exit_codes(pod: Pod) -> None:
    done = pod.exec("echo out; echo err >&2")
    # client-go may receive before it has made its streams: it logs that, and discards an empty message.
    errors = [line for line in done.stderr.splitlines() if "websocket.go" not in line]
    assert (done.returncode, done.stdout, errors) == (0, "out\n", ["err"])
    assert pod.exec("exit 3").returncode == 3
    assert pod.exec("kill -9 $$").returncode == 137
    assert pod.exec("cat; echo end", "-i", stdin="piped\n").stdout == "piped\nend\n"
    missing = pod.call("exec", pod.name, "-c", "missing", "--", "ls")
    assert missing.returncode == 1
    assert 'unable to upgrade connection: container not found ("missing")' in missing.stderr


def test_a_terminal_has_the_size_and_the_exit_code_of_the_command(pod: Pod) -> None:
    script = "test -t 0 && test -t 1 && exit 7"
    exec_ = f"stty rows 33 cols 99; exec {' '.join(pod.kubectl.command('exec', '-it', pod.name, '-c', 'c'))}"
    wait = "while test $(stty size | cut -c1) = 0; do :; done; stty size;"
    environment = {**os.environ, **pod.kubectl._environment(), **pod.environment}
    command = ["script", "-eqc", f"{exec_} -- sh -c '{wait} {script}'", "/dev/null"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 7, done.stdout
    assert "33 99" in done.stdout


def test_attach_copies_both_ways(pod: Pod) -> None:
    assert "attached\n" in pod.call("attach", "-i", pod.name, "-c", "c", stdin="attached\n").stdout


def test_cp_both_ways(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(random.Random(pod.name).randbytes(COPIED))
    there, back = f"{pod.name}:{tmp_path}/there", tmp_path / "back"
    for source, target in ((str(tmp_path / "from"), there), (there, str(back))):
        done = pod.call("cp", source, target, "-c", "c")
        assert done.returncode == 0, done.stderr
    digests = {hashlib.file_digest(path.open("rb"), "sha256").hexdigest() for path in tmp_path.iterdir()}
    assert len(digests) == 1


def test_debug_attaches_to_an_ephemeral_container(pod: Pod) -> None:
    """kubectl waits until a kubelet has started the container, which the test says in the status."""
    api, kubectl = pod.kubectl.server.api(), pod.kubectl
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod.name}"
    arguments = ("debug", "-i", pod.name, "--image=busybox", "-c", "debugger", "--target=c")
    with pod.running(*arguments) as lines:
        spec = eventually(
            lambda: api.get(path)["spec"].get("ephemeralContainers"), "kubectl adds an ephemeral container"
        )
        assert [(each["name"], each["targetContainerName"]) for each in spec] == [("debugger", "c")]
        state = {"name": "debugger", "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
        status = {"ephemeralContainerStatuses": [state | {"state": {"running": {}}}]}
        merge = {"Content-Type": "application/merge-patch+json"}
        body = json.dumps({"status": status}).encode()
        api.request("PATCH", f"{path}/status", body, headers=merge).expect(200)
        assert lines.process.stdin is not None
        lines.process.stdin.write("to the debugger\n")
        lines.process.stdin.flush()
        lines.until(lambda line: "to the debugger" in line)
        lines.process.stdin.close()
        assert lines.exit_code() == 0


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_port_forward_carries_many_connections(pod: Pod) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as page:
        threading.Thread(target=page.serve_forever).start()
        try:
            with pod.running("port-forward", pod.name, f":{page.server_port}", "--address", "127.0.0.1") as lines:
                port = int(lines.until(lambda line: "Forwarding from" in line).split(":")[1].split()[0])
                got: list[bytes] = []

                def fetch() -> None:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                    connection.request("GET", "/")
                    got.append(connection.getresponse().read())
                    connection.close()

                threads = [threading.Thread(target=fetch) for _ in range(CONNECTIONS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert got == [PAGE] * CONNECTIONS
        finally:
            page.shutdown()


def test_the_right_to_create_is_needed_for_get(pod: Pod, server: Server) -> None:
    kubectl, role = pod.kubectl, unique("getter")
    kubectl("create", "role", role, "--verb=get", "--resource=pods,pods/exec")
    kubectl("create", "rolebinding", role, "--role", role, "--user", role)
    done = pod.call("exec", "--as", role, pod.name, "-c", "c", "--", "true")
    assert done.returncode == 1
    assert "forbidden" in done.stderr.lower()
    rule = [{"op": "add", "path": "/rules/0/verbs/-", "value": "create"}]
    kubectl("patch", "role", role, "--type=json", "-p", json.dumps(rule))
    rule[0]["path"] = "/rules/1/verbs/-"
    assert pod.call("exec", "--as", role, pod.name, "-c", "c", "--", "true").returncode == 0
    kubectl("delete", "rolebinding,role", role)


def test_free_ports_are_refused_by_the_kubelet(pod: Pod) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for _ in range(5):
            with pod.running("port-forward", pod.name, f":{port}", "--address", "127.0.0.1") as lines:
                own = int(lines.until(lambda line: "Forwarding from" in line).split(":")[1].split()[0])
                with socket.create_connection(("127.0.0.1", own), timeout=60) as connection:
                    assert connection.recv(1) == b""
                told = lines.until(lambda line: "connection refused" in line or "Stream reset" in line)
            # The kubelet's code starts to forward beside its reply to the stream. If the end of the stream comes before
            # the reply, client-go resets it, and its text is lost. Then people try again, too.
            if "connection refused" in told:
                return
    raise AssertionError("five streams in turn were reset")
