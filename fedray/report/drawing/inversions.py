"""The figure of inversions: true log-mels above their reconstructions, from the best to the worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from matplotlib.figure import Figure as Canvas

from fedray.core.privacy.likeness import MODELS, Features, correlation
from fedray.report import canvas
from fedray.report.canvas import WIDTH
from fedray.report.comparison import Comparison
from fedray.report.figures import Inversions
from fedray.report.files import INVERTED
from fedray.report.privacy import part
from fedray.report.recorded import Run
from fedray.storage.serialize import loads

SHOWN = 4
ROW, TOP = 1.7, 0.5  # inches
Pairs = Mapping[str, Mapping[str, Features]]  # utterance -> "true" and "made" log-mels


def inversions(figure: Inversions, comparison: Comparison) -> Canvas:
    """Four utterances of the first run of each group, from its first model: the best, the worst, and two between."""
    found = {group.label: pairs for group in comparison.groups if (pairs := first(group.finished))}
    if not found:
        raise ValueError("no finished run has reconstructions: set audit.kind=inversion")
    drawn = Canvas(figsize=(WIDTH * 1.6, 2 * ROW * len(found) + TOP), layout="constrained")
    canvas.head(drawn, figure.title or "What was said, and below it what an attacker reconstructs from the update")
    for row, (label, pairs) in enumerate(found.items()):
        ranked = sorted(((correlation(both["made"], both["true"]), name) for name, both in pairs.items()), reverse=True)
        places = np.linspace(0, len(ranked) - 1, min(SHOWN, len(ranked))).round().astype(int).tolist()
        for column, (likeness, name) in enumerate(ranked[place] for place in places):
            both = pairs[name]
            low, high = np.percentile(both["true"], (2, 98)).tolist()
            for below, kind in enumerate(("true", "made")):
                where = (2 * row + below) * SHOWN + column + 1
                axes = drawn.add_subplot(2 * len(found), SHOWN, where)
                axes.imshow(both[kind].T, aspect="auto", origin="lower", cmap="magma", vmin=low, vmax=high)
                axes.grid(visible=False)
                axes.set_xticks([])
                axes.set_yticks([])
                if below:
                    axes.set_xlabel(f"likeness {likeness:.2f}", fontsize=8)
                else:
                    axes.set_title(label if column == 0 and len(found) > 1 else "", fontsize=8)
                if column == 0:
                    axes.set_ylabel(f"{'reconstructed' if below else 'true'}\nlog-mels", fontsize=8)
    return drawn


def there(run: Run) -> bool:
    """Whether a run has reconstructions, without a look into the file."""
    return part(run, "audit").get("kind") == "inversion" and run.folder.exists(INVERTED)


def first(runs: Sequence[Run]) -> Pairs:
    """The reconstructions of the first run that has any; {}: none has."""
    return next((_pairs(run) for run in runs if there(run)), {})


def _pairs(run: Run) -> Pairs:
    """The reconstructions of a run. ValueError names a file that holds anything else."""
    shown = run.folder.storage.shown(INVERTED)
    try:
        found = loads(run.folder.storage.read(INVERTED), INVERTED).get(MODELS[0])
        if not isinstance(found, dict):
            raise ValueError(f"it has no reconstructions from the {MODELS[0]} model")
        for name, both in found.items():
            if not isinstance(both, dict) or not _are_features(both.get("true"), both.get("made")):
                raise ValueError(f"{name}: true and made must be log-mels of as many bins")
    except ValueError as error:
        raise ValueError(f"{shown}: is damaged ({error}): remove it to continue without it") from error
    return cast(Pairs, found)


def _are_features(true: object, made: object) -> bool:
    both = [one for one in (true, made) if isinstance(one, np.ndarray) and one.ndim == 2 and one.size]
    return len(both) == 2 and both[0].shape[1] == both[1].shape[1]
