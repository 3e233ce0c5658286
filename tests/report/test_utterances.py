"""`fedray data CONFIG --show DIR` writes a page of utterances, pictures and audio, in which data stay text."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml
from matplotlib.image import imread

from fedray import cli
from fedray.data.analysis.unusual import unusual
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.manifest import Manifest
from fedray.report.utterances import choose, spectrogram
from tests import small_corpus
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")
SCRIPT = "<script>alert(1)</script>"


def manifest(rows: list[tuple[str, float, str]]) -> Manifest:
    """Return a manifest with a row for each (speaker, seconds, text)."""
    speakers, seconds, texts = zip(*rows, strict=True)
    columns = {"speaker": speakers, "seconds": seconds, "text": texts, "path": ["/a.wav"] * len(rows)}
    return Manifest.from_columns(columns | {"utterance": [f"u{row}" for row in range(len(rows))]}, "test")


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients = [(f"{name}{index}", name, SCRIPT) for name, count in (("ann", 5), ("bob", 2)) for index in range(count)]
    folder = small_corpus.write(tmp_path, clients=clients, dev=[("d0", "<b>dan", "two")])
    config = small_corpus.config(folder, "clients", "dev") | {"name": "<i>mine"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "bob1.wav").write_bytes(b"")
    command = ["data", str(folder / "config.yaml"), "--show", str(folder / "out")]
    assert cli.main([*command, "--utterances", "2"]) == 0
    assert f"page: {folder / 'out' / 'utterances.html'}" in capsys.readouterr().out
    page = (folder / "out" / "utterances.html").read_text(encoding="utf-8")
    assert SCRIPT not in page and "&lt;script&gt;" in page and "<i>mine" not in page and "<b>dan" not in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page), "the page needs no other file"
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Splits", "Largest clients"]
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["clients", "dev", "ann", "bob"]
    assert page.count('<div class="utterance">') == 2 + 1 + 2 + 2
    assert "bob1.wav: an empty file" in page and "speaker &lt;b&gt;dan · 0.40&nbsp;s" in page
    sound = base64.b64decode(re.findall(r"data:audio/flac;base64,([^\"]+)", page)[0])
    wave, rate = soundfile.read(io.BytesIO(sound))
    assert rate == 16000 and len(wave) == 0.4 * 16000
    before = page
    assert cli.main([*command, "--utterances", "2"]) == 0
    assert (folder / "out" / "utterances.html").read_text(encoding="utf-8") == before
    assert cli.main([*command, "--utterances", "0"]) == 2
    assert "--utterances must be at least 1" in capsys.readouterr().err


def test_a_tone_is_a_line_of_the_spectrogram() -> None:
    time = torch.arange(16000) / 16000
    low, high = (
        base64.b64decode(spectrogram(0.5 * torch.sin(6.2832 * pitch * time), LogMelSettings()).partition(",")[2])
        for pitch in (200, 4000)
    )
    rows = [int(imread(io.BytesIO(picture))[..., :3].sum((1, 2)).argmax()) for picture in (low, high)]
    assert imread(io.BytesIO(low)).shape[:2] == (64, 98) and rows[0] > 50 > 20 > rows[1]
    assert spectrogram(torch.zeros(1600), LogMelSettings()).startswith("data:image/png")


def test_unusual_clients_are_found_by_length_and_by_rate() -> None:
    rows = [(f"s{client}", 1.0 + 0.01 * client, "hello") for client in range(10) for _ in range(4)]
    rows += [("long", 9.0, "hello" * 9)] * 4 + [("fast", 1.0, "hello" * 9)] * 4
    clients = {name: np.arange(4 * place, 4 * place + 4) for place, name in enumerate([f"s{i}" for i in range(10)])}
    clients |= {"long": np.arange(40, 44), "fast": np.arange(44, 48)}
    found = unusual(manifest(rows), clients)
    assert {found[0][0], found[1][0]} == {"long", "fast"}
    assert dict(found)["long"].startswith("9.0 s an utterance") and "45.0 characters a second" in dict(found)["fast"]
    chosen = choose(manifest(rows), clients)
    everyone = [name for names in chosen.values() for name in names]
    assert len(everyone) == len(set(everyone)) == 9


def test_unusual_clients_are_found_by_label() -> None:
    labels = ["no", "yes"] * 8 + ["no"] * 4
    columns = {"label": labels, "seconds": [1.0] * 20, "speaker": ["s"] * 20, "path": ["/a.wav"] * 20}
    made = Manifest.from_columns(columns | {"utterance": [f"u{row}" for row in range(20)]}, "test")
    found = unusual(made, {f"c{client}": np.arange(4 * client, 4 * client + 4) for client in range(5)})
    assert found[0][0] == "c4" and found[0][1].startswith("label distance 0.40")
