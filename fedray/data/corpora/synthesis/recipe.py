"""The settings of the embedded corpus, and their checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedray.core.ranges import Amount, Count, Natural, Positive, Ranged, Share, one_of
from fedray.data.corpora.synthesis import lexicon, speakers
from fedray.data.corpora.synthesis.speakers import Conditions

TRANSLATIONS = ("zh",)
SKEWED = ("keywords", "emotions")
LARGEST_TAIL = 3


@dataclass(frozen=True)
class Recipe(Ranged):
    """How many speakers each split has, what they say and where. Every speaker is in one split only.

    Four kinds:
    commands  sentences, for recognition. Dev and test have sentences that server and clients never say; `label` is
              "unseen" for these and "seen" for the others. With several languages, dialects or domains, `label` is the
              language, dialect or domain instead.
    keywords  clips of one second with one word each; `label` is the word.
    emotions  sentences spoken angrily, happily, sadly or neutrally, as in CREMA-D; `label` is the emotion.
    events    clips of ten city sounds, 1 to 4 s, as in UrbanSound8K; `label` is the sound. A "speaker" is a recorded
              source of one class, and its utterances are slices of the recording.

    The server has clean speech. Clients speak in rooms and noise; `dev` and `test` sound like the clients,
    `test-server` sounds like the server. Without server_speakers the clients' split is "train": data.server can take
    the server's speakers from it.

    To resemble Common Voice: with `tail` 1.9, 3 % of the speakers have half of the utterances, as in French (Gao et
    al., 2022); with `clients.snr_within`, speakers differ more than the utterances of a speaker.
    """

    kind: str = one_of(("commands", "keywords", "emotions", "events"))  # commands | keywords | emotions | events
    languages: list[str] = field(default_factory=lambda: ["en"])  # dealt to the speakers in turn
    dialects: list[str] = field(default_factory=list)  # dealt to all speakers but the server's; []: see clients.accents
    domains: list[str] = field(default_factory=list)  # dealt to all speakers but the server's
    # true: the server reads words of all `domains` in random order; false: commands
    server_words: bool = False
    # language of the translations: zh, of English commands; null: none. Each of `dialects` prefers different words in
    # them, the server none.
    translation: str | None = None
    server_speakers: Natural = 40  # speakers of `server`
    server_utterances: Count = 25  # utterances of each server speaker
    client_speakers: Count = 60  # speakers of `clients`
    client_utterances: Count = 60  # utterances of each client speaker
    # sigma of clients' log-normal utterance counts, whose mean is client_utterances; 0: equal counts
    tail: Amount = 0.0
    dev_speakers: Natural = 20  # speakers of `dev`
    dev_utterances: Count = 20  # utterances of each dev speaker
    test_speakers: Natural = 60  # speakers of `test`
    test_utterances: Count = 20  # utterances of each test speaker
    test_server_speakers: Natural = 15  # speakers of `test-server`
    test_server_utterances: Count = 20  # utterances of each test-server speaker
    held_out: Share = 0.25  # share of the grammar's sentences that server and clients never say
    unseen: Share = 0.5  # share of dev and test utterances that are held-out sentences
    words: Count = 35  # keywords: how many of each language's 35 are spoken, from the first
    # keywords, emotions: a client's class shares are drawn from Dirichlet(skew); null: equal
    skew: Positive | None = None
    server: Conditions = field(default_factory=speakers.clean)
    clients: Conditions = field(default_factory=Conditions)

    def check(self) -> None:
        """Raise a ValueError that names the first impossible setting."""
        self._check_texts()
        self._check_shares()
        self.server.check("data.options.server")
        self.clients.check("data.options.clients")

    def _check_texts(self) -> None:
        if not self.languages or not set(self.languages) <= set(lexicon.LANGUAGES):
            raise ValueError(
                f"data.options.languages: choose from {', '.join(lexicon.LANGUAGES)}, not {self.languages}"
            )
        varied = self.dialects or self.domains
        if varied and (self.kind != "commands" or len(self.languages) > 1 or (self.dialects and self.domains)):
            raise ValueError(
                "data.options.dialects and data.options.domains are for commands in one language: set one of the two"
            )
        for name, given, known in (
            ("dialects", self.dialects, speakers.ACCENTS[self.languages[0]]),
            ("domains", self.domains, lexicon.DOMAINS),
        ):
            if not set(given) <= set(known):
                raise ValueError(f"data.options.{name}: choose from {', '.join(known)}, not {given}")
        if self.domains and self.languages != ["en"]:
            raise ValueError(f"data.options.domains are in English, not in {self.languages[0]}: remove them")
        if self.server_words and not self.domains:
            raise ValueError(
                "data.options.server_words takes the words of domains: set data.options.domains, or remove it"
            )
        if self.translation is not None and self.translation not in TRANSLATIONS:
            raise ValueError(
                f"data.options.translation: choose {' or '.join(TRANSLATIONS)}, or null, not {self.translation!r}"
            )
        if self.translation is not None and (self.kind != "commands" or self.languages != ["en"] or self.domains):
            raise ValueError("data.options.translation is for English commands without domains: set it to null")
        most = min(len(lexicon.commands(language).keywords) for language in self.languages)
        if not 1 <= self.words <= most:
            raise ValueError(
                f"data.options.words: there are {most} keywords: choose from 1 to {most}, not {self.words}"
            )

    def _check_shares(self) -> None:
        if self.held_out == 1 or (self.unseen > 0 and self.held_out == 0):
            lack = "train" if self.held_out == 1 else "test"
            raise ValueError(
                f"data.options.held_out: {self.held_out} leaves no sentences to {lack} on: choose between 0 and 1"
            )
        if self.tail > LARGEST_TAIL:
            raise ValueError(f"data.options.tail must be at most {LARGEST_TAIL}, not {self.tail}")
        if self.skew is not None and self.kind not in SKEWED:
            raise ValueError(
                f"data.options.skew is for {' and '.join(SKEWED)}, not {self.kind}: leave it null; "
                "data.clients.by=dirichlet divides events unevenly"
            )
