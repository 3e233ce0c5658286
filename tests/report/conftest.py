"""Reports without rendered figures, for tests of their text."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure as Canvas

from fedray.report.canvas import Drawing


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws figures, but leaves SVG and PNG empty: rendering takes most of the time of a report."""

    def empty(canvas: Canvas) -> Drawing:
        return Drawing(canvas.get_suptitle() or canvas.axes[0].get_title("left"), "<svg></svg>", b"\x89PNG")

    monkeypatch.setattr(Drawing, "of", staticmethod(empty))
