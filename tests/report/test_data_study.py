"""`fedray data CONFIG --study OTHER` through the command line: the files of its report, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

from fedray import cli
from fedray.data.analysis.acoustics import MEASURES
from fedray.data.analysis.differences import Sounds, Spread
from fedray.report.data_study_page import DataStudy, Federation
from tests import speech
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    paths = []
    for name, seed in (("calm", 0), ("loud <b>", 1)):
        folder = tmp_path_factory.mktemp("corpus")
        speech.write_corpus(folder, seed=seed)
        (folder / "config.yaml").write_text(yaml.safe_dump(speech.settings(folder, name=name)), encoding="utf-8")
        paths.append(folder / "config.yaml")
    return paths[0], paths[1]


def study(configs: tuple[Path, Path], out: Path, *arguments: str) -> int:
    return cli.main(
        ["data", str(configs[0]), "--study", str(configs[1]), "data.server.share=null", "--out", str(out), *arguments]
    )


@pytest.mark.long
def test_the_report_of_a_study(configs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study(configs, tmp_path / "study", "--utterances", "3") == 0
    assert f"report: {tmp_path / 'study' / 'report.html'}" in capsys.readouterr().out
    page = (tmp_path / "study" / "report.html").read_text(encoding="utf-8")
    assert "calm beside loud &lt;b&gt;" in page and "loud <b>" not in page
    assert "12 utterances of 4 of its 4 clients" in page  # the server has two of six training speakers
    assert "18 utterances of 6 of its 6 clients" in page, "overrides behind the other configuration apply to it only"
    assert page.count("<svg") == 3
    rows = list(csv.DictReader((tmp_path / "study" / "report.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == (4 + 6) * 4 and {row["client"] for row in rows} <= {f"s{number:02d}" for number in range(6)}
    again = tmp_path / "again"
    study(configs, again, "--utterances", "3")
    assert (again / "report.csv").read_bytes() == (tmp_path / "study" / "report.csv").read_bytes()
    figures = {f"{name}.{kind}" for name in ("samples", "means", "clusters") for kind in ("svg", "png")}
    assert {path.name for path in (again / "figures").iterdir()} == figures
    said = (again / "report.md").read_text(encoding="utf-8")
    assert "| calm | 4 | 16 | 4 | 4 | 4 | 4 | 4 |" in said


@pytest.mark.long
@pytest.mark.usefixtures("unrendered")
def test_a_federation_beside_itself_has_another_name(configs: tuple[Path, Path], tmp_path: Path) -> None:
    assert study((configs[0], configs[0]), tmp_path, "--utterances", "2") == 0
    assert "calm beside calm (other)" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.usefixtures("unrendered")
def test_speaker_embeddings_by_weights_of_ones_own(
    configs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = ECAPA_TDNN(80, lin_neurons=8, channels=[16, 16, 16, 16, 48], attention_channels=8, se_channels=8)
    torch.save(model.state_dict(), tmp_path / "embedding_model.ckpt")
    assert (
        study(configs, tmp_path / "study", "--utterances", "2", "--embeddings", str(tmp_path / "embedding_model.ckpt"))
        == 0
    )
    assert "speaker embeddings (ECAPA-TDNN)" in (tmp_path / "study" / "report.md").read_text(encoding="utf-8")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.ckpt")
    for name, said in (
        ("other.ckpt", "not the weights of a SpeechBrain ECAPA-TDNN"),
        ("none.ckpt", "do not exist"),
    ):
        assert study(configs, tmp_path / "study", "--embeddings", str(tmp_path / name)) == 2
        assert said in capsys.readouterr().err


def test_sentences_tell_between_clients_from_within_them() -> None:
    """Loudness varies more between the clients of `one`, and more within a client of `other`."""

    def side(name: str, between: float, within: float) -> Federation:
        alike = dict.fromkeys(MEASURES, Spread(0.0, 1.0, 1.0, 0.0))
        spreads = alike | {MEASURES[0]: Spread(0.0, between, within, 0.0)}
        nothing = Sounds([], np.zeros(0, np.int64), np.zeros((0, len(MEASURES))), np.zeros((0, 2), np.float32), [])
        return Federation(name, "made", np.ones(2, np.int64), nothing, spreads, between, 0.5)

    between, within, purity = DataStudy(side("one", 2, 1), side("other", 1, 2), "none", 0).sentences()
    assert between.startswith("Between clients, one varies more in ")
    assert within.startswith("Within a client, other varies more in ")
    assert purity == "Clients are easier to distinguish in one: purity above chance is 1.5 (one) and 0.500 (other)."


def test_what_makes_no_study(configs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study(configs, tmp_path, "--clients", "1") == 2
    assert "must be at least 2" in capsys.readouterr().err
    assert (
        cli.main(
            ["data", str(configs[0]), "data.clients.by=pooled", "data.server.share=null", "--study", str(configs[1])]
        )
        == 2
    )
    assert "fewer than two" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["data", str(configs[0]), "--embeddings", "weights.ckpt"])
    assert "--study OTHER" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["data", str(configs[0]), "--clients", "3"])
    assert "--clients needs a study" in capsys.readouterr().err
