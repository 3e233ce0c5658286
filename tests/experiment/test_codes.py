"""Settings that conflict with `upload` and `download` are refused with a message before any data is read."""

from __future__ import annotations

import pytest

from fedray.config.source import ConfigError
from fedray.core.compression.codes import Float32, Half
from fedray.core.compression.settings import NoUpload, TopKUpload
from fedray.experiment import check_setup, load

PRIVATE = ["privacy={kind: gaussian, noise: 1.0, delta: 1e-5}", "strategy.kind=uniform", "cohort.sampling=poisson"]


def refused(config: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        check_setup(*load(config, overrides))
    return str(error.value)


@pytest.mark.parametrize("section", ["upload", "download"])
@pytest.mark.parametrize(
    ("config", "words"),
    [("fednst/baselines/sl", "sl trains in one place"), ("fedmem/embedded", "fedmem sends no updates, and its model")],
)
def test_an_algorithm_that_has_nothing_to_encode(config: str, words: str, section: str) -> None:
    said = refused(config, f"{section}=int8")
    assert words in said and said.endswith(f"there is nothing to encode, leave out {section}")
    check_setup(*load(config, [f"{section}=none"]))


def test_a_private_update_is_not_encoded_but_a_private_model_may_be() -> None:
    assert "privacy clips an update before" in refused("fedavg/keywords", *PRIVATE, "upload=half")
    check_setup(*load("fedavg/keywords", [*PRIVATE, "download=int8"]))


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("median", "the model would not move"),
        ("trimmed_mean", "the model would not move"),
        ("krum", "distances between updates reflect only their norms"),
    ],
)
def test_a_strategy_that_needs_all_numbers_of_an_update(strategy: str, words: str) -> None:
    assert words in refused("fedavg/keywords", "upload=topk", f"strategy.kind={strategy}")
    check_setup(*load("fedavg/keywords", ["upload=int4", f"strategy.kind={strategy}"]))


def test_the_sections() -> None:
    config, _ = load("fedavg/keywords", ["upload={kind: topk, share: 0.1, values: int8}", "download=half"])
    assert config.upload == TopKUpload(0.1, "int8", True) and config.download == Half()
    config, _ = load("fedavg/keywords")
    assert config.upload == NoUpload() and config.download == Float32()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("upload=zip", "upload.kind: 'zip' is not known; known kinds: none, half, int8, int4, topk"),
        ("download=topk", "download.kind: 'topk' is not known; known kinds: none, half, int8, int4"),
        ("upload={kind: topk, share: 0}", "upload.share must be above 0 and at most 1, not 0"),
        ("upload={kind: topk, values: int4}", "values must be one of float32, half, int8, not 'int4'"),
        ("upload={kind: int8, share: 0.1}", "unknown key upload.share"),
    ],
)
def test_wrong_values(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load("fedlora/embedded", [override])
    assert words in str(error.value)
