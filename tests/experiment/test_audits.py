"""End-to-end audits: scores have the same bits for any number of actors; audits that make no sense are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.algorithms import ALGORITHMS
from fedray.config.source import ConfigError
from fedray.core.algorithm import Algorithm
from fedray.experiment import check_setup, load, read_federation
from fedray.runs.folder import RunFolder
from tests import keywords, speech

PRIVATE = ["privacy={kind: gaussian, noise: 1.0, delta: 1e-5}", "strategy.kind=uniform", "cohort.sampling=poisson"]


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        ("fedavg/keywords", ["audit.kind=directions"], "scaled to the bound of privacy.clip: set privacy"),
        (
            "fedavg/keywords",
            ["audit.kind=directions", PRIVATE[0].replace("gaussian", "local"), PRIVATE[1], "cohort.sampling=weighted"],
            "weighted cohorts are drawn by utterances",
        ),
        ("fednst/embedded", ["audit.kind=canaries"], "trains on its own labels"),
        ("fednst/baselines/sl", ["audit.kind=speakers"], "trains in one place, so an audit has no clients"),
        ("fedmem/embedded", ["audit.kind=speakers"], "trains no shared model, so an audit has no clients"),
        ("fedavg/keywords", ["audit.kind=speakers", "data.own_share=0.1"], "would keep back what a candidate"),
        (
            "fedavg/keywords",
            ["audit.kind=speakers", "data.labelled.utterances=0.5", "algorithm.labelled_only=true"],
            "a candidate is judged by unlab",
        ),
        (
            "fedlora/embedded",
            ["audit.kind=directions", "algorithm.averaging=product", *PRIVATE],
            "directions lie in the products B A",
        ),
        ("fedavg/keywords", ["audit.kind=canaries", "data.clients.count=50"], "would leave some of the canaries out"),
    ],
)
def test_an_audit_that_makes_no_sense_is_refused(config: str, overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_setup(*load(config, overrides))
    assert words in str(error.value)


@pytest.mark.parametrize(("kind", "hook"), [("speakers", "losses"), ("inversion", "reconstruct")])
def test_an_audit_is_refused_if_the_algorithm_lacks_its_hook(
    kind: str, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ALGORITHMS["fedavg"], hook, getattr(Algorithm, hook))
    with pytest.raises(ConfigError, match=f"hook `{hook}`, which algorithm.kind fedavg does not define"):
        check_setup(*load("fedavg/keywords", [f"audit.kind={kind}"]))


def test_an_audit_by_directions_passes() -> None:
    check_setup(*load("fedavg/keywords", [*PRIVATE, "audit.kind=directions"]))
    check_setup(*load("fednst/embedded", ["audit.kind=speakers"]))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keywords")
    keywords.write_corpus(folder, speakers=14, clips=4)
    return folder


def played(corpus: Path, out: Path, audit: dict[str, Any], **changes: Any) -> fedray.Result:
    settings = keywords.settings(corpus, audit=audit, rounds=2, **changes)
    return fedray.run(settings, out=out)


def test_canaries_are_in_no_group(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed (pip install fedray[synth])")
    speech.write_corpus(tmp_path)
    settings = speech.settings(tmp_path, audit={"kind": "canaries", "clients": 4}, algorithm={"kind": "fedavg"})
    settings["data"]["options"]["label_column"] = "speaker"
    settings["data"]["groups"] = {"column": "label"}
    groups = fedray.open(settings).data.groups
    assert {groups[name] for name in groups if name.startswith("canary")} == {"unknown"} and groups["s00"] == "s00"


@pytest.mark.long
def test_speakers_outside_do_not_train(in_process: None, corpus: Path, tmp_path: Path) -> None:
    result = played(corpus, tmp_path / "run", {"kind": "speakers", "clients": 8}, cohort={"fraction": 1.0})
    table = [line.split("\t") for line in RunFolder(result.folder).read_text("audit.tsv").splitlines()[1:]]
    clients = set(result.clients()["client"])
    assert len(table) == 8 and all((name in clients) == (inside == "1") for name, inside, _ in table)
    assert len(clients) == 12 - sum(inside == "0" for _, inside, _ in table)
    audit = result.results["audit"]
    assert audit["kind"] == "speakers" and audit["inside"] + audit["outside"] == 8
    assert audit["epsilon_claimed"] is None and not audit["refuted"]


@pytest.mark.long
def test_canaries_are_clients_whose_scores_have_the_same_bits(in_process: None, corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed (pip install fedray[synth])")
    audit = {"kind": "canaries", "clients": 10, "utterances": 2, "repeat": 2}
    cohort = {"fraction": 1.0}
    one = played(corpus, tmp_path / "one", audit, cohort=cohort)
    engine = {"lanes": 2, "actors": 2, "cpus_per_client": 0.5}
    two = played(corpus, tmp_path / "two", audit, cohort=cohort, engine=engine)
    assert one.results["audit"] == two.results["audit"]
    tables = [RunFolder(each.folder).read_text("audit.tsv") for each in (one, two)]
    assert tables[0] == tables[1] and tables[0].count("canary-") == 10
    parts, clients = read_federation(*load(keywords.settings(corpus, audit=audit)))
    inside = one.results["audit"]["inside"]
    assert len(clients) == 12 + inside == len(one.clients())
    assert len(parts["clients"]) == 12 * 4 + 10 * 4 and "canary" not in "".join(parts["dev"].column("speaker"))
