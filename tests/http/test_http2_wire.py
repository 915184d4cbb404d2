"""The shortcuts of HTTP/2 lead where h2 and hpack go."""

from __future__ import annotations

import random

import h2.config
import h2.connection
import h2.exceptions
import h2.settings
import hpack
import pytest
from hyperframe.frame import WindowUpdateFrame

from kubechronicle.http.http2_wire import KnownBlocks, LeanConnection, PlainEncoder

NAMES = [b":status", b"content-type", b"audit-id", b"date", b"x-long", b"cache-control", b"content-length", b"warning"]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_encoded_plainly_is_read_by_everybody(seed: int) -> None:
    chance = random.Random(seed)
    encoder, decoder = PlainEncoder(), hpack.Decoder()
    for _ in range(30):
        fields = [
            (chance.choice(NAMES), chance.randbytes(chance.choice([0, 3, 20, 126, 127, 400])))
            for _ in range(chance.randrange(1, 9))
        ]
        fields += [(b":status", b"200"), (b":status", b"201"), (b"vary", b"accept")]
        if not chance.randrange(8):
            encoder.header_table_size = chance.choice([0, 100, 4096])  # as the client's SETTINGS say
        assert list(decoder.decode(encoder.encode(fields), raw=True)) == fields


@pytest.mark.parametrize("seed", range(40))
def test_a_block_that_is_known_means_what_it_means(seed: int) -> None:
    """A client whose table is small, so that entries come and go, and blocks mean something else after a while."""
    chance = random.Random(seed)
    encoder, known, plain = hpack.Encoder(), KnownBlocks(), hpack.Decoder()
    pool = [(b"name-%d" % (number % 3), b"v" * chance.randrange(30) + b"%d" % number) for number in range(12)]
    for _ in range(200):
        if not chance.randrange(40):
            encoder.header_table_size = chance.choice([0, 64, 200, 4096])
        fields = [(*chance.choice(pool), chance.random() < 0.1) for _ in range(chance.randrange(1, 5))]
        block = encoder.encode(fields, huffman=chance.random() < 0.5)
        expected = list(plain.decode(block, raw=True))
        assert list(known.decode(block, raw=True)) == expected == [(name, value) for name, value, _ in fields]
        assert list(known.header_table.dynamic_entries) == list(plain.header_table.dynamic_entries)


def test_blocks_that_refer_to_the_table_alone_are_kept_until_it_changes() -> None:
    encoder, known = hpack.Encoder(), KnownBlocks()
    first = [(b"a", b"1"), (b"b", b"2")]
    known.decode(encoder.encode(first), raw=True)
    again = encoder.encode(first)
    assert known.decode(again, raw=True) is known.decode(again, raw=True)
    known.decode(encoder.encode([(b"c", b"3")]), raw=True)
    assert list(known.decode(again, raw=True)) != first  # the same bytes, another meaning
    assert list(known.decode(encoder.encode(first), raw=True)) == first


def connections(streams: int) -> tuple[LeanConnection, h2.connection.H2Connection]:
    """One with the shortcuts, and one without, with as many streams open."""
    config = h2.config.H2Configuration(client_side=False, header_encoding=None)
    client = h2.connection.H2Connection(h2.config.H2Configuration())
    client.initiate_connection()
    for number in range(streams):
        client.send_headers(
            2 * number + 1,
            [(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "a")],
            end_stream=number % 2 == 0,
        )
    opening = client.data_to_send()
    lean, plain = LeanConnection(config), h2.connection.H2Connection(config)
    for each in (lean, plain):
        each.initiate_connection()
        assert each.receive_data(opening)
        each.send_headers(1, [(":status", "200")], end_stream=True)
        each.reset_stream(3)
        each.clear_outbound_data_buffer()
    return lean, plain


@pytest.mark.parametrize("seed", range(60))
def test_windows_open_as_h2_opens_them(seed: int) -> None:
    chance = random.Random(seed)
    lean, plain = connections(8)
    short = 0
    for _ in range(30):
        data = b""
        for _ in range(chance.choice([1, 1, 2, 5])):
            frame = WindowUpdateFrame(stream_id=chance.choice([0, 0, 1, 3, 5, 7, 9, 11, 13, 15]))
            frame.window_increment = chance.choice([1, 4096, 65535, 1 << 20, (1 << 24) - 1, 1 << 24, 1 << 29])
            data += frame.serialize()
        if chance.random() < 0.1:
            data = data[:-13] + data[-13:-4] + bytes(4)  # an increment of nothing
        if chance.random() < 0.1:
            data += b"\0\0\x08\x06\0\0\0\0\0pingpong"
        cut = chance.choice([len(data), len(data), chance.randrange(1, len(data))])
        outcomes = []
        for each in (lean, plain):
            try:
                for part in (data[:cut], data[cut:]):
                    if each is lean and lean.receive_window_updates(part) is not None:
                        short += 1
                    else:
                        each.receive_data(part)
                outcomes.append("")
            except h2.exceptions.ProtocolError as error:
                outcomes.append(repr(error))
        assert outcomes[0] == outcomes[1]
        assert lean.outbound_flow_control_window == plain.outbound_flow_control_window
        for stream_id in (5, 7, 9, 11, 13, 15):
            windows = [each.streams[stream_id].outbound_flow_control_window for each in (lean, plain)]
            assert windows[0] == windows[1]
        assert lean.data_to_send() == plain.data_to_send()
        if outcomes[0]:
            break
    assert short or seed


def test_streams_are_bounded_and_those_that_are_over_put_away() -> None:
    client = h2.connection.H2Connection(h2.config.H2Configuration())
    client.initiate_connection()
    server = LeanConnection(h2.config.H2Configuration(client_side=False, header_encoding=None))
    codes = h2.settings.SettingCodes
    server.local_settings = h2.settings.Settings(client=False, initial_values={codes.MAX_CONCURRENT_STREAMS: 20})
    server.initiate_connection()
    fields = [(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "a")]

    def ask() -> int:
        stream_id = client.get_next_available_stream_id()
        client.send_headers(stream_id, fields, end_stream=True)
        server.receive_data(client.data_to_send())
        return stream_id

    for _ in range(200):
        server.send_headers(ask(), [(":status", "200")], end_stream=True)
        assert len(server.streams) <= 6
    for _ in range(20):
        ask()
    with pytest.raises(h2.exceptions.TooManyStreamsError):
        ask()
