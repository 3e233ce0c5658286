"""The index of the benchmarks is complete, and its commands exist; every page names its command."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from benchmarks import counts, stepped, study
from benchmarks.studies import fedlora, fedstar_corpora, fedstar_long
from fedray import experiment
from fedray.config.schema import plain

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
INDEX = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
PAGES = sorted((BENCHMARKS / "results").glob("*.md"))
SCRIPTS = sorted(path for path in BENCHMARKS.rglob("*.py") if path.name != "__init__.py")
WRITTEN_BY_TESTS = {"full_disk", "soak"}  # pages of tests/full_disk.py and tests/chaos/page.py


def exists(command: str) -> bool:
    """Whether `python -m MODULE ...` or `python FILE` names code, or `make TARGET` a target of the Makefile."""
    program, *words = command.split()
    if program == "make":
        return (
            re.search(rf"^{re.escape(words[0])}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            is not None
        )
    if words[0] == "-m":
        return find_spec(words[1]) is not None
    return (ROOT / words[0]).is_file()


def test_the_index_links_every_script_page_and_figure_and_no_others() -> None:
    linked = {target for target in re.findall(r"\]\(([\w/.-]+)\)", INDEX) if re.search(r"\.(py|md|png)$", target)}
    linked = {target for target in linked if not target.startswith("..")}
    files = {*SCRIPTS, *PAGES, *(BENCHMARKS / "results").glob("*.png")} - {BENCHMARKS / "results" / "engine.png"}
    assert linked == {str(path.relative_to(BENCHMARKS)) for path in files}


def test_the_commands_of_the_index_exist() -> None:
    commands = re.findall(r"`((?:python|make) [^`]+)`", INDEX)
    assert len(commands) > 20 and not [command for command in commands if not exists(command)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_has_its_numbers_its_command_and_its_script(page: Path) -> None:
    assert page.with_suffix(".json").exists()
    commands = re.findall(r"`((?:python -m (?:benchmarks|tests)|make) ?[^`]+)`", page.read_text(encoding="utf-8"))
    assert commands and all(exists(command) for command in commands)
    written_by = {script.stem for script in SCRIPTS} | WRITTEN_BY_TESTS
    assert [name for name in written_by if page.stem == name or page.stem.startswith(f"{name}_")]


def test_real_speech_is_asked_for_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDRAY_SPEECH", raising=False)
    with pytest.raises(SystemExit, match="FEDRAY_SPEECH is not set: set it to the folder that holds fsdd/"):
        study.speech("fsdd")
    monkeypatch.setenv("FEDRAY_SPEECH", str(tmp_path))
    with pytest.raises(SystemExit, match="holds no fsdd/"):
        study.speech("fsdd")
    (tmp_path / "fsdd").mkdir()
    assert study.speech("fsdd") == tmp_path / "fsdd"


def test_a_page_names_the_options_that_were_not_at_their_defaults() -> None:
    parser = study.parser("benchmarks.studies.some", "About.", "study-some", rounds=100)
    parser.add_argument("--only", nargs="+", default=["labels", "noise"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.03])
    start = "python -m benchmarks.studies.some"
    plain = parser.parse_args(["--seeds", "0", "--actors", "1", "--runs", "elsewhere"])
    assert study.command(parser, plain) == start
    assert study.command(parser, plain, only=["noise"]) == f"{start} --only noise"
    chosen = parser.parse_args(["--rounds", "400", "--only", "no labels", "--small", "--shares", "0.20", "1"])
    assert study.command(parser, chosen) == f"{start} --rounds 400 --only 'no labels' --small --shares 0.2 1"


def test_a_run_that_cannot_be_resumed_ends_a_study_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = "configs/fedstar/embedded.yaml"
    settings = plain(experiment.check(*experiment.load(study.ROOT / config)))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")

    def changed(folder: Path) -> None:
        raise ValueError(f"{folder}: torch 2.10 -> 2.11")

    monkeypatch.setattr(experiment, "resume", changed)
    with pytest.raises(SystemExit, match=f"torch 2.10 -> 2.11\nor move {tmp_path} away"):
        study.run(config, [], tmp_path)


def test_a_run_whose_best_round_is_late_is_still_improving() -> None:
    assert study.best_rounds([90, 20], [100, 100]) == "90 of 100, 20 of 100"
    assert study.best_rounds([91, 20], [100, 100]) == "91 of 100 (still improving), 20 of 100"


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    config = "configs/fedstar/embedded.yaml"
    settings = plain(experiment.check(*experiment.load(study.ROOT / config, ["seed=1"])))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (tmp_path / "results.json").write_text("{}", encoding="utf-8")
    assert study.run(config, ["seed=1"], tmp_path) == {}
    with pytest.raises(ValueError, match="holds a run with other settings than configs/fedstar/embedded.yaml seed=2"):
        study.run(config, ["seed=2"], tmp_path)


def test_scores_of_several_seeds() -> None:
    """The standard deviation is that of a sample of seeds; half of ten rounds is round 5."""
    assert study.spread([10.0, 12.0, 17.0]) == "13.0 ± 3.6" and study.spread([10.0]) == "10.0"
    runs = [{"rounds": [(at, 10.0 * at + seed) for at in range(1, 11)]} for seed in (0, 2)]
    assert study.half_and_end(runs) == "51.0 ± 1.4, 101.0 ± 1.4"


def test_a_page_of_an_earlier_version_is_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "RESULTS", tmp_path)
    (tmp_path / "x.json").write_text('{"found": {}, "rounds": 100}', encoding="utf-8")
    assert study.page_before("x", rounds=100)["found"] == {}
    with pytest.raises(SystemExit, match="is of {'rounds': 100}, not of {'rounds': 50}, and its runs would be lost"):
        study.page_before("x", rounds=50)
    assert study.page_before("x", rounds=100, clips=40) == {}, "it does not name its clips"


@pytest.mark.parametrize("corpus", fedlora.CORPORA)
def test_the_pages_of_fedlora_give_the_runs_that_have_all_counts(corpus: str) -> None:
    for runs in fedlora.on_page(corpus).values():
        assert all(fedlora.CORPORA[corpus].decoded[0] in run["counts"] for run in runs)


def test_a_page_of_settings_names_all_of_them() -> None:
    one, two = {"supervised": [], "FedSTAR, beta = 0": []}, {"FedSTAR, beta = 0": []}
    found = fedstar_long.of_page({"N = 5, L = 3 %": one, "N = 30, L = 20 %": two})
    assert found == {"clients": [5, 30], "labels": [0.03, 0.2], "arms": ["supervised", "FedSTAR, beta = 0"]}


def test_counts_by_speaker_come_back_from_the_text_of_a_page() -> None:
    counts = {"one of two": (12, 3), "Ayşe, 7": (5, 0)}
    assert study.unpacked(study.packed(counts)) == counts


def test_a_page_lists_the_speakers_of_many_runs_once() -> None:
    units = [f"speaker-{number}" for number in range(12)]
    texts = [study.packed({unit: (20, wrong) for unit in units}) for wrong in (3, 4)]
    few, three = study.packed({"ann": (20, 3)}), study.packed(dict.fromkeys(units, (20, 3, 1)))
    page = {"found": {"arm": [{"seed": 0, "before": texts[0], "best": texts[1], "few": few, "three": three}]}}
    thin = counts.thinned(page)
    assert thin["units"] == [" | ".join(f"20 by {unit}" for unit in units)]
    assert thin["found"]["arm"][0] == page["found"]["arm"][0] | {
        "before": "units 0: " + " ".join(["3"] * 12),
        "best": "units 0: " + " ".join(["4"] * 12),
    }
    assert counts.whole(thin) == page
    assert counts.whole(page) == page


@pytest.mark.parametrize("corpus", ["languages", "events"])
def test_other_corpora_have_the_arms_of_fedstar_long(corpus: str) -> None:
    ((title, (labels, clients)),) = fedstar_corpora.settings(corpus).items()
    assert title == f"{corpus}, L = 3 %" and clients is None
    for config, overrides in fedstar_long.arms(labels).values():
        described = fedstar_corpora.described(corpus, labels, clients)
        found, source = experiment.load(f"configs/fedstar/{config}.yaml", [*described, *overrides, "rounds=100"])
        experiment.check_setup(found, source)
        assert found.data.labelled.share == 0.03 and found.data.options["kind"] != "keywords"


def test_a_corpus_of_several_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study, "speech", lambda name: tmp_path / name)
    found = fedstar_corpora.settings("arabic_commands_full")
    assert len(found) == 9 and found["arabic commands full, N = 24, L = 5 %"] == (0.05, 24)
    described = fedstar_corpora.described("arabic_commands_full", 0.05, 24)
    loaded, _ = experiment.load("configs/fedstar/embedded.yaml", described)
    data = loaded.data
    assert (data.labelled.share, data.clients.count, data.clients.by) == (0.05, 24, "uneven")
    assert data.root == str(tmp_path / "arabic-commands-full")


def test_a_cell_that_a_row_of_a_table_lacks_is_empty() -> None:
    rows = [{"arm": "Whisper as it is", "WER": 31.8}, {"arm": "FedNST", "WER": 18.2, "rate": "0.01"}]
    *_, first, second = study.table(rows).splitlines()
    assert (first, second) == ("| Whisper as it is | 31.8 |  |", "| FedNST | 18.2 | 0.01 |")


def test_results_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    assert stepped.kept(tmp_path, {"rate": 0.1}, lambda: {"score": 1}) == {"score": 1}
    assert stepped.kept(tmp_path, {"rate": 0.1}, lambda: {"score": 2})["score"] == 1
    with pytest.raises(ValueError, match="holds a run with other settings"):
        stepped.kept(tmp_path, {"rate": 0.2}, lambda: {"score": 2})
