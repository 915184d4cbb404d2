"""OCI archives: images of containers as tar files, with the layers given as trees of files.

Only what ``ctr images import`` needs: an index, a manifest and a configuration, and uncompressed layers. Source: OCI
image-layout and image-spec.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TYPES = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class File:
    """A regular file of a layer: from ``source``, or with ``text`` as its content."""

    source: Path | None = None
    text: str = ""
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link of a layer."""

    target: str


@dataclass(frozen=True, slots=True)
class Folder:
    """An empty folder of a layer."""

    mode: int = 0o755


Tree = Mapping[str, File | Link | Folder]
"""The entries of a layer by their paths, without a leading slash. Parents that are not named exist with mode 755."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image: its names, its layers from the lowest, and the defaults of its containers."""

    names: Sequence[str]
    layers: Sequence[Tree]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def write_archive(path: Path, image: Image) -> None:
    """Write the archive of an image. Equal images have equal digests, as all times are zero."""
    with tarfile.open(path, "w") as archive:
        blobs = _Blobs(archive)
        layers = [blobs.add_layer(tree) for tree in image.layers]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": list(image.entrypoint) or None,
                "Cmd": list(image.command) or None,
                "User": image.user,
                "Env": [f"{name}={value}" for name, value in (_PATH | dict(image.environment)).items()],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPES}.manifest.v1+json",
            "config": blobs.add_json(config, f"{_TYPES}.config.v1+json"),
            "layers": layers,
        }
        described = blobs.add_json(manifest, f"{_TYPES}.manifest.v1+json")
        named = [described | {"annotations": {"io.containerd.image.name": name}} for name in image.names]
        index = {"schemaVersion": 2, "mediaType": f"{_TYPES}.index.v1+json", "manifests": named}
        _add(archive, "index.json", json.dumps(index).encode())
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


class _Blobs:
    """The blobs of an archive, each written once."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._written: set[str] = set()

    def add_json(self, value: object, media_type: str) -> dict[str, object]:
        return self._add(json.dumps(value).encode(), media_type)

    def add_layer(self, tree: Tree) -> dict[str, object]:
        return self._add(_layer(tree), f"{_TYPES}.layer.v1.tar")

    def _add(self, data: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._written:
            self._written.add(digest)
            _add(self._archive, f"blobs/sha256/{digest}", data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _layer(tree: Tree) -> bytes:
    """Return the tar file of a layer. It is built in memory: the largest has the size of its programs."""
    buffer = io.BytesIO()
    parents = {str(parent) for path in tree for parent in Path(path).parents if str(parent) != "."}
    entries = {**dict.fromkeys(parents, Folder()), **tree}
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for path in sorted(entries):
            _add_entry(layer, path, entries[path])
    return buffer.getvalue()


def _add_entry(layer: tarfile.TarFile, path: str, entry: File | Link | Folder) -> None:
    match entry:
        case Link(target):
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, target
            layer.addfile(info)
        case Folder(mode):
            info = tarfile.TarInfo(path)
            info.type, info.mode = tarfile.DIRTYPE, mode
            layer.addfile(info)
        case File(source, text, mode):
            _add(layer, path, source.read_bytes() if source else text.encode(), mode)


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    archive.addfile(info, io.BytesIO(data))
