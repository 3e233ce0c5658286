"""The notebook runs, with a smaller corpus and shorter training than it shows, and each cell shows what it should."""

from __future__ import annotations

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tutorials" / "first_run.ipynb"
SMALLER = {
    "server_speakers=20": "server_speakers=3",
    "client_speakers=12": "client_speakers=4",
    "dev_speakers=6": "dev_speakers=2",
    "test_speakers=8": "test_speakers=2",
    "pretrain.steps=900": "pretrain.steps=30",
    "rounds=4": "rounds=1",
}


@pytest.mark.nightly
def test_every_cell_shows_what_it_should(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRAY_RUNS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(NOTEBOOK.parents[2]), os.environ.get("PYTHONPATH", ""))))
    notebook = nbformat.read(NOTEBOOK, 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    for shown, smaller in SMALLER.items():
        cells = [cell for cell in notebook.cells if cell.cell_type == "code" and shown in cell.source]
        assert len(cells) == 1, shown
        cells[0].source = cells[0].source.replace(shown, smaller)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parents[2])}}).execute()
    data = [
        {kind: text for output in cell.outputs for kind, text in output.get("data", {}).items()}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    _, result, rounds, speakers, page, figure, worst = data
    assert "<table" in result["text/html"] and "test/wer (%)" in result["text/html"]
    assert "dev/wer" in rounds["text/html"] and "WER (%)" in speakers["text/html"]
    assert page["text/html"].startswith("<iframe srcdoc=") and "image/png" in figure
    assert worst["text/html"].count("<audio") == 4
