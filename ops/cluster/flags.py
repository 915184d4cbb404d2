"""The flags of `kubechronicle up`. Kept apart, because every command line loads them."""

from __future__ import annotations

import argparse


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "--data-dir", metavar="DIR", default="./cluster", help="the directory of the cluster (default ./cluster)"
    )
    parser.add_argument(
        "--secure-port", metavar="PORT", type=int, default=6443, help="the port of the API server (default 6443)"
    )
    parser.add_argument(
        "--database-url", metavar="URL", default="", help="a Postgres of yours (default: an embedded one)"
    )
    parser.add_argument("--nodes", metavar="N", type=int, default=3, help="the number of simulated nodes (default 3)")
    parser.add_argument(
        "--programs", metavar="DIR", default="",
        help="a directory with kube-controller-manager, kube-scheduler and kwok; by default they are looked for on "
        "PATH, and among those that were built before",
    )  # fmt: skip
    parser.add_argument(
        "--no-build", action="store_true",
        help="build no program: without kube-controller-manager, Deployments and Jobs get no pods",
    )  # fmt: skip
    parser.add_argument(
        "--kube-scheduler", action="store_true",
        help="let the real kube-scheduler bind pods, and build it if it is missing; by default it does if it is there, "
        "and the server's own simple one otherwise",
    )  # fmt: skip
    parser.add_argument(
        "--kwok",
        action="store_true",
        help="let kwok simulate nodes and pods instead of the server, and build it if needed",
    )
    parser.add_argument("--no-ui", action="store_true", help="without the web page about history")
    parser.add_argument(
        "--ui-port", metavar="PORT", type=int, default=0, help="the port of the web page (default: a free one)"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the web page in a browser")
