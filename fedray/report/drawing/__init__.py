"""Figures drawn with matplotlib: `draw.draw` draws any description of `fedray.report.figures`."""
