"""How a notebook shows a report: the page, and the worst utterances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from fedray.report import page
from fedray.report.comparison import Comparison
from fedray.report.errors import Utterance
from fedray.runs.scores import first_model

FRAME = '<iframe srcdoc="{}" title="report" style="width: 100%; height: 640px; border: 0"></iframe>'
# Colours that are legible on white and on black.
STYLE = (
    "<style>.fedray .utterance {margin: .8em 0} .fedray p {margin: .1em 0} .fedray .who, .fedray .role {opacity: .7} "
    ".fedray .role {display: inline-block; min-width: 7em} .fedray ins {color: #d0503f; text-decoration: none} "
    ".fedray ins.extra {text-decoration: underline wavy}</style>"
)


def frame(html: str) -> str:
    """A whole page as a notebook element, in an iframe that keeps its style apart."""
    return FRAME.format(escape(html))


@dataclass(frozen=True, repr=False)
class Worst:
    """The worst utterances of a run, in order. A notebook shows each with its alignment and a player.

    `clips`: utterance -> data URI of its audio; `why_not`: the reason why clips are missing.
    """

    utterances: Sequence[Utterance]
    recognition: bool
    clips: page.Audio
    first_model: str = "seed model"  # what the model before the first round is called

    @classmethod
    def of(cls, comparison: Comparison, count: int) -> Worst:
        """The worst utterances of the best group's first run. ValueError: no run of the report was scored."""
        run, split = page.focus(comparison)
        found = page.errors_of(run, split, count)
        if run is None or found is None:
            raise ValueError("no run of this report is finished: there are no predictions to look at")
        return cls(found.worst, found.recognition, page.audio(run, found, comparison.audio), first_model(run.config))

    def __iter__(self) -> Iterator[Utterance]:
        return iter(self.utterances)

    def __len__(self) -> int:
        return len(self.utterances)

    def __repr__(self) -> str:
        return f"<Worst: {len(self)} utterances; iterate over them>"

    def _repr_html_(self) -> str:
        shown = page.ENVIRONMENT.get_template("utterance.html").module.shown  # type: ignore[attr-defined]
        clips = self.clips.clips
        parts = [shown(one, self.recognition, clips.get(one.id), self.first_model) for one in self.utterances]
        return f'{STYLE}<div class="fedray"><p>{escape(self.clips.why_not)}</p>{"".join(parts)}</div>'
