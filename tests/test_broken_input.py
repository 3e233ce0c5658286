"""What mistakes of a user do beyond the messages of tests/bad_input: who goes on, what is counted, what is not done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedray import cli, experiment
from fedray.config.source import ConfigError
from fedray.core.types import Server
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.jobs.holding import Holder
from fedray.engine.jobs.job import Workplace
from fedray.engine.jobs.work import Program
from fedray.engine.lane.lane import Lane, LaneResult
from fedray.engine.lane.training import TrainLane
from fedray.runs.client_states import ClientStore
from tests import small_corpus
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")

SERVER = [("s0", "sue", "one two"), ("s1", "sue", "three")]
CLIENTS = [("a0", "ann", "one"), ("a1", "ann", "two"), ("b0", "bob", "one"), ("c0", "cid", "two")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_corpus.write(tmp_path, server=SERVER, clients=CLIENTS)


def built(folder: Path, **sections: Any) -> tuple[experiment.Config, SpeechData, dict[str, str]]:
    config, source = experiment.load(small_corpus.config(folder, "server", "clients", **sections))
    return config, *experiment.build_data(config, source)


def truncate(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def refused(folder: Path, **sections: Any) -> str:
    with pytest.raises(ValueError) as caught:
        built(folder, **sections)
    return str(caught.value)


# --- audio ---


def test_all_broken_audio_is_named(folder: Path) -> None:
    truncate(folder / "a1.wav")
    (folder / "c0.wav").write_bytes(b"")
    message = refused(folder)
    assert message.startswith("the audio of 2 of 4 utterances cannot be used")
    assert "a1.wav: truncated" in message and "c0.wav: an empty file" in message


def test_skip_broken_leaves_out_and_counts(folder: Path) -> None:
    truncate(folder / "a1.wav")
    truncate(folder / "s0.wav")
    (folder / "b0.wav").write_bytes(b"RIFF, but not really")
    _, data, broken = built(folder, data={"skip_broken": True})
    assert {name: reason.split(":")[0] for name, reason in broken.items()} == {
        "a1.wav": "truncated",
        "b0.wav": "cannot be read as audio",
        "s0.wav": "truncated",
    }
    # Bob had no other audio: a client without data would only fail whenever it is drawn.
    assert list(data.client_ids()) == ["ann", "cid"]
    assert {client: data.load(client).ids for client in data.client_ids()} == {"ann": ["a0.wav"], "cid": ["c0.wav"]}
    assert data.server() is not None and data.server().ids == ["s1.wav"]
    assert (data.load("ann").lengths > 0).all()


def test_all_rows_without_their_files_are_named_by_their_lines(folder: Path) -> None:
    for name in ("a1", "b0"):
        (folder / f"{name}.wav").unlink()
    message = refused(folder)  # the header is line 1, a0 line 2
    assert message.startswith(f"{folder}/clients.tsv:3: {folder}/a1.wav: missing") and message.endswith("(1 more: 4)")


def test_all_rows_without_a_transcript_are_named_by_their_lines(tmp_path: Path) -> None:
    small_corpus.write(tmp_path, server=SERVER, clients=[*CLIENTS, ("d0", "dan", ""), ("d1", "dan", "")])
    assert refused(tmp_path) == f"{tmp_path}/clients.tsv:6: the text is empty: complete the row or drop it (1 more: 7)"


# --- transcripts ---


def trained(folder: Path, tmp_path: Path, **sections: Any) -> LaneResult:
    """Train all clients in one lane of FedAvg, as a client actor does."""
    config, data, _ = built(folder, **sections)
    algorithm = experiment.build_algorithm(config, data)
    program = Program(algorithm, data, 0, ClientStore(tmp_path / "states"))
    state = algorithm.init(Server(data.server(), None, 0))
    place = Workplace(
        program, algorithm.layers(), algorithm.assets(data), Holder(tmp_path / "held", 0.0), lambda *_: None
    )
    broadcast = algorithm.broadcast(state, 0)
    lane = Lane(0, 0, tuple((client, None) for client in data.client_ids()))
    return TrainLane(lane).run(place, broadcast, broadcast)


def test_a_client_with_unknown_characters_fails_alone(tmp_path: Path) -> None:
    folder = small_corpus.write(tmp_path, server=SERVER, clients=[*CLIENTS, ("b1", "bob", "no café")])
    result = trained(folder, tmp_path)
    (failure,) = result.failures
    assert failure.client == "bob"
    assert (
        "utterance b1.wav: the tokeniser has no token for 'a' (U+0061), 'c' (U+0063), 'f' (U+0066), 'é' (U+00E9)"
        in failure.reason
    )
    assert "in 'no café'; train the tokeniser on transcripts with these characters, normalise" in failure.reason
    assert "the transcripts, or set task.unknown=leave_out" in failure.reason
    assert "client_update" in failure.traceback
    # The others count as if bob had not been there: his lane continues after he fails.
    assert list(result.reports) == ["ann", "cid"] and result.reports["ann"]["examples"] == 2
    kept = trained(folder, tmp_path / "kept", task={"unknown": "leave_out"})
    assert not kept.failures and list(kept.reports) == ["ann", "bob", "cid"]


def test_characters_that_make_no_tokens_are_refused_on_the_server(tmp_path: Path) -> None:
    folder = small_corpus.write(
        tmp_path, server=[*SERVER, ("s2", "sue", "four\N{NO-BREAK SPACE}five")], clients=CLIENTS
    )
    config, data, _ = built(folder)
    words = "the transcripts hold '\\xa0' (U+00A0), which cannot be tokens, first in 'four\\xa0five'; normalise them"
    with pytest.raises(ValueError, match=re.escape(words)):
        experiment.build_algorithm(config, data)


def test_a_corpus_without_transcripts_asks_for_their_column(folder: Path) -> None:
    values = small_corpus.config(folder, "server", "clients")
    del values["data"]["options"]["text_column"]
    config, source = experiment.load(values)
    data, _ = experiment.build_data(config, source)
    with pytest.raises(ValueError, match=r"the transcripts have no characters: .* not named in data\.options"):
        experiment.build_algorithm(config, data)


# --- configuration ---

CONFIG = """\
data: {corpus: tsv, root: ROOT, options: {clients: [clients.tsv], text_column: text}}
algorithm: fedavg
cohort: {size: 2}
"""


def test_a_wrong_option_of_the_corpus_is_named(folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text(CONFIG.replace("ROOT", str(folder)).replace("text_column", "text_colum"), encoding="utf-8")
    config, source = experiment.load(path)
    with pytest.raises(
        ConfigError,
        match=r"config\.yaml:1: unknown key data\.options\.text_colum; did you mean data\.options\.text_column",
    ):
        experiment.check_setup(config, source)


def test_a_cohort_larger_than_the_population_is_refused_before_anything_is_computed(folder: Path) -> None:
    truncate(folder / "a0.wav")  # computing features would find this
    assert "cohort.size is 4, but the population has only 3 clients" in refused(folder, cohort={"size": 4})


def test_overrides_may_stand_behind_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "config.yaml"
    path.write_text(CONFIG.replace("ROOT", str(folder)), encoding="utf-8")
    assert cli.main(["run", str(path), "seed=3", "--dry-run", "rounds=7"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert (values["seed"], values["rounds"]) == (3, 7)
    options = values["data"]["options"]
    assert options["train"] == [] and options["lower_case"] is False, "the reader's defaults are printed too"


def test_a_cohort_too_large_for_the_embedded_corpus_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path))
    config = Path(__file__).parent.parent / "configs" / "fednst" / "embedded.yaml"
    with pytest.raises(ConfigError, match="cohort.size is 61, but the population has only 60 clients"):
        experiment.check(*experiment.load(config, ["cohort.size=61"]))
    assert not list(tmp_path.iterdir())
