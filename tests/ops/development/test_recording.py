"""The moving picture of the README shows the session of the README."""

from __future__ import annotations

from xml.etree import ElementTree

from kubechronicle.ops.development import recording


def test_the_picture_is_that_of_the_session() -> None:
    assert recording.PICTURE.read_text() == recording.made(), "python -m kubechronicle.ops.development.recording"


def test_each_line_appears_after_the_one_above_it() -> None:
    lines = recording.timed(recording.session((recording.ROOT / "README.md").read_text()))
    moments = [line.second for line in lines]
    assert moments == sorted(moments)
    assert moments[-1] <= 20
    assert not any("KUBECONFIG" in line.text or "PATH=" in line.text for line in lines)
    texts = [
        each.text for each in ElementTree.fromstring(recording.picture(lines)).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert texts == [line.text for line in lines]


def test_long_lines_are_cut() -> None:
    (line,) = recording.timed(["188  patch  " + "x" * 500 + ".image: 17 → 18"])
    assert len(line.text) == recording.COLUMNS
    assert line.text.startswith("188  patch  …x")
    assert line.text.endswith("x.image: 17 → 18")
