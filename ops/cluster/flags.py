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
        "PATH, and built from their Go modules if they are missing",
    )  # fmt: skip
