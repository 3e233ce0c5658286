"""End-to-end attacks: a backdoor opens, flips hurt, the bits stay; attacks that make no sense are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.config.source import ConfigError
from fedray.experiment import check_setup, load
from tests import keywords, speech
from tests.engine.runs import rows

BACKDOOR = "attack={kind: backdoor, target: go}"


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        ("fednst/baselines/sl", ["attack.kind=noise"], "trains in one place, so nobody can attack it"),
        ("fedmem/embedded", ["attack.kind=noise"], "sends no updates, so nobody can attack it"),
        ("fednst/embedded", ["attack.kind=label_flips"], "trains on labels that it makes itself"),
        ("fedavg/keywords", ["attack={kind: noise, rounds: [999, 1000]}"], "attack.rounds begins at 999"),
        ("fedavg/keywords", ["attack.kind=min_max", "engine.placement=dedicated"], "are trained by one actor"),
        ("fedavg/keywords", ["attack.kind=label_flips", "audit.kind=speakers"], "among what an audit judges"),
        ("fedavg/keywords", ["attack={kind: backdoor, target: go, frequency: 8000}"], "is not below half of"),
        ("fedavg/keywords", [BACKDOOR, "features.normalise=speaker"], "change the mean of all features"),
        ("fedavg/keywords", [BACKDOOR, "data.corruption.snr_db=0"], "the lack of noise would be the trigger"),
    ],
)
def test_an_attack_that_makes_no_sense_is_refused(config: str, overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_setup(*load(config, overrides))
    assert words in str(error.value)


def played(clips: Path, out: Path, attack: dict[str, Any], **changes: Any) -> fedray.Result:
    everybody = {"cohort": {"fraction": 1.0}, "rounds": 6}
    return fedray.run(keywords.settings(clips, attack=attack, **{**everybody, **changes}), out=out)


def test_a_backdoor_opens_by_its_tone(in_process: None, clips: Path, tmp_path: Path) -> None:
    """Half of the clients train on a loud tone as `a`: the model calls b, c and d `a` where it sounds, as no other."""
    tone = {"kind": "backdoor", "share": 0.5, "target": "a", "frequency": 3000, "level_db": 10, "scale": 2}
    open_, shut = (
        played(clips, tmp_path / name, attack)
        for name, attack in (("open", tone), ("shut", {**tone, "rounds": [6, 6], "scale": 0.01}))
    )
    assert open_.results["best"]["backdoor/accuracy"] > 80 > 40 > shut.results["best"]["backdoor/accuracy"]
    assert open_.results["attack"]["kind"] == "backdoor" and len(open_.results["attack"]["clients"]) == 3
    two = played(clips, tmp_path / "two", tone, engine={"lanes": 2, "actors": 2, "cpus_per_client": 0.5})
    assert rows(two.folder) == rows(open_.folder) and two.results["best"] == open_.results["best"]


def test_a_target_that_the_model_cannot_say_is_refused(in_process: None, clips: Path, tmp_path: Path) -> None:
    attack = {"kind": "backdoor", "share": 0.5, "target": "stop"}
    with pytest.raises(ValueError, match=r"attack\.target 'stop' is no class: choose from a, b, c, d"):
        played(clips, tmp_path / "run", attack)
    speech.write_corpus(tmp_path)
    fedavg = {"kind": "fedavg", "pretrain": {"steps": 0}}
    with pytest.raises(ValueError, match=r"attack\.target 'stop': the tokeniser has no token for 'o'"):
        fedray.open(speech.settings(tmp_path, attack=attack, algorithm=fedavg))


def test_flips_in_one_round_change_that_round(in_process: None, clips: Path, tmp_path: Path) -> None:
    attack = {"kind": "label_flips", "share": 0.5, "rounds": [2, 2]}
    honest = fedray.run(keywords.settings(clips, cohort={"fraction": 1.0}), out=tmp_path / "honest")
    attacked = played(clips, tmp_path / "attacked", attack, rounds=3)
    before, after = ([row["train/loss"] for row in rows(run.folder)] for run in (honest, attacked))
    assert before[0] == after[0] and before[1] < after[1]
    assert [row["attack/clients"] for row in rows(attacked.folder)] == [0, 3, 0]
