"""What a sweep asks, and the configuration of each of its trials."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.search.sample import Categorical, Domain

import fedray
from fedray import experiment
from fedray.core import config as configuration
from fedray.core.config import ConfigError, Source
from fedray.engine.resources import Share
from fedray.experiment import Config
from fedray.report.figures import Figure

RESERVED = ("engine.placement", "engine.actors", "engine.cpus_per_client", "engine.gpus_per_client")
CLONE = Path(fedray.__file__).parents[1]
TOP = {field.name for field in fields(Config)}


@dataclass(frozen=True)
class Sweep:
    """One question.

    space     a key of the configuration, or a name -> tune.grid_search([...]), tune.uniform(...), ...
    base      the YAML file; {name} in it, and in `settings`, stands for the trial's value of a swept key or name,
    names     or for what that value stands for: name -> value -> text
    settings  dotted overrides of the base; the user's own beat them
    small     more of them, that make a trial of `--smoke` small
    samples   draws from a space that is no grid; of a grid, repeats
    at_once   trials at a time, where their times are compared
    reference the group whose gain over the seed model counts as 100 %
    """

    name: str
    question: str
    base: str
    space: Mapping[str, Any]
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Sequence[str] = ()
    metric: str = "dev/wer"
    mode: str = "min"
    figures: Sequence[Figure] = ()
    reference: str | None = None
    small: Sequence[str] = ()
    samples: int = 1
    at_once: int | None = None


@dataclass(frozen=True)
class Study:
    """What a trial needs to know, wherever it runs: plain values, no files."""

    place: str  # of the experiment: a path or a URI
    base: str
    bases: Mapping[str, Mapping[str, Any]]  # file -> its contents, resolved
    names: Mapping[str, Mapping[str, str]]
    settings: Sequence[str]
    overrides: Sequence[str]  # of the user: they beat the settings
    folder: str  # what relative paths in the configuration are relative to
    metric: str
    keep: int  # checkpoints that Tune keeps of a trial
    own: Sequence[str] = ()  # overrides that a sweep makes itself, last of all
    share: Share = Share(1, 0, 0)  # what a trial reserves for its client actors

    def config(self, values: Mapping[str, Any]) -> tuple[Config, Source]:
        """The checked configuration of the trial with these swept values."""
        swept = [f"{key}={_text(value)}" for key, value in values.items() if is_key(key)]
        settings = [fill(text, values, self.names) for text in self.settings]
        base = self.bases[fill(self.base, values, self.names)]
        config, source = experiment.load(base, [*settings, *self.overrides, *swept, *self.own], Path(self.folder))
        return experiment.with_absolute_paths(config, Path(self.folder)), source

    def check(self, space: Mapping[str, Any]) -> Config:
        """The configuration of one trial, once those of all, or of a hundred, have been found sound."""
        lists = [key for key, domain in space.items() if options(domain) is not None]
        return [self.config(values)[0] for values in itertools.islice(combinations(space, lists), 100)][0]


def is_key(name: str) -> bool:
    """Whether a swept name is a key of the configuration, not one that `base` and `settings` use."""
    return "." in name or name in TOP


def fill(text: str, values: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> str:
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", names[key][value] if key in names else _text(value))
    return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_bases(sweep: Sweep, near: Path) -> dict[str, dict[str, Any]]:
    """The base configurations. Their files are looked for in the working folder, above the sweep's own file, and in the clone that
    fedray is installed from: `ray submit` copies the sweep alone."""
    used = [key for key in sweep.space if f"{{{key}}}" in sweep.base]
    files = {fill(sweep.base, values, sweep.names) for values in combinations(sweep.space, used)}
    return {file: configuration.read(_find(file, near)).values for file in sorted(files)}


def _find(path: str, near: Path) -> Path:
    for folder in (Path(), *near.resolve().parents, CLONE):
        if (folder / path).is_file():
            return folder / path
    raise ValueError(f"there is no file {path}, neither in {Path.cwd()}, nor above {near}, nor in {CLONE}")


def check_space(sweep: Sweep, overrides: Iterable[str]) -> None:
    """Refuse a space that cannot be swept, and overrides of what is swept."""
    for key, domain in sweep.space.items():
        if key in RESERVED:
            raise ValueError(f"{sweep.name}: {key} cannot be swept: what a trial reserves is the same for all")
        if not is_key(key) and not any(f"{{{key}}}" in text for text in (sweep.base, *sweep.settings)):
            raise ValueError(f"{sweep.name}: {key} is no key of the configuration, and neither base nor settings use {{{key}}}")
        if key in sweep.names and (unknown := [value for value in options(domain) or [None] if value not in sweep.names[key]]):
            raise ValueError(f"{sweep.name}: names does not say what {key}={unknown[0]} stands for")
    for override in overrides:
        key = override.split("=", 1)[0]
        for swept in sweep.space:
            if swept == key or swept.startswith(f"{key}.") or key.startswith(f"{swept}."):
                raise ConfigError(f"command line: {key} is what {sweep.name} sweeps: leave it out, or change the space in the sweep's file")


def is_grid(domain: Any) -> bool:
    return isinstance(domain, Mapping) and set(domain) == {"grid_search"}


def options(domain: Any) -> list[Any] | None:
    """All values that a swept key can take; None: too many to tell."""
    if is_grid(domain):
        return list(domain["grid_search"])
    if isinstance(domain, Categorical):
        return list(domain.categories)
    return None if isinstance(domain, Domain) else [domain]


def combinations(space: Mapping[str, Any], keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Every combination of what these keys can take; the other keys stand at one value that they can take."""
    rest = {key: _any(domain) for key, domain in space.items()}
    lists = {key: options(space[key]) or [] for key in keys}
    for values in itertools.product(*lists.values()):
        yield {**rest, **dict(zip(lists, values, strict=True))}


def _any(domain: Any) -> Any:
    found = options(domain)
    return found[0] if found else domain.sample()


def smoke(space: Mapping[str, Any]) -> dict[str, Any]:
    """Two trials of a space: the first key that has two values takes its first and its last, the others their first."""
    small = {key: tune.grid_search([_any(domain)]) for key, domain in space.items()}
    for key, domain in space.items():
        found = options(domain) or [domain.sample(), domain.sample()]
        if len(found) > 1:
            return small | {key: tune.grid_search([found[0], found[-1]])}
    return small
