"""`kubechronicle erase`: its flags."""

from __future__ import annotations

import argparse


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="TYPE/NAME", nargs="?", default="", help="the object: its contents are erased, at all times"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help="the object's namespace")
    parser.add_argument(
        "--uid", metavar="UID", default="", help="only of the object with this uid, of all that bore the name"
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        default="",
        help="instead of an object: who asked, wherever it was this user; what was changed stays",
    )
    parser.add_argument(
        "--anonymize-name",
        action="store_true",
        help="take the name out as well: in history, it is erased-… then; of an object that was deleted",
    )
    parser.add_argument(
        "--before", metavar="MOMENT", default="", help="only what was before: a revision, a time, or how long ago (90d)"
    )
    parser.add_argument("--revisions", metavar="N-M", default="", help="only these revisions; N- for all from N on")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why; it is kept, so it should name nobody")
    parser.add_argument(
        "--as", metavar="TEXT", default="", dest="by", help="who erases, as it is kept; by default your login"
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be erased")
    parser.add_argument("--yes", action="store_true", help="do not ask")
