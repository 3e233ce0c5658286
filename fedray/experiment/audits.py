"""From the section `audit` of a configuration to a federation with candidates; refuses an audit that makes no sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedray.algorithms import ALGORITHMS
from fedray.core.algorithm import Algorithm
from fedray.core.attackers import Attack
from fedray.core.parallel import Parallel
from fedray.core.privacy.audits import Audit, Canaries, Directions, Inversion, NoAudit, Speakers, Updates, parted
from fedray.core.privacy.settings import Private
from fedray.core.strategies import OnePass
from fedray.data.corpora import CORPORA
from fedray.data.federation.audited import candidates, check_candidates
from fedray.data.federation.canaries import add_canaries
from fedray.data.federation.observed import LABEL, unknown
from fedray.data.federation.settings import DataSettings, ServerDataSettings
from fedray.data.federation.speech_data import divide
from fedray.data.manifest import Manifest
from fedray.experiment.config import Config


def check_audit(config: Config) -> None:
    """Check the section `audit`. ValueError: the audit would measure nothing, or the wrong thing."""
    audit, kind = config.audit, config.algorithm.kind
    if not isinstance(audit, Audit):
        return
    algorithm = ALGORITHMS[kind]
    if algorithm.central or not algorithm.sends_updates:
        why = "trains in one place" if algorithm.central else "trains no shared model"
        raise ValueError(f"algorithm.kind {kind} {why}, so an audit has no clients to guess: remove audit")
    hook = "reconstruct" if isinstance(audit, Inversion) else "losses" if isinstance(audit, Canaries | Speakers) else ""
    if hook and getattr(algorithm, hook) is getattr(Algorithm, hook):
        raise ValueError(
            f"audit calls the hook `{hook}`, which algorithm.kind {kind} does not define: define it, derive the "
            "algorithm from TaskAlgorithm of fedray.algorithms.base, or remove audit"
        )
    if isinstance(audit, Directions):
        if not isinstance(config.privacy, Private):
            raise ValueError(
                "directions are scaled to the bound of privacy.clip: set privacy, with noise=0 to audit without noise"
            )
        if config.cohort.sampling == "weighted":
            raise ValueError(
                "weighted cohorts are drawn by utterances, and directions have none: set cohort.sampling=poisson"
            )
        if getattr(config.algorithm.settings, "averaging", "") == "product":
            raise ValueError(
                "directions lie in the products B A, which algorithm.averaging=product sums, and the audit compares A "
                "and B: set algorithm.averaging=factors"
            )
    if isinstance(audit, Canaries) and algorithm.makes_labels:
        raise ValueError(
            f"algorithm.kind {kind} trains on its own labels, never on a canary's transcripts: set audit.kind to "
            "speakers or directions, or algorithm.kind to fedavg"
        )
    if isinstance(audit, Updates):
        _check_updates(audit, config)
    if isinstance(audit, Inversion):
        _check_inversion(config)
    if isinstance(audit, Canaries | Speakers):
        check_candidates(audit, config.data)
        if config.data.labelled.given and not algorithm.makes_labels:
            raise ValueError(
                f"algorithm.kind {kind} trains on labelled utterances, and a candidate is judged by unlabelled ones "
                "too: remove data.labelled, or remove audit"
            )


def _check_updates(audit: Updates, config: Config) -> None:
    """Check an audit of updates. ValueError: see `check_audit`."""
    if isinstance(config.attack, Attack):
        raise ValueError("audit.kind=updates observes honest clients: remove audit, or remove attack")
    if getattr(config.algorithm.settings, "relabel", "every_round") != "every_round":
        raise ValueError(
            "audit.kind=updates also trains clients on halves of their data, and the labels that a client keeps are "
            "those of all its data: set algorithm.relabel=every_round"
        )
    if max(audit.sums) > 1 and not isinstance(config.strategy, OnePass):
        raise ValueError(
            f"audit.sums={audit.sums} hides single updates, which strategy.kind needs to see: set sums to [1], or "
            "strategy.kind to uniform or by_examples"
        )
    known = getattr(CORPORA[config.data.corpus], "ATTRIBUTES", ())
    if audit.file is None:
        for name in audit.attributes:
            if name not in (LABEL, *known):
                raise ValueError(unknown(name, known))


def _check_inversion(config: Config) -> None:
    """Check an audit by inversion. ValueError: see `check_audit`."""
    kind = config.algorithm.kind
    if isinstance(config.attack, Attack):
        raise ValueError("audit.kind=inversion attacks honest clients: remove audit, or remove attack")
    if ALGORITHMS[kind].makes_labels or config.data.labelled.given:
        why = f"algorithm.kind {kind} makes labels" if ALGORITHMS[kind].makes_labels else "data.labelled hides labels"
        raise ValueError(f"audit.kind=inversion attacks training on the corpus' labels or transcripts, and {why}")
    if getattr(config.algorithm.settings, "averaging", "") == "product":
        raise ValueError("audit.kind=inversion reads A and B: set algorithm.averaging=factors")
    if getattr(config.task.settings, "window", None) is not None:
        raise ValueError(
            "audit.kind=inversion attacks training on whole clips, and with task.window clients train on random parts: "
            "set task.window=null"
        )


def outside(clients: Sequence[str], audit: Audit | NoAudit, seed: int) -> set[str]:
    """The clients that an audit keeps from taking part. ValueError: there are too few clients for the audit."""
    if isinstance(audit, Updates):
        return set(parted(clients, audit, seed)[0])
    if not isinstance(audit, Canaries | Speakers):
        return set()
    return {client for client, inside in candidates(clients, audit, seed).items() if not inside}


def with_canaries(
    splits: dict[str, Manifest], config: Config, cache: Path, parallel: Parallel
) -> tuple[dict[str, Manifest], DataSettings]:
    """A corpus's splits with canaries among the clients, and the settings that divide the splits further."""
    if not isinstance(config.audit, Canaries):
        return splits, config.data
    # Server, dev and test are taken out first: none of them may get a canary.
    server, clients, scored = divide(splits, config.data)
    others = {"clients": add_canaries(clients, config.audit, config.data.seed, cache, parallel), **scored}
    divided = replace(config.data, dev_share=None, test_share=None, server=ServerDataSettings())
    return others if server is None else {"server": server, **others}, divided


def population(config: Config, clients: int) -> int:
    """The number of clients in a run: `clients` have data, and canaries that send directions are added."""
    audit = config.audit
    return clients + len(audit.inside(config.seed)) if isinstance(audit, Directions) else clients
