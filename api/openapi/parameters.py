"""The parameters of operations: what stands behind the ``?`` of a URL, and in its path. Tables.

Source of names and types: the option types of apimachinery and of core/v1 (ListOptions, PodLogOptions and their like);
lists are given as their items' type there, which is what every published document does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.schema.types import META, definitions


@dataclass(frozen=True, slots=True)
class Parameter:
    """``place`` is query or path (always required), ``type`` a JSON type."""

    name: str
    type: str
    description: str
    place: str = "query"


def _query(type_name: str, **described: str) -> dict[str, Parameter]:
    return {name: Parameter(name, type_name, text) for name, text in described.items()}


_COMMON: Final[Mapping[str, Parameter]] = {
    **_query(
        "boolean",
        allowWatchBookmarks="Let the watch send events of type BOOKMARK, which tell how far it has come.",
        force="Take over fields that other managers own. Only for apply patches, and only for the user.",
        sendInitialEvents=(
            "Begin the watch with an ADDED event for every object there is, followed by a bookmark with the annotation "
            "k8s.io/initial-events-end. Needs watch=true and resourceVersionMatch=NotOlderThan."
        ),
        watch="Go on with a stream of changes (added, modified, deleted) from resourceVersion instead of listing.",
    ),
    **_query("integer", limit="The most items one answer may have; the rest is fetched with the answer's continue."),
    **_query(
        "integer", timeoutSeconds="How long the list or watch may take, in seconds, whatever happens in the meantime."
    ),
    **_query(
        "string",
        dryRun="Go through all stages of the request but persist nothing. The one valid value is All.",
        fieldManager="Who makes this change, for managedFields: at most 128 printable characters.",
        fieldSelector="Only objects whose fields match, such as metadata.name=a. Everything by default.",
        fieldValidation=(
            "What becomes of unknown and duplicate fields: Ignore drops them, Warn (the default) drops them and adds a "
            "warning to the answer for each, Strict refuses the request with all of them listed."
        ),
        labelSelector="Only objects whose labels match, such as app=a,tier in (b,c). Everything by default.",
        pretty=(
            "'true': indent the answer. By default only browsers and command-line tools (curl, wget) get it indented."
        ),
        resourceVersion="The revision to read from; unset means the newest. resourceVersionMatch says how it is meant.",
        resourceVersionMatch="How resourceVersion constrains a list: Exact or NotOlderThan.",
        shardSelector="Only objects of a shard of the list. Takes effect with the alpha feature ShardedListAndWatch.",
    ),
    "continue": Parameter(
        "continue",
        "string",
        "The continue token of the answer before, to get the next items of the same list. A token too old is answered "
        "with 410 ResourceExpired.",
    ),
}

_PATCH_MANAGER: Final = Parameter(
    "fieldManager",
    "string",
    "Who makes this change, for managedFields: at most 128 printable characters. Required for apply patches, optional "
    "for the others.",
)

_DELETE_OPTIONS: Final = (
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
)

_LIST: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
)
# A collection is deleted as it is listed, but not watched.
_COLLECTION: Final = tuple(name for name in _LIST if name not in ("allowWatchBookmarks", "watch"))
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")

PRETTY: Final = _COMMON["pretty"]
NAMESPACE: Final = Parameter(
    "namespace", "string", "object name and auth scope, such as for teams and projects", "path"
)
PATH: Final = Parameter("path", "string", "path to the resource", "path")


def name_of(kind: str) -> Parameter:
    return Parameter("name", "string", f"name of the {kind}", "path")


def of_verb(verb: str) -> tuple[Parameter, ...]:
    """Return the query parameters of a verb of the registry, ``watchlist`` and ``watch`` being the paths below
    /watch/."""
    if verb in ("list", "watch", "watchlist"):
        return _named(_LIST)
    if verb == "deletecollection":
        return (*_named((*_COLLECTION, "dryRun")), *_of_delete_options())
    if verb == "delete":
        return (*_named(("dryRun",)), *_of_delete_options())
    if verb in ("create", "update"):
        return _named(_WRITE)
    if verb == "patch":
        return (*_named(("dryRun", "fieldValidation", "force")), _PATCH_MANAGER)
    return ()


def _named(names: Iterable[str]) -> tuple[Parameter, ...]:
    return tuple(_COMMON[name] for name in names)


def _of_delete_options() -> tuple[Parameter, ...]:
    """The same fields as in a body of DeleteOptions, described as there."""
    fields = definitions()[META + "DeleteOptions"]["properties"]
    made = []
    for name in _DELETE_OPTIONS:
        types = fields[name]["type"]
        word = types if isinstance(types, str) else next(word for word in types if word != "null")
        made.append(Parameter(name, word, fields[name]["description"]))
    return tuple(made)


def _of(*parameters: tuple[str, str, str]) -> tuple[Parameter, ...]:
    return tuple(Parameter(*parameter) for parameter in parameters)


LOG: Final = _of(
    ("container", "string", "Whose log to stream; may be left out for a pod of one container."),
    ("follow", "boolean", "Go on with the log as it grows. False by default."),
    (
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "Do not verify the kubelet's serving certificate. The connection can then be listened to and altered.",
    ),
    ("limitBytes", "integer", "End after about this many bytes, perhaps within a line."),
    ("previous", "boolean", "The log of the container's instance before the present one. False by default."),
    ("sinceSeconds", "integer", "Only lines of the last so many seconds. Excludes sinceTime."),
    ("stream", "string", "All (the default), Stdout or Stderr. With tailLines only All."),
    ("tailLines", "integer", "Only the last so many lines. With stream only All."),
    ("timestamps", "boolean", "Begin every line with its time in RFC 3339. False by default."),
)

CONNECT: Final[Mapping[str, tuple[Parameter, ...]]] = {
    "NodeProxyOptions": _of(("path", "string", "The path of the node's URL this request is for.")),
    "PodProxyOptions": _of(("path", "string", "The path of the pod's URL this request is for.")),
    "ServiceProxyOptions": _of(
        ("path", "string", "The path of the service's URL this request is for, with suffixes and parameters.")
    ),
    "PodAttachOptions": _of(
        ("container", "string", "The container to attach to; may be left out for a pod of one container."),
        ("stderr", "boolean", "Pass its standard error on. True by default."),
        ("stdin", "boolean", "Pass standard input to it. False by default."),
        ("stdout", "boolean", "Pass its standard output on. True by default."),
        ("tty", "boolean", "The container runtime allocates a terminal for the call. False by default."),
    ),
    "PodExecOptions": _of(
        ("command", "string", "The command and its arguments, one value each; no shell is involved."),
        ("container", "string", "The container to run it in; may be left out for a pod of one container."),
        ("stderr", "boolean", "Pass the command's standard error on."),
        ("stdin", "boolean", "Pass standard input to the command. False by default."),
        ("stdout", "boolean", "Pass the command's standard output on."),
        ("tty", "boolean", "Allocate a terminal for the call. False by default."),
    ),
    "PodPortForwardOptions": _of(("ports", "integer", "The ports to forward. Required when WebSockets are used.")),
}
"""The options' kind of a subresource that is connected to -> its query parameters."""
