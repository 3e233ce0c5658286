"""Search spaces: name -> Tune's domain of values (`tune.grid_search`, `tune.uniform`, ...) or one fixed value."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from ray import tune
from ray.tune.search.sample import Categorical, Domain

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


def shown(domain: object) -> str:
    """The domain in words, for help."""
    found = options(domain)
    if found is None:
        assert isinstance(domain, Domain)
        return f"{type(domain).__name__} {domain.domain_str}"
    return ", ".join(map(str, found))


def combinations(space: Space, keys: Iterable[str]) -> Iterator[dict[str, object]]:
    """Every combination of the values of `keys`; each other key keeps one of its values."""
    rest = {key: _one(domain) for key, domain in space.items()}
    lists = {key: options(space[key]) or [] for key in keys}
    for values in itertools.product(*lists.values()):
        yield {**rest, **dict(zip(lists, values, strict=True))}


def for_search(space: Space, search: str) -> dict[str, object]:
    """The space for a search: grid needs lists of values; random and optuna draw from the lists of a grid.

    Raises ValueError for a grid search over a range.
    """
    found: dict[str, object] = {}
    for key, domain in space.items():
        values, grid = options(domain), grid_values(domain)
        if search == "grid":
            if values is None:
                raise ValueError(f"--search grid: {key} has a range of values, not a list: choose random or optuna")
            found[key] = tune.grid_search(values)
        else:
            found[key] = tune.choice(grid) if grid is not None else domain
    return found


def smoke(space: Space) -> dict[str, object]:
    """A space of two trials: the first key with two values takes its first and last, every other key its first."""
    small: dict[str, object] = {key: tune.grid_search([_one(domain)]) for key, domain in space.items()}
    for key, domain in space.items():
        found = options(domain) or [_sampled(domain), _sampled(domain)]
        if len(found) > 1:
            return small | {key: tune.grid_search([found[0], found[-1]])}
    return small


def _one(domain: object) -> object:
    found = options(domain)
    return found[0] if found else _sampled(domain)


def _sampled(domain: object) -> object:
    assert isinstance(domain, Domain)
    return domain.sample()
