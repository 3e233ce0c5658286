"""A run on a small tree in LibriSpeech's official layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

import fedray
from fedray.runs.folder import RunFolder
from tests import speech

READERS = {
    "train-clean-100": ("14", "84", "103", "1034"),
    "dev-clean": ("2277",),
    "test-clean": ("61",),
    "test-other": ("367",),
}


def write_tree(root: Path) -> None:
    """Write SPEAKERS.TXT, and per chapter <reader>-<chapter>-<number>.flac and <reader>-<chapter>.trans.txt."""
    home, lines = root / "LibriSpeech", [";ID  |SEX| SUBSET           |MINUTES| NAME"]
    for subset, readers in READERS.items():
        for reader in readers:
            chapter = home / subset / reader / "1200"
            chapter.mkdir(parents=True)
            lines.append(f"{reader:<4} | F | {subset:<16} | 25.03 | |CBW|Simon")
            texts = []
            for number, text in enumerate(("ab cd", "dc b", "ad bca")):
                name = f"{reader}-1200-{number:04d}"
                soundfile.write(chapter / f"{name}.flac", speech.wave(text, detuned=1 + 0.001 * number), speech.RATE)
                texts.append(f"{name} {text.upper()}\n")
            (chapter / f"{reader}-1200.trans.txt").write_text("".join(texts))
    (home / "SPEAKERS.TXT").write_text("\n".join(lines) + "\n")


@pytest.mark.long
def test_the_official_layout_runs(in_process: None, tmp_path: Path) -> None:
    write_tree(tmp_path)
    data = {"corpus": "librispeech", "root": str(tmp_path), "server": {"share": 0.5}}
    data["options"] = {"test": ["test-clean", "test-other"]}
    settings = speech.settings(tmp_path, rounds=1, data=data, cohort={"fraction": 1.0})
    result = fedray.run(settings, out=tmp_path / "run")
    assert {"dev/wer", "test/wer", "test-other/wer", "test-other/wer_lm"} <= set(result.results["best"])
    clients = RunFolder(result.folder).load(1).clients
    assert len(clients) == 2 and set(clients) < set(READERS["train-clean-100"])


@pytest.mark.parametrize("lost", ["103-1200-0001.flac", "103-1200.trans.txt"])
def test_what_is_missing_is_named(in_process: None, tmp_path: Path, lost: str) -> None:
    write_tree(tmp_path)
    next(tmp_path.rglob(lost)).unlink()
    data = {"corpus": "librispeech", "root": str(tmp_path), "server": {"share": 0.5}}
    with pytest.raises(ValueError, match="103-1200"):
        fedray.run(speech.settings(tmp_path, data=data), out=tmp_path / "run")
