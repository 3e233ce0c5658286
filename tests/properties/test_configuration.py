"""A configuration is read back as it was written; any override gives a configuration or a ConfigError."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from docs.hooks import settings
from fedray import experiment
from fedray.config.schema import plain
from fedray.config.source import ConfigError
from fedray.experiment import Config
from tests.bad_input.corpus import CONFIG


def dotted(cls: type, prefix: str = "", depth: int = 3) -> list[str]:
    """The dotted keys of a section and of the sections in it, of default and other kinds."""
    found = []
    for key in settings.keys(cls):
        found.append(f"{prefix}{key.name}")
        for section in settings.sections(key) if depth else ():
            found += dotted(section, f"{prefix}{key.name}.", depth - 1)
    return sorted(set(found))


KEYS = dotted(Config)
KINDS = sorted({kind for key in settings.keys(Config) for kind in key.kinds or ()})
NUMBERS = st.integers() | st.integers(-3, 70) | st.floats() | st.floats(0, 1)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=6) | st.sampled_from(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
# Values in an override: YAML in one line, such as `.inf` and `null`.
WORDS = VALUES.map(lambda value: yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n...\n"))
OVERRIDES = st.tuples(st.sampled_from(KEYS) | st.text(max_size=8), WORDS | st.text(max_size=8)).map("=".join)


def loaded(overrides: list[str]) -> Config | None:
    """The configuration, or None if it is refused with a message."""
    values: dict[str, Any] = yaml.safe_load(CONFIG)
    try:
        config, source = experiment.load(values, [override for override in overrides if "imports" not in override])
        experiment.check(config, source)
    except ConfigError as error:
        assert len(str(error)) > 10
        return None
    return config


@given(st.lists(OVERRIDES, max_size=3))
def test_any_override_gives_a_configuration_or_words(overrides: list[str]) -> None:
    config = loaded(overrides)
    if config is not None:
        again, _ = experiment.load(yaml.safe_load(yaml.safe_dump(plain(config), allow_unicode=True)))
        assert again == config and plain(again) == plain(config)


def test_there_are_many_keys() -> None:
    assert len(KEYS) > 200 and "algorithm.client.lr" in KEYS
