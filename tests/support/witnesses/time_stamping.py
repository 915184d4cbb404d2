"""A time-stamping service (RFC 3161): `openssl ts -reply` behind HTTP, with an authority of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

CONFIGURATION = """
[tsa]
default_tsa = tsa_config
[tsa_config]
serial = {0}/serial
signer_cert = {0}/tsa.pem
certs = {0}/ca.pem
signer_key = {0}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha384, sha512
accuracy = secs:1
tsa_name = yes
ess_cert_id_chain = no
"""
USAGE = (
    "extendedKeyUsage=critical,timeStamping\nkeyUsage=critical,digitalSignature\nbasicConstraints=critical,CA:false\n"
)


@dataclass
class TimeStampingService:
    """``url``: of the service. ``ca``: its authority. ``broken``: the next answers, in place of the service's own."""

    url: str
    ca: Path
    requests: list[bytes] = field(default_factory=list)
    broken: list[tuple[int, bytes]] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)


def openssl(*arguments: str, directory: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def make_authority(directory: Path) -> None:
    """Write the authority, and the certificate of the service."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "usage").write_text(USAGE)
    (directory / "serial").write_text("01\n")
    (directory / "tsa.conf").write_text(CONFIGURATION.format(directory))
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=Witness Authority")
    openssl(*new, "-keyout", "ca.key", "-out", "ca.pem", directory=directory)
    openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Witness", "-keyout", "tsa.key", "-out", "tsa.csr"),
        directory=directory,
    )
    sign = ("x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
    openssl(*sign, "-extfile", "usage", "-out", "tsa.pem", directory=directory)


def reply(directory: Path, query: bytes) -> bytes:
    done = subprocess.run(
        ["openssl", "ts", "-reply", "-config", str(directory / "tsa.conf"), "-queryfile", "/dev/stdin"],
        input=query,
        capture_output=True,
        check=True,
    )
    return done.stdout


@contextmanager
def time_stamping_service(directory: Path) -> Iterator[TimeStampingService]:
    make_authority(directory)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers["content-type"] == "application/timestamp-query"
            service.requests.append(query)
            status, body = service.broken.pop(0) if service.broken else (200, reply(directory, query))
            service.answers.append(body)
            self.send_response(status)
            self.send_header("content-type", "application/timestamp-reply")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service = TimeStampingService(f"http://127.0.0.1:{server.server_port}/tsr", directory / "ca.pem")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
