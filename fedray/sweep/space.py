"""Search spaces: name -> Tune's domain of values (`tune.grid_search`, `tune.uniform`, ...) or one fixed value."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import yaml
from ray import tune
from ray.tune.search.sample import Categorical, Domain, Function, Quantized, Sampler
from ray.tune.search.variant_generator import RecursiveDependencyError

Space = Mapping[str, object]  # key of the configuration, or a name -> domain
Values = Mapping[str, object]  # the values of one trial


def grid_values(domain: object) -> list[object] | None:
    """The values of a `tune.grid_search`; None for anything else."""
    if isinstance(domain, Mapping) and set(domain) == {"grid_search"}:
        return list(domain["grid_search"])
    return None


def options(domain: object) -> list[object] | None:
    """All values of a domain; None for a range."""
    grid = grid_values(domain)
    if grid is not None:
        return grid
    if isinstance(domain, Categorical):
        return list(domain.categories)
    return None if isinstance(domain, Domain) else [domain]


def is_conditional(domain: object) -> bool:
    """Whether a domain is a `tune.sample_from`, whose values depend on those of other keys."""
    return isinstance(domain, Function)


def shown(domain: object) -> str:
    """The domain in words, for help."""
    if is_conditional(domain):
        return "computed from the other keys"
    found = options(domain)
    if found is None:
        assert isinstance(domain, Domain)
        return f"{type(domain).__name__} {domain.domain_str}"
    return ", ".join(map(str, found))


def described(domain: object) -> str:
    """The domain in words that differ for domains whose trials differ, other than the words of `shown`."""
    if isinstance(domain, Function):
        return f"{shown(domain)}, by the function {hashlib.sha256(_told(domain.func).encode()).hexdigest()[:16]}"
    if isinstance(domain, Domain) and options(domain) is None:
        return f"{shown(domain)} {_sampling(domain.get_sampler())}"
    return shown(domain)


def _sampling(sampler: Sampler) -> str:
    """How a sampler draws: `Quantized(Normal(mean=0, sd=1), q=0.1)`."""
    inner = [_sampling(sampler.sampler)] if isinstance(sampler, Quantized) else []
    given = [f"{name}={value}" for name, value in sorted(vars(sampler).items()) if not isinstance(value, Sampler)]
    return f"{type(sampler).__name__.strip('_')}({', '.join(inner + given)})"


def _told(value: object) -> str:
    """A value that a function depends on, and the function itself, in words that are the same in every process."""
    if isinstance(value, FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        inner = [one.__code__ if isinstance(one, FunctionType) else one for one in closed]  # which may call itself
        return _told((value.__code__, value.__defaults__, value.__kwdefaults__, *inner))
    if isinstance(value, partial):
        return _told((value.func, value.args, value.keywords))
    if isinstance(value, CodeType):
        return _told((value.co_code, value.co_names, value.co_varnames, value.co_consts))
    if isinstance(value, Mapping):
        return _told(tuple(value.items()))
    if isinstance(value, set | frozenset):  # whose order differs between processes
        return f"{{{', '.join(sorted(map(_told, value)))}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_told, value))})"
    plain = isinstance(value, str | bytes | int | float | complex | None)
    return repr(value) if plain else type(value).__qualname__  # other values may show an address


def widened(space: Space, axes: Iterable[str]) -> dict[str, object]:
    """The space with these axes, `key=[value, ...]`: further keys, or other values of its keys.

    Raises ValueError for an axis without a list of values.
    """
    found = dict(space)
    for axis in axes:
        key, _, text = axis.partition("=")
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError:
            values = None
        if not key or not isinstance(values, list) or not values:
            raise ValueError(f"--over {axis}: give a key and a list of values, such as 'data.options.fold=[1, 2, 3]'")
        found[key] = tune.grid_search(values)
    return found


def combinations(space: Space, keys: Iterable[str]) -> Iterator[dict[str, object]]:
    """Every combination of the values of `keys`; each other key keeps one of its values.

    Conditional keys have the value for the combination. Raises ValueError for one that cannot be computed.
    """
    rest = {key: _one(domain) for key, domain in space.items() if not is_conditional(domain)}
    lists = {key: options(space[key]) or [] for key in keys}
    for values in itertools.product(*lists.values()):
        yield _computed(space, {**rest, **dict(zip(lists, values, strict=True))})


def for_search(space: Space, search: str) -> dict[str, object]:
    """The space for a search: grid needs lists of values; random and optuna draw from the lists of a grid.

    Raises ValueError for a grid search over a range, and for conditional keys where the search has none.
    """
    found: dict[str, object] = {}
    for key, domain in space.items():
        values, grid = options(domain), grid_values(domain)
        if isinstance(domain, Function):
            if search == "optuna":
                raise ValueError(f"--search optuna: {key} is a tune.sample_from, which Optuna lacks: choose random")
            found[key] = tune.sample_from(_Drawing(key, domain))
        elif search == "grid":
            if values is None:
                raise ValueError(f"--search grid: {key} has a range of values, not a list: choose random or optuna")
            found[key] = tune.grid_search(values)
        else:
            found[key] = tune.choice(grid) if grid is not None else domain
    return found


def smoke(space: Space) -> dict[str, object]:
    """A space of two trials: the first key with two values takes its first and last, every other key its first.

    Conditional keys stay conditional.
    """
    free = {key: domain for key, domain in space.items() if not is_conditional(domain)}
    small: dict[str, object] = {key: tune.grid_search([_one(domain)]) for key, domain in free.items()}
    small |= {key: domain for key, domain in for_search(space, "random").items() if key not in free}
    for key, domain in free.items():
        found = options(domain) or [_sampled(domain), _sampled(domain)]
        if len(found) > 1:
            return small | {key: tune.grid_search([found[0], found[-1]])}
    return small


class _Values(dict[str, Any]):
    """The values of a trial so far, as functions of `tune.sample_from` read them: `spec.config["x"]` or `config["x"]`.

    A key whose value is not known yet raises RecursiveDependencyError, as in Tune.
    """

    @property
    def config(self) -> _Values:
        return self

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, Domain) or grid_values(value) is not None:
            raise RecursiveDependencyError(key)
        return value

    def __getattr__(self, key: str) -> Any:
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]


@dataclass(frozen=True)
class _Drawing:
    """The function of a conditional key, with errors that name the key."""

    key: str
    domain: Function

    def __call__(self, config: Mapping[str, Any]) -> object:
        config = config.get("config", config)  # Tune gives the specification of the trial
        function = self.domain.func
        try:
            value = function(_Values(config)) if self.domain.pass_config else function()
        except RecursiveDependencyError:
            raise
        except Exception as error:
            missing = isinstance(error, KeyError) and error.args and error.args[0] not in config
            why = f"asks for {error}, which is not swept" if missing else f"fails ({type(error).__name__}: {error})"
            known = ", ".join(name for name in config if name != self.key)
            raise ValueError(
                f"{self.key}: the function of its tune.sample_from {why}: it may read {known}; correct it"
            ) from error
        return value.item() if isinstance(value, np.generic) else value


def _computed(space: Space, values: dict[str, object]) -> dict[str, object]:
    """The values with those of the conditional keys, in the order of the space."""
    waiting = {key: domain for key, domain in space.items() if isinstance(domain, Function)}
    found = {**waiting, **values}
    while waiting:
        ready: dict[str, object] = {}
        for key, domain in waiting.items():
            try:
                ready[key] = _Drawing(key, domain)(found)
            except RecursiveDependencyError:
                continue
        if not ready:
            raise ValueError(f"{' and '.join(waiting)} are computed from each other: compute one from other keys")
        found |= ready
        waiting = {key: domain for key, domain in waiting.items() if key not in ready}
    return {key: found[key] for key in space}


def _one(domain: object) -> object:
    found = options(domain)
    return found[0] if found else _sampled(domain)


def _sampled(domain: object) -> object:
    assert isinstance(domain, Domain)
    return domain.sample()
