"""The definition of a sweep, and the configuration of each of its trials."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from fedray import experiment
from fedray.config import shipped
from fedray.config import source as configuration
from fedray.config.merging import dotted
from fedray.config.source import ConfigError, Source, as_value, override
from fedray.engine.cluster.resources import Share
from fedray.experiment import Config
from fedray.report.figures import Figure
from fedray.report.sweep_description import MODES
from fedray.report.words import direction
from fedray.sweep.space import Space, Values, combinations, is_conditional, options

RESERVED = ("engine.placement", "engine.actors", "engine.cpus_per_client", "engine.gpus_per_client")
TOP = {field.name for field in fields(Config)}
CHECKED = 100  # trials whose configurations are checked before a sweep starts


@dataclass(frozen=True)
class Sweep:
    """One question, and the runs that answer it.

    space      key of the configuration, or a name -> tune.grid_search([...]), tune.uniform(...), ...
    base       YAML file or name of the base configuration; {key} stands for the trial's value of a swept key or name
    names      name -> value -> text: the text stands for {name} in `base` and `settings` instead of the value
    settings   dotted overrides of the base; overrides of the command line come after them
    small      further overrides that make the trials of `--smoke` small
    metric     Tune ranks trials by this metric
    mode       "min" or "max": which values of the metric are better; None: its name says
    samples    trials drawn from a space that is not a grid; repetitions of a grid
    at_once    trials at a time, for a comparison of times; None: as many as the machine has room for
    reference  label of a group: the report shows the share of its gain over the seed model that the others reach
    pretrain   configuration of `fedray pretrain`, which runs first; {pretrained} stands for the file of its weights
    text       configuration whose transcripts (the server's) are written first; {text} stands for their file
    """

    name: str
    question: str
    base: str
    space: Space
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Sequence[str] = ()
    metric: str = "dev/wer"
    mode: str | None = None
    figures: Sequence[Figure] = ()
    reference: str | None = None
    small: Sequence[str] = ()
    samples: int = 1
    at_once: int | None = None
    pretrain: str | None = None
    text: str | None = None

    @property
    def direction(self) -> str:
        """Which values of the metric are better, "min" or "max".

        ValueError: `mode` contradicts the metric's name, or is missing for a metric whose name does not say.
        """
        if self.mode not in (None, *MODES):
            raise ValueError(f"mode: choose from {', '.join(MODES)}, not {self.mode!r}")
        known = direction(self.metric)
        if known is None and self.mode is None:
            raise ValueError(
                f'metric={self.metric!r}: fedray does not know which values are better: add mode="max" or mode="min"'
            )
        if known is not None and self.mode not in (None, known):
            better = "larger" if known == "max" else "smaller"
            raise ValueError(f"mode={self.mode!r}: {better} values of {self.metric} are better: leave out mode")
        return str(known or self.mode)


@dataclass(frozen=True)
class Study:
    """What every trial of a sweep shares, as plain values: a trial needs no files of the sweep on its node."""

    place: str  # path or URI of the experiment's folder
    base: str
    bases: Mapping[str, Mapping[str, object]]  # file -> its contents, without `extends`
    names: Mapping[str, Mapping[str, str]]
    settings: Sequence[str]
    overrides: Sequence[str]  # of the command line; they come after the settings
    folder: str  # relative paths in the configuration start here
    metric: str
    keep: int  # checkpoints that Tune keeps per trial
    fixed: Sequence[str] = ()  # overrides that a sweep needs; they come last
    share: Share = Share(1, 0, 0)  # reserved for the client actors of a trial
    parent: str | None = None  # the sweep's id in the trials' tracker
    conditional: Sequence[str] = ()  # keys of a tune.sample_from: None leaves them out of the configuration
    accept_changes: bool = False  # trials continue even if something that bits depend on has changed

    def config(self, values: Values) -> tuple[Config, Source]:
        """The checked configuration of the trial with these swept values."""
        given = {key: value for key, value in values.items() if value is not None or key not in self.conditional}
        swept = [f"{key}={_text(value)}" for key, value in given.items() if is_key(key)]
        settings = [fill(text, values, self.names) for text in self.settings]
        base = self.bases[file := fill(self.base, values, self.names)]
        kept = _known(base, str(given["algorithm.kind"])) if "algorithm.kind" in given else []
        overrides = [*kept, *settings, *self.overrides, *swept, *self.fixed]
        try:
            config, source = experiment.load(base, overrides, Path(self.folder))
        except ConfigError as error:  # the study keeps the values of its files, not their lines
            raise ConfigError(re.sub("^configuration(?=:)", lambda _: file, str(error))) from error
        return experiment.check(config, source, Path(self.folder)), source

    def check(self, space: Space) -> Config:
        """Check the configurations of the first `CHECKED` trials; returns that of the first."""
        lists = [key for key, domain in space.items() if options(domain) is not None]
        return [self.config(values)[0] for values in itertools.islice(combinations(space, lists), CHECKED)][0]


def _known(base: Mapping[str, object], kind: str) -> list[str]:
    """Overrides that give the keys of the section `algorithm` again which another kind knows too.

    Another kind replaces the whole section. The trials of a sweep over kinds would then differ in more than the kind.
    """
    section = base.get("algorithm")
    if not isinstance(section, Mapping) or section.get("kind") in (None, kind):
        return []
    kept = []
    for key, value in dotted(section, "algorithm.").items():
        again = override(key, value, unresolved=True)
        try:
            experiment.load(base, [f"algorithm.kind={kind}", again])
        except ConfigError as error:
            if key in str(error):  # an error about another key is no error about this one
                continue
        if key != "algorithm.kind":
            kept.append(again)
    return kept


def is_key(name: str) -> bool:
    """Whether a swept name is a key of the configuration; otherwise only `base` and `settings` use it."""
    return "." in name or name in TOP


def overlaps(key: str, other: str) -> bool:
    """Whether two dotted keys are the same, or one is in the section of the other."""
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def fill(text: str, values: Values, names: Mapping[str, Mapping[str, str]]) -> str:
    """Replace {key} by the trial's value, or by the text that `names` has for the value."""
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", names[key][str(value)] if key in names else _text(value))
    return text


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_bases(sweep: Sweep, near: Path) -> dict[str, dict[str, object]]:
    """The contents of the base configurations, whose interpolations each trial resolves.

    Their paths are relative to the working folder or to a folder above the sweep's file `near`; otherwise they name
    configurations that come with fedray (`ray submit` copies only the sweep's file). Raises ValueError for any other.
    """
    used = [key for key in sweep.space if f"{{{key}}}" in sweep.base]
    if any(is_conditional(sweep.space[key]) for key in used):
        used = [key for key, domain in sweep.space.items() if options(domain) is not None]
    files = {fill(sweep.base, values, sweep.names) for values in combinations(sweep.space, used)}
    return {file: configuration.read(find(file, near)).given for file in sorted(files)}


def find(path: str, near: Path) -> Path:
    """The file of a configuration, found by path or name where `read_bases` says. ValueError: there is none."""
    for folder in (Path(), *near.resolve().parents):
        if (folder / path).is_file():
            return folder / path
    return shipped.locate("configs", path)


def with_files(sweep: Sweep, files: Mapping[str, str]) -> Sweep:
    """The sweep with files in place of {pretrained} and {text} in its names and settings."""

    def put(text: str) -> str:
        for name, file in files.items():
            text = text.replace(f"{{{name}}}", as_value(file))
        return text

    names = {name: {value: put(text) for value, text in texts.items()} for name, texts in sweep.names.items()}
    return replace(sweep, names=names, settings=[put(text) for text in sweep.settings])


def check_space(sweep: Sweep, overrides: Iterable[str]) -> None:
    """Raise ValueError for a key that cannot be swept or computed, and for an override of a swept key."""
    next(combinations(sweep.space, []))
    for key, domain in sweep.space.items():
        if key in RESERVED:
            raise ValueError(f"{sweep.name}: {key} cannot be swept: all trials reserve the same resources")
        if not is_key(key) and not any(f"{{{key}}}" in text for text in (sweep.base, *sweep.settings)):
            raise ValueError(
                f"{sweep.name}: {key} is not a key of the configuration, and neither base nor settings use {{{key}}}"
            )
        if key in sweep.names:
            unknown = [value for value in options(domain) or [None] if str(value) not in sweep.names[key]]
            if unknown:
                raise ValueError(f"{sweep.name}: names has no text for {key}={unknown[0]}")
    for given in overrides:
        key = given.split("=", 1)[0]
        for swept in sweep.space:
            if overlaps(swept, key):
                raise ConfigError(
                    f"command line: {key} is swept by {sweep.name}: leave it out, or change the space in its file"
                )
