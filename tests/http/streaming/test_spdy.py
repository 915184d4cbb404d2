"""SPDY/3.1 frames and header blocks."""

from __future__ import annotations

import zlib

import pytest

from kubechronicle.http.streaming import spdy
from kubechronicle.http.streaming.spdy import DICTIONARY


def test_the_dictionary_is_that_of_the_draft() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


@pytest.mark.parametrize("step", [1, 5, 9, 4096])
def test_frames_are_the_same_in_any_cut(step: int) -> None:
    compressor, decompressor = spdy.HeaderCompressor(), spdy.HeaderDecompressor()
    sent = [spdy.syn_stream(1, compressor.block({"streamType": "error"}))]
    sent += [spdy.syn_stream(3, compressor.block({"streamtype": "stdin", "x": ""})), spdy.data_frame(3, b"abc" * 99)]
    sent += [spdy.data_frame(3, b"", fin=True), spdy.ping(7), spdy.rst_stream(1), spdy.data_frame(5, b"z", fin=True)]
    data, reader, events = b"".join(sent), spdy.SpdyFrameReader(), []
    for start in range(0, len(data), step):
        events += reader.feed(data[start : start + step])
    controls = [event for event in events if isinstance(event, spdy.Control)]
    assert [(each.kind, each.stream) for each in controls] == [(1, 1), (1, 3), (6, 7), (3, 1)]
    assert decompressor.headers(controls[0].payload[10:]) == {"streamtype": "error"}
    assert decompressor.headers(controls[1].payload[10:]) == {"streamtype": "stdin", "x": ""}
    received = [event for event in events if isinstance(event, spdy.Data)]
    assert b"".join(event.data for event in received if event.stream == 3) == b"abc" * 99
    assert [event.stream for event in received if event.fin] == [3, 5]


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400 Bad Request\r\n", b"\x80\x03\x00\x06\x00\xff\xff\xff", b"\x80\x03\x00\x06\x00\x00\x00\x01a"]
)
def test_other_bytes_are_an_error(data: bytes) -> None:
    if data.startswith(b"HTTP"):
        data = b"\xc8" + data
    with pytest.raises(spdy.SpdyError):
        list(spdy.SpdyFrameReader().feed(data))


@pytest.mark.parametrize("plain", [b"\0\0\0\1", b"\0\0\0\1\0\0\0\5ab", b"\xff" * 8])
def test_a_broken_header_block_is_an_error(plain: bytes) -> None:
    compressor = zlib.compressobj(zdict=DICTIONARY)
    block = compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(spdy.SpdyError):
        spdy.HeaderDecompressor().headers(block)


def test_a_huge_header_block_is_an_error() -> None:
    block = spdy.HeaderCompressor().block({"x": "y" * 200_000})
    with pytest.raises(spdy.SpdyError):
        spdy.HeaderDecompressor().headers(block)
