"""Texts that their audio cannot hold, and audio that is the wrong one, are found before a run."""

from __future__ import annotations

from tests.bad_input.case import ACCEPTED, Case
from tests.bad_input.corpus import CLIENTS, CONFIG, both, put, sound

DATA = "data config.yaml"
LONG = CLIENTS.replace("\tone\t", f"\t{'one two ' * 20}\t")  # in 0.2 s
TEST = put("test.tsv", f"{CLIENTS.splitlines()[0]}\nt0.wav\ttim\tone two\t0.2\n")
SCORED = put("config.yaml", CONFIG.replace("    text_column", "    test: [test.tsv]\n    text_column"))
WARN = put("config.yaml", CONFIG + "task: {unlearnable: warn}\n")

CASES = (
    Case(
        "speech: more tokens than frames",
        (
            "1 of 3 utterances cannot be learnt",
            "more than two thirds of the utterances of ann",
            "task.unlearnable=warn",
        ),
        put("clients.tsv", LONG),
        data=True,
    ),
    Case(
        "speech: more tokens than frames, task.unlearnable=warn",
        (ACCEPTED, "1 of 3 utterances cannot be learnt"),
        both(put("clients.tsv", LONG), WARN),
        status=1,
    ),
    Case(
        "speech: 800 characters a second",
        ("makes a run wrong", "1 of 1 utterances have more than 60 characters a second", "--show look --only a0"),
        put("clients.tsv", LONG),
        command=DATA,
    ),
    Case(
        "speech: a test recording that a client trains on",
        ("makes a run wrong", "1 of 1 utterances that are scored have the same audio as one for training"),
        both(TEST, SCORED, put("t0.wav", sound())),
        command=DATA,
    ),
    Case(
        "speech: silence",
        ("makes a run wrong", "1 of 3 decoded utterances are silent", "--show look --only a0"),
        put("a0.wav", sound(silent=True)),
        command=DATA,
    ),
    Case(
        "speech: a task that neither refuses nor warns",
        "unlearnable must be refuse or warn, not 'ignore'",
        put("config.yaml", CONFIG + "task: {unlearnable: ignore}\n"),
    ),
)
