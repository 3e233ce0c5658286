"""End-to-end audits of updates: words and voices are read off updates; settings that make no sense are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fedray
from fedray.config.source import ConfigError
from fedray.experiment import check_setup, load, read_federation
from fedray.runs.folder import RunFolder
from tests import keywords

AUDIT = {"kind": "updates", "clients": 10, "attributes": ["tune"], "auxiliary": 0.5, "file": "speakers.tsv"}


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        ("fednst/baselines/sl", [], "trains in one place, so an audit has no clients"),
        ("fedmem/embedded", [], "trains no shared model, so an audit has no clients"),
        ("fedavg/keywords", ["audit.attributes=[age]"], "'age' is a column of a table of speakers: name the table"),
        ("fedavg/keywords", ["audit.attributes=[label,label]"], "attributes must be different ones"),
        ("fedavg/keywords", ["audit.sums=[5,5]"], "sums must be one number of updates or several different ones"),
        ("fedavg/keywords", ["attack.kind=sign_flip"], "observes honest clients"),
        ("fedavg/keywords", ["audit.sums=[1,5]", "strategy.kind=median"], "hides single updates, which strategy"),
        ("fednst/embedded", [], "the labels that a client keeps are those of all its data"),
    ],
)
def test_an_audit_that_makes_no_sense_is_refused(config: str, overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_setup(*load(config, ["audit.kind=updates", *overrides]))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        ("fednst/baselines/sl", [], "trains in one place, so an audit has no clients"),
        ("fednst/embedded", [], "algorithm.kind fednst makes labels"),
        (
            "fedavg/keywords",
            ["data.labelled={share: 0.5}", "algorithm.labelled_only=true"],
            "data.labelled hides labels",
        ),
        ("fedavg/keywords", ["attack.kind=sign_flip"], "attacks honest clients"),
        ("fedlora/embedded", ["algorithm.averaging=product"], "reads A and B: set algorithm.averaging=factors"),
        ("fedavg/keywords", ["task.window=0.5"], "clients train on random parts: set task.window=null"),
    ],
)
def test_an_inversion_that_makes_no_sense_is_refused(config: str, overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_setup(*load(config, ["audit.kind=inversion", *overrides]))
    assert words in str(error.value)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keywords")
    keywords.write_corpus(folder, speakers=26, clips=4)
    lines = [f"s{number:02d}\t{'odd' if number % 2 else 'even'}" for number in range(26)]
    (folder / "speakers.tsv").write_text("\n".join(["speaker\ttune", *lines]) + "\n", encoding="utf-8")
    return folder


def played(corpus: Path, out: Path, **changes: Any) -> fedray.Result:
    audit = AUDIT | {"file": str(corpus / "speakers.tsv")}
    settings = keywords.settings(corpus, **{"audit": audit, "rounds": 2, "cohort": {"fraction": 1.0}} | changes)
    return fedray.run(settings, out=out)


def test_too_few_clients_are_refused(corpus: Path) -> None:
    for changes, words in (
        ({"clients": 13}, "24 clients take part beside the auxiliary ones"),
        ({"sums": [1, 6]}, "audit.sums: sums of 6 updates would all be alike"),
        ({"attributes": ["label"]}, "audit.attributes: only one value"),
        ({"attributes": ["age"]}, "has no column 'age': set audit.attributes to one of speaker, tune"),
    ):
        with pytest.raises((ConfigError, ValueError)) as error:
            fedray.open(keywords.settings(corpus, audit=AUDIT | {"file": str(corpus / "speakers.tsv")} | changes))
        assert words in str(error.value)


@pytest.mark.long
def test_auxiliary_clients_take_no_part(in_process: None, corpus: Path, tmp_path: Path) -> None:
    one = played(corpus, tmp_path / "one")
    assert len(one.clients()) == 12
    rows = [line.split("\t") for line in RunFolder(one.folder).read_text("audit.tsv").splitlines()[1:]]
    assert len(rows) == 20 and {client for _, client, *_ in rows} <= set(one.clients()["client"])
    assert {value for _, _, attribute, value, *_ in rows if attribute == "tune"} == {"odd", "even"}
    audit = one.results["audit"]
    found = audit["sums"]["1"]
    assert found["attributes"]["tune"]["clients"] == 10 and found["same_client"]["clients"] == 10
    engine = {"lanes": 2, "actors": 2, "cpus_per_client": 0.5}
    two = played(corpus, tmp_path / "two", engine=engine)
    assert two.results["audit"] == audit
    _, clients = read_federation(*load(tmp_path / "one" / "config.yaml"))
    assert set(clients) == set(one.clients()["client"])


def test_too_few_clients_to_invert_are_refused_before_the_run(corpus: Path) -> None:
    with pytest.raises((ConfigError, ValueError), match="fewer than audit.clients"):
        fedray.open(keywords.settings(corpus, audit={"kind": "inversion", "clients": 25}))


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_a_clip_is_reconstructed_with_the_same_bits(corpus: Path, tmp_path: Path) -> None:
    audit = {"kind": "inversion", "clients": 4, "utterances": 2, "steps": 60}
    features = {"sample_rate": 8000, "bins": 20, "normalise": "mean_variance"}
    one = played(corpus, tmp_path / "one", audit=audit, features=features, rounds=1)
    found = one.results["audit"]
    assert found["kind"] == "inversion" and found["clients"] == 4 and found["last"]["utterances"] == 8
    assert found["first"]["match"] > 0.8
    engine = {"lanes": 2, "actors": 2, "cpus_per_client": 0.5}
    two = played(corpus, tmp_path / "two", audit=audit, features=features, rounds=1, engine=engine)
    assert two.results["audit"] == found
    kept = torch.load(one.folder / "audit.pt", weights_only=True)
    lines = RunFolder(one.folder).read_text("audit.tsv").splitlines()
    assert len(lines) == 17 and {line.split("\t")[2] for line in lines[1:]} == set(kept["first"]) == set(kept["last"])
    assert all(both["true"].shape == both["made"].shape for both in kept["last"].values())
