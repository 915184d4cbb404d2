"""The etcd of `kubechronicle envtest`: it answers /health, for which envtest waits, and stores nothing.

    python -I -S etcd_stub.py --listen-client-urls=http://127.0.0.1:2379 …

The kube-apiserver of envtest has its log in memory. It imports next to nothing: each suite starts one.
"""

import signal
import socket
import sys

ANSWER = b'{"health":"true","reason":""}'
OTHER = b"kubechronicle has no etcd: its log is in memory\n"
HEALTH = b"GET /health"


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    listener = socket.create_server(address_in(arguments), family=socket.AF_INET)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(1.0)
            try:
                request = connection.recv(4096)
                healthy = request.startswith(HEALTH)
                status, body = ("200 OK", ANSWER) if healthy else ("501 Not Implemented", OTHER)
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + body)
            except OSError:
                continue


def address_in(arguments: list[str]) -> tuple[str, int]:
    """Return the host and port of --listen-client-urls."""
    for place, argument in enumerate(arguments):
        name, sign, value = argument.partition("=")
        if name.lstrip("-") == "listen-client-urls":
            host, _, port = (value if sign else arguments[place + 1]).partition("://")[2].rpartition(":")
            return host, int(port)
    return "127.0.0.1", 2379


if __name__ == "__main__":
    main(sys.argv[1:])
