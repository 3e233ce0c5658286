"""What the embedded corpus knows of its speakers: what an audit may try to guess. It follows from their draws."""

from __future__ import annotations

from fedray.data.corpora.synthesis.recipe import Recipe
from fedray.data.corpora.synthesis.sessions import sessions
from fedray.data.corpora.synthesis.speakers import Speaker

ATTRIBUTES = ("language", "accent", "gender", "noise")
# espeak-ng's variants of VARIANTS that it calls female
FEMALE = frozenset(
    ("Alicia", "Andrea", "Annie", "anika", "aunty", "belinda", "f1", "f2", "f3", "f4", "f5", "grandma", "linda")
    + ("steph", "steph2", "steph3")
)


def speaker_attributes(recipe: Recipe, seed: int) -> dict[str, dict[str, str]]:
    """Attribute -> speaker -> its value; {}: the corpus has no speakers.

    `gender` is that of the voice, `accent` espeak-ng's name of it, `noise` the kind behind the speaker.
    """
    if recipe.kind == "events":
        return {}
    found: dict[str, dict[str, str]] = {name: {} for name in ATTRIBUTES}
    for _, session in sessions(recipe, seed):
        if isinstance(speaker := getattr(session, "speaker", None), Speaker):
            gender = "female" if speaker.voice.partition("+")[2] in FEMALE else "male"
            values = speaker.language, speaker.dialect, gender, speaker.place.noise
            for name, value in zip(ATTRIBUTES, values, strict=True):
                found[name][speaker.id] = value
    return found
