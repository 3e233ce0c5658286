"""Conditional spaces: values of `tune.sample_from`, which depend on those of other keys."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import tune
from ray.tune.search.variant_generator import generate_variants

from fedray.sweep import Sweep, choices, space, study
from fedray.sweep.study import Study
from tests.sweep.test_study import sweep, trials_of

KINDS = tune.grid_search(["fedavg", "fedprox"])


def mu(function: Any) -> dict[str, object]:
    return {"algorithm.kind": KINDS, "algorithm.mu": tune.sample_from(function)}


def old(spec: Any) -> float | None:
    """As Tune's users have long written it; newer functions take the values themselves."""
    return 0.01 if spec.config["algorithm.kind"] == "fedprox" else None


def new(config: dict[str, Any]) -> float | None:
    return 0.01 if config["algorithm.kind"] == "fedprox" else None


WANTED = [
    {"algorithm.kind": "fedavg", "algorithm.mu": None},
    {"algorithm.kind": "fedprox", "algorithm.mu": 0.01},
]


@pytest.mark.parametrize("function", [old, new])
def test_a_value_is_computed_from_the_others(function: Any) -> None:
    assert list(space.combinations(mu(function), ["algorithm.kind"])) == WANTED
    assert next(space.combinations(mu(function), [])) == WANTED[0]
    for given in (space.for_search(mu(function), "grid"), space.smoke(mu(function))):
        assert [found["config"] for _, found in generate_variants({"config": given})] == WANTED
    assert space.shown(mu(function)["algorithm.mu"]) == "computed from the other keys"


def test_values_may_depend_on_each_other_but_not_in_a_circle() -> None:
    chain: dict[str, object] = {
        "c": tune.sample_from(lambda config: config["b"] + 1),
        "b": tune.sample_from(lambda spec: spec.config.a + np.int64(1)),
        "a": tune.grid_search([1, 2]),
    }
    assert list(space.combinations(chain, ["a"])) == [{"c": 3, "b": 2, "a": 1}, {"c": 4, "b": 3, "a": 2}]
    assert type(next(space.combinations(chain, []))["b"]) is int, "which JSON can write"
    circle = {"x": tune.sample_from(lambda config: config["y"]), "y": tune.sample_from(lambda config: config["x"])}
    with pytest.raises(ValueError, match="x and y are computed from each other"):
        next(space.combinations(circle, []))


@pytest.mark.parametrize(("function", "told"), [
    (lambda spec: spec.config["algorithm.knd"], "asks for 'algorithm.knd', which is not swept: it may read"),
    (lambda config: 1 / 0, r"fails \(ZeroDivisionError: division by zero\)"),
])  # fmt: skip
def test_a_function_that_fails_is_named(function: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"algorithm.mu: the function of its tune.sample_from {told}"):
        study.check_space(sweep(space=mu(function)), [])


def test_none_leaves_the_key_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base.yaml").write_text("name: a\nalgorithm: {kind: fedavg}\ncohort: {size: 2}\n")
    monkeypatch.chdir(tmp_path)
    asked: Sweep = sweep(space=mu(old))
    made: Study = trials_of(asked)
    made = study.replace(made, conditional=["algorithm.mu"])
    kinds = [made.config(values)[0].algorithm for values in WANTED]
    assert [one.kind for one in kinds] == ["fedavg", "fedprox"] and kinds[1].settings.mu == 0.01


def test_algorithms_are_compared_with_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kind replaces the section `algorithm`; in a sweep, what both kinds know stays, the rest does not."""
    text = "{kind: fedprox, mu: 0.5, client: {lr: 0.3, batch: 5}, schedule: {kind: cosine}, pretrain: {steps: 0}}"
    (tmp_path / "base.yaml").write_text(f"name: a\nalgorithm: {text}\ncohort: {{size: 2}}\n")
    monkeypatch.chdir(tmp_path)
    made = trials_of(sweep(space={"algorithm.kind": KINDS}), ["algorithm.client.batch=7"])
    for kind in ("fedavg", "fedprox"):
        chosen = made.config({"algorithm.kind": kind})[0].algorithm
        assert chosen.kind == kind and (chosen.settings.client.lr, chosen.settings.client.batch) == (0.3, 7)
        assert type(chosen.settings.schedule).__name__ == "Cosine" and chosen.settings.pretrain.steps == 0
        assert getattr(chosen.settings, "mu", None) == (0.5 if kind == "fedprox" else None)


def test_searches_that_cannot_compute_say_so() -> None:
    with pytest.raises(ValueError, match="--search optuna: algorithm.mu is a tune.sample_from"):
        space.for_search(mu(new), "optuna")
    assert choices.is_conditional(mu(new)["algorithm.mu"]) and not space.is_conditional(KINDS)


def test_the_command_line_adds_axes() -> None:
    base = {"seed": tune.grid_search([0, 1]), "method": tune.grid_search(["a"])}
    wider = space.widened(base, ["data.options.fold=[1, 2, 3]", "seed=[0]", "data.options.test_folds=[[1], [2]]"])
    assert {key: space.grid_values(domain) for key, domain in wider.items()} == {
        "seed": [0],
        "method": ["a"],
        "data.options.fold": [1, 2, 3],
        "data.options.test_folds": [[1], [2]],
    }
    for axis in ("data.options.fold", "data.options.fold=3", "=[1]", "seed=[]", "seed=[1"):
        with pytest.raises(ValueError, match="give a key and a list of values, such as"):
            space.widened(base, [axis])


DOMAINS = [
    tune.uniform(0.1, 1.0),
    tune.loguniform(0.1, 1.0),
    tune.quniform(0.0, 1.2, 0.1),
    tune.quniform(0.0, 1.2, 0.3),
    tune.randn(0.0, 1.0),
    tune.randn(2.0, 1.0),
    tune.randn(2.0, 3.0),
    tune.randint(1, 10),
    tune.lograndint(1, 10),
    tune.sample_from(lambda config: 0.01),
    tune.sample_from(lambda config: 0.02),
    tune.sample_from(lambda config: config["a"]),
    tune.sample_from(lambda config: config["b"]),
    tune.sample_from(lambda config: 1 if config["kind"] in {"a", "b"} else 0),
    tune.sample_from(partial(lambda config, least: least, least=1)),
    tune.sample_from(partial(lambda config, least: least, least=2)),
]


def test_domains_whose_trials_differ_are_described_differently() -> None:
    found = [space.described(domain) for domain in DOMAINS]
    assert len(set(found)) == len(found)
    assert found[3] == "Float (0.0, 1.2) Quantized(Uniform(), q=0.3)"
    assert found == [space.described(domain) for domain in DOMAINS]
    assert space.described(tune.grid_search([1, 2])) == "1, 2" == space.shown(tune.choice([1, 2]))


def test_the_order_of_a_set_does_not_matter() -> None:
    """It differs between processes for texts, and by what came first for numbers that fall into one place."""
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert list(one) != list(other) and space._told(one) == space._told(other)
