"""Whole answers in one of the media types: JSON, YAML, protobuf and CBOR."""

from __future__ import annotations

from collections.abc import Callable

from kubechronicle.api.codecs import json, protobuf, yaml
from kubechronicle.api.codecs.negotiate import CBOR, PROTOBUF, YAML
from kubechronicle.api.values.objects import Object


def encode(
    value: Object, media_type: str, *, pretty: bool = False, encode_json: Callable[..., bytes] = json.encode
) -> bytes:
    """Encode a whole answer in one of the media types. ``encode_json``: the encoder of its JSON."""
    if media_type == YAML:
        return yaml.encode(value)
    if media_type == PROTOBUF:
        if "apiVersion" in value:
            return protobuf.encode(value)
        # APIVersions has no apiVersion of its own (kube-apiserver strips it for the oldest clients).
        return protobuf.envelope("", value["kind"], protobuf.encode_raw({"apiVersion": "v1", **value}))
    if media_type == CBOR:
        from kubechronicle.api.codecs import cbor_writer  # only with its feature gate, which is off by default

        return cbor_writer.encode(value)
    encoded = encode_json(value, pretty=pretty)
    return encoded if pretty else encoded + b"\n"  # as Go's MarshalIndent and Encoder write
