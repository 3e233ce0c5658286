"""`fedray data` shows the numbers counted by hand on a small corpus and finds every problem that it should."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console

from fedray import cli
from fedray.cli.counts import histogram, spread
from fedray.cli.population import show
from fedray.config.source import ConfigError
from fedray.data.analysis import inspection, listening
from fedray.data.analysis.inspection import Problem
from fedray.data.corpora import CORPORA
from fedray.data.manifest import Manifest
from tests import small_corpus
from tests.small_corpus import SECONDS, without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")

SERVER = [(f"s{i}", "sue", text) for i, text in enumerate(("one two", "two three", "three one", "one one"))]
CLIENTS = [(f"a{i}", "ann", "one two") for i in range(6)] + [
    ("b0", "bob", "two"),
    ("b1", "bob", "two"),
    ("c0", "cid", "one"),
]
DEV = [("d0", "dan", "one four"), ("d1", "dan", "two two")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_corpus.write(tmp_path, server=SERVER, clients=CLIENTS, dev=DEV)


def shown(config: dict[str, Any], folder: Path, *overrides: str) -> tuple[str, list[Problem]]:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    console = Console(file=io.StringIO(), width=160)
    problems = show(path, overrides, console)
    return console.file.getvalue(), problems


def row(text: str, title: str) -> list[str]:
    """Return the cells of the table row that begins with `title`."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")]
    (cells,) = [cells for cells in rows if cells[0] == title]
    return cells


def test_a_sound_corpus_is_counted_and_has_no_problems(folder: Path) -> None:
    text, problems = shown(small_corpus.config(folder, "server", "clients", "dev"), folder)
    (problem,) = problems
    assert problem.text.startswith("dev: 1 of 2 transcripts (first d0.wav: 'one four') hold") and not problem.stops
    assert (
        "no transcript of server has: 'f' (U+0066), 'u' (U+0075)." in problem.text
    )  # of the letters of "four", o is in "two" and r in "three"
    speech, transcripts = text.split("Transcripts")
    assert row(speech, "clients") == ["clients", "9", f"{9 * SECONDS / 3600:.2f}", "3", "0.4 / 0.4 0.4 0.4 / 0.4"]
    # The clients say 6 x 2 + 2 + 1 words, two of them distinct, of the letters o n e t w and the blank.
    assert row(transcripts, "clients") == ["clients", "15", "2", "6", "0.0 %"]
    assert row(transcripts, "dev") == ["dev", "4", "3", "9", "25.0 %"]  # "four" is one of four words
    assert row(transcripts, "server")[-1] == ""
    assert row(text, "number")[1] == "3, divided by speaker"
    # Sizes 1, 2, 6: the quartiles lie halfway between them. The largest tenth of three clients is one of them.
    assert row(text, "utterances a client*")[1] == "1 / 2 2 4 / 6"
    assert row(text, "held by the largest client")[1] == f"{100 * 6 / 9:.1f} % of the utterances"
    assert row(text, "with less than a batch of 6")[1] == "2 clients"
    assert row(text, "the server has")[1].startswith(f"{100 * 4 / 13:.1f} % of the speech for training")
    assert "the headers of all 15 audio files were read" in text


def test_the_labelled_share_is_told(folder: Path) -> None:
    config = small_corpus.config(folder, "server", "clients", "dev")
    assert "│ labelled" not in shown(config, folder)[0]
    # A third of 3 clients is one. Half of 6, 2 and 1 utterances is 3, 1 and (rounded to even) 0.
    text, _ = shown(config, folder, "data.labelled.utterances=0.5")
    assert row(text, "labelled")[1] == f"{100 * 4 / 9:.1f} % of their utterances; all of 0 clients"
    text, _ = shown(config, folder, "data.labelled.clients=0.33")
    assert row(text, "labelled")[1].endswith("all of 1 clients")
    text, _ = shown(config, folder, "data.clients.by=pooled")
    assert row(text, "number")[1] == "1, divided by pooled"
    assert row(text, "the server has")[1].endswith("which the client has too")


def test_damage_is_counted_and_sections_that_do_not_fit_stop_a_run(folder: Path) -> None:
    config = small_corpus.config(folder, "server", "clients", "dev")
    text, _ = shown(config, folder)
    assert "wrong texts" not in text and "white noise" not in text
    fedavg = ["algorithm={kind: fedavg}", "data.corruption={label_errors: 0.5, clients: 0.34, snr_db: 5}"]
    text, problems = shown(config, folder, *fedavg)
    assert not any(problem.stops for problem in problems)
    (wrong, _), (noisy, _) = (row(text, title)[1].split(" of ") for title in ("wrong texts", "white noise at 5 dB"))
    assert int(noisy) in (6, 2, 1) and int(wrong) == round(int(noisy) / 2)  # one of three clients
    _, problems = shown(config, folder, "algorithm={kind: fedavg}", "data.labelled.utterances=0.5")
    (stops,) = [problem.text for problem in problems if problem.stops]
    assert stops.endswith("remove it, or choose fedavg with labelled_only=true")


def test_label_distance_is_the_mean_total_variation() -> None:
    # Client 0 has labels 0 0 1, client 1 has 1 1 2 and one row without. The shares of all are 2/6, 3/6, 1/6.
    owners, labels = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 1, 2, -1])
    everywhere = np.array([2, 3, 1]) / 6
    expected = np.mean([0.5 * np.abs(np.array(p) / 3 - everywhere).sum() for p in ([2, 1, 0], [0, 2, 1])])
    assert inspection.label_distance(owners, labels) == pytest.approx(expected)
    assert inspection.label_distance(owners, np.full(7, -1)) is None
    alike = inspection.label_distance(np.repeat([0, 1], 4), np.tile([0, 1], 4))
    assert alike == pytest.approx(0)


@pytest.mark.parametrize("counts", [[5], [1, 2, 2, 9], [1] * 50 + [100_000], list(range(1, 200))])
def test_every_client_stands_in_one_bar(counts: list[int]) -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(histogram(np.array(counts)))
    bars = [line.split() for line in console.file.getvalue().splitlines()[1:] if line.strip()]
    assert sum(int(cells[-1].replace(",", "")) for cells in bars) == len(counts)
    assert int(bars[0][0]) == min(counts) and len(bars) <= 10


def test_a_spread_of_nothing_is_nothing() -> None:
    assert spread(np.array([]), "{:.1f}") == ""
    assert spread(np.array([1, 2, 3, 4, 5]), "{:.0f}") == "1 / 2 3 4 / 5"


def test_broken_audio_is_named(folder: Path) -> None:
    (folder / "a3.wav").write_bytes(b"not audio")
    whole = (folder / "b0.wav").read_bytes()
    (folder / "b0.wav").write_bytes(whole[: len(whole) // 2])
    config = small_corpus.config(folder, "server", "clients", "dev")
    _, problems = shown(config, folder)
    (audio,) = [problem for problem in problems if problem.stops]
    assert audio.text.startswith("2 audio files cannot be used")
    assert f"{folder}/a3.wav (cannot be read as audio" in audio.text and f"{folder}/b0.wav (truncated" in audio.text
    assert "data.skip_broken=true" in audio.text
    _, problems = shown(config, folder, "data.skip_broken=true")
    assert not any(problem.stops for problem in problems)


def test_of_many_files_a_sample_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def header(path: str, end: float, rate: int) -> inspection.audio.Shape:
        opened.append(path)  # several channels in all but the first
        return inspection.audio.Shape(8_000 if len(opened) == 1 else 16_000, 1_000, len(opened), "wav")

    monkeypatch.setattr(inspection, "HEADERS", 4)
    monkeypatch.setattr(listening, "HEARD", 0)
    monkeypatch.setattr(listening, "SUSPECTS", 0)
    monkeypatch.setattr(inspection.audio, "check", header)
    text, _ = shown(small_corpus.config(folder, "server", "clients", "dev"), folder)
    assert len(opened) == 4
    assert "all 15 audio files were looked for, and the headers of 4 random ones were read" in text
    assert "3 audio files have several channels, which are averaged: " in text
    assert "audio files differ in sampling rate: 1 of 8,000 Hz, 3 of 16,000 Hz. All are resampled to " in text


@dataclass(frozen=True)
class Careless:
    """A user's reader that checks nothing."""

    def read(self, root: Path, seed: int, cache: Path, parallel: Any) -> dict[str, Manifest]:
        def manifest(*rows: tuple[str, str, str | None]) -> Manifest:
            columns = {"utterance": [r[0] for r in rows], "speaker": [r[1] for r in rows], "text": [r[2] for r in rows]}
            return Manifest.from_columns(
                columns | {"path": [f"{root}/{r[0]}.wav" for r in rows], "seconds": [0.4] * len(rows)}, "personal"
            )

        server = manifest(("s0", "sue", "one\u2028two"), ("s1", "sue", " "))
        return {
            "server": server,
            "clients": manifest(("a0", "ann", "né"), ("gone", "sue", None)),
            "dev": manifest(("s0", "ann", "one")),
        }


def test_what_a_careless_reader_lets_pass_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "careless", Careless)
    config = small_corpus.config(folder) | {"data": {"corpus": "careless", "root": str(folder)}, "cohort": {"size": 3}}
    text, problems = shown(config, folder)
    found = {
        "cohort.size is 3, but the population has only 2 clients": True,
        "1 utterance ids repeat: s0": False,
        "1 of the 2 speakers of clients speak in server too: sue": False,
        "1 of the 1 speakers of dev speak in clients too: ann": False,
        "server: 1 of 2 utterances have no transcript, first s1": True,
        "clients: 1 of 2 utterances have no transcript, first gone": False,
        "server: 1 of 2 transcripts (first s0: 'one\\u2028two') hold '\\u2028' (U+2028)": True,
        "clients: 1 of 2 transcripts (first a0: 'né') hold characters "
        "that no transcript of server has: 'é' (U+00E9)": False,
        f"1 audio files are missing: {folder}/gone.wav": True,
        "1 of 1 utterances that are scored have the same audio as one for training": False,
    }
    assert len(problems) == len(found)
    for words, stops in found.items():
        assert [problem.stops for problem in problems if words in problem.text] == [stops], words
    assert f"Problems found: {len(found)}" in text


def test_rounds_that_will_be_short_of_clients_are_told(folder: Path) -> None:
    config = small_corpus.config(folder, "server", "clients", cohort={"size": 3, "availability": 0.5})
    _, problems = shown(config, folder)
    assert any("draws 3 clients, but only about 2 of 3 are available" in problem.text for problem in problems)
    assert any("there is no dev split" in problem.text for problem in problems)


def test_a_corpus_without_transcripts_asks_for_their_column(folder: Path) -> None:
    config = small_corpus.config(folder, "server", "clients", "dev")
    del config["data"]["options"]["text_column"]
    _, problems = shown(config, folder)
    assert [problem.stops for problem in problems] == [True, False, False]
    assert (
        problems[0].text.startswith("server: 4 of 4 utterances have no transcript")
        and "data.options" in problems[0].text
    )
    assert problems[1].text.startswith("clients: 9 of 9 utterances have no transcript: they cannot be scored")


def test_data_that_cannot_be_divided_are_shown_with_the_reason(folder: Path) -> None:
    config = small_corpus.config(folder, "server", "clients", "dev")
    text, problems = shown(config, folder, "data.clients.count=7")
    assert "7 clients were asked for, but only 3 have" in problems[0].text and problems[0].stops
    assert row(text.split("Transcripts")[0], "clients")[1] == "9"
    text, problems = shown(config, folder, "data.root=/nowhere")
    assert "the folder /nowhere does not exist" in problems[0].text and "Problems found: 1" in text


def test_the_command_has_an_exit_status(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unrendered: None
) -> None:
    monkeypatch.chdir(folder)
    config = small_corpus.config(folder, "server", "clients", "dev")
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    config["name"] = "small"
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert cli.main(["data", str(folder / "config.yaml")]) == 0
    assert (folder / "runs" / "data-small" / "audit.png").read_bytes() == b"\x89PNG"
    assert cli.main(["data", str(folder / "config.yaml"), "cohort.size=5", "--out", "elsewhere"]) == 2
    assert "Picture: elsewhere/audit.png" in capsys.readouterr().out.replace(f"{folder.resolve()}/", "")
    assert cli.main(["data", str(folder / "config.yaml"), "cohort.size=5", "--out", str(folder / "a0.wav" / "x")]) == 2
    text = capsys.readouterr().out
    assert "cohort.size is 5, but the population has only 3 clients" in text and "No picture: " in text
    assert cli.main(["data", str(folder / "config.yaml"), "cohort.sice=5"]) == 2
    with pytest.raises(ConfigError, match="did you mean cohort.size"):
        shown(config, folder, "cohort.sice=5")


def test_a_seed_model_needs_data_of_the_server(folder: Path) -> None:
    config = small_corpus.config(folder, "clients", "dev", algorithm={"pretrain": {"steps": 5}})
    problems = shown(config, folder)[1]
    assert [problem.text.partition(":")[0] for problem in problems if problem.stops] == [
        "algorithm.pretrain.steps=5 trains a seed model on the server's data, and it has none"
    ]


def test_what_clients_hold_out_is_no_part_of_their_speech(folder: Path) -> None:
    text, problems = shown(small_corpus.config(folder, "server", "clients", "dev"), folder, "data.own_share=0.25")
    assert row(text.split("Transcripts")[0], "clients")[1] == "6", "of 9"
    assert not any(words in one.text for one in problems for words in ("ids repeat", "same audio", "of own"))
    assert row(text.split("Transcripts")[0], "own")[1] == "3", "of 1, 2 and 6 utterances: none, one and two"
    assert row(text, "utterances a client*")[1] == "1 / 1 1 2 / 4"
