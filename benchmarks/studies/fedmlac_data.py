"""The data sets of benchmarks.studies.fedmlac_own, and their rounds."""

from __future__ import annotations

from benchmarks import study


def speakers(kind: str, clients: int, clips: int) -> str:
    """The override of an embedded corpus with one client for each speaker."""
    counts = f"client_speakers: {clients}, client_utterances: {clips}, test_speakers: 40"
    return f"data.options={{kind: {kind}, server_speakers: 0, dev_speakers: 0, test_server_speakers: 0, {counts}}}"


# Scaling each clip would remove two cues of emotions, loudness and spectral tilt. Scaling a speaker's clips together
# keeps them, as for CREMA-D and IEMOCAP.
SPOKEN = "features.normalise=speaker"
# Sources, and slices of each: 32 sources a client, where UrbanSound8K has 26 recordings. Of the own clips, 2 to 4 %
# (alpha 0.1) and 7 to 12 % (larger alphas) are of a class that their client never trains on. With 8 sources a client it
# was 12 to 20 and 28 to 62 %: a larger alpha would ask for what no client can learn alone.
SOUNDS = [speakers("events", 1600, 4), "task.window=1.0"]


def recordings(alpha: float) -> str:
    """The override of 50 clients to which whole recordings are dealt by Dirichlet.

    Draws are never repeated, which would favour those that are less skewed: empty clients are dropped.
    """
    return f"data.clients={{by: dirichlet, count: 50, alpha: {alpha}, min_utterances: 0, whole_speakers: true}}"


# Name -> rounds, and overrides. A personal model trains on its client's clips alone, when the client takes part: the
# fewer these are, the more rounds it needs to level off.
DATA: dict[str, tuple[int, list[str]]] = {
    "emotions-91": (300, [speakers("emotions", 91, 53), SPOKEN]),
    "arabic-commands": (200, []),
    "events-0.3": (200, [*SOUNDS, recordings(0.3)]),
    "keywords-40": (400, [speakers("keywords", 50, 40), "data.options.words=10"]),
    "emotions-10": (50, [speakers("emotions", 10, 294), SPOKEN, "cohort.fraction=1.0"]),
    **{f"events-{alpha:g}": (200, [*SOUNDS, recordings(alpha)]) for alpha in (0.1, 1.0, 0.5)},
    "keywords-300": (100, [speakers("keywords", 50, 300), "data.options.words=10"]),
}


def settings(data: str) -> list[str]:
    """The overrides of a corpus and its clients."""
    if data != "arabic-commands":
        return DATA[data][1]
    columns = "path_column: path, speaker_column: speaker, label_column: keyword, seconds_column: seconds"
    return [
        "data.corpus=tsv",
        f"data.root={study.speech('arabic-commands-full')}",
        f"data.options={{train: [manifest.tsv], {columns}}}",
    ]
