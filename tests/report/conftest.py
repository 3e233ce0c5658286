"""In every figure that a test of reports draws, no text covers another or leaves the canvas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from fedray.report.canvas import Drawing


@pytest.fixture(autouse=True)
def legible(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Drawing.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[Drawing], canvas: Canvas) -> Drawing:
        canvas.draw_without_rendering()
        assert not collisions(canvas)
        return real(cls, canvas)  # type: ignore[no-any-return]

    monkeypatch.setattr(Drawing, "of", classmethod(of))


def collisions(canvas: Canvas) -> list[tuple[str, ...]]:
    """The texts that leave the canvas, and the pairs that overlap by more than half a pixel. Slanted texts pass."""
    whole = canvas.bbox
    boxes = [
        (text.get_text(), text.get_window_extent())
        for text in dict.fromkeys(texts(canvas))
        if text.get_visible() and text.get_text().strip() and text.get_rotation() % 90 == 0
    ]
    found: list[tuple[str, ...]] = [
        (text,) for text, box in boxes if box.x0 < -1 or box.y0 < -1 or box.x1 > whole.x1 + 1 or box.y1 > whole.y1 + 1
    ]
    for (one, box), (other, beside) in combinations(boxes, 2):
        across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        if across > 0.5 and min(box.y1, beside.y1) - max(box.y0, beside.y0) > 0.5:
            found.append((one, other))
    return found


def texts(artist: Artist) -> Iterator[Text]:
    """All texts that are drawn: an axis also keeps ticks beyond its limits, which are not."""
    if isinstance(artist, Text):
        yield artist
    if isinstance(artist, Axis):
        shown = artist._update_ticks()  # type: ignore[attr-defined]
        yield from (label for tick in shown for label in (tick.label1, tick.label2))
        yield artist.label
    else:
        for child in artist.get_children():
            yield from texts(child)
