"""Who says what: the sessions that a recipe asks for, and the labels of their utterances."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedray.core import seeds
from fedray.data.corpora.synthesis import events, lexicon, sentences, speakers
from fedray.data.corpora.synthesis.emotions import EMOTIONS
from fedray.data.corpora.synthesis.events import EVENTS
from fedray.data.corpora.synthesis.recipe import Recipe
from fedray.data.corpora.synthesis.recording import Session, Slices
from fedray.data.corpora.synthesis.speakers import Speaker

TRAINING = ("server", "clients")  # the splits whose sentences count as seen


def sessions(recipe: Recipe, seed: int) -> Iterator[tuple[str, Session | Slices]]:
    """Yield (split, session) for each speaker, or for each source of sound, split by split."""
    plan = {
        "server": (recipe.server_speakers, recipe.server_utterances, recipe.server),
        "clients": (recipe.client_speakers, recipe.client_utterances, recipe.clients),
        "dev": (recipe.dev_speakers, recipe.dev_utterances, recipe.clients),
        "test": (recipe.test_speakers, recipe.test_utterances, recipe.clients),
        "test-server": (recipe.test_server_speakers, recipe.test_server_utterances, recipe.server),
    }
    for split, (speakers_made, utterances, conditions) in plan.items():
        for position in range(speakers_made):
            if recipe.kind == "events":
                event = EVENTS[position % len(EVENTS)]
                source = events.draw(f"{split}-{event}-{position:04d}", event, conditions, seed)
                count = utterance_count(recipe, split, utterances, source.id, seed)
                yield split, Slices(source, count, f"{split}/{source.id}.flac")
                continue
            speaker = _speaker(recipe, split, position, conditions, seed)
            count = utterance_count(recipe, split, utterances, speaker.id, seed)
            texts = tuple(_texts(recipe, split, speaker, count))
            shown = None
            if recipe.kind == "emotions":
                shown = tuple(_classes(recipe, split, speaker, EMOTIONS, count, "emotions"))
            yield split, Session(speaker, texts, recipe.kind == "keywords", f"{split}/{speaker.id}.flac", shown)


def labels(recipe: Recipe, split: str, session: Session | Slices, heard: set[str | None]) -> list[str | None]:
    """A label for each utterance of a session; `heard` holds the texts of the splits in TRAINING."""
    if isinstance(session, Slices):
        return [session.source.event] * session.count
    if session.emotions is not None:
        return list(session.emotions)
    if recipe.kind == "keywords":
        return list(session.texts)
    if len(recipe.languages) > 1:
        return [session.speaker.language] * len(session.texts)
    if recipe.dialects or recipe.domains:
        return [session.speaker.domain if recipe.domains else session.speaker.dialect] * len(session.texts)
    if split in TRAINING:
        return [None] * len(session.texts)
    return ["seen" if text in heard else "unseen" for text in session.texts]


def utterance_count(recipe: Recipe, split: str, mean: int, name: str, seed: int) -> int:
    """How many utterances a speaker has: `mean`, or with `tail` a log-normal draw of this mean for each client."""
    if split != "clients" or recipe.tail == 0:
        return mean
    generator = seeds.numpy_generator(seed, "speaker", name, "tail")
    return max(1, round(float(generator.lognormal(math.log(mean) - recipe.tail**2 / 2, recipe.tail))))


def _speaker(recipe: Recipe, split: str, position: int, conditions: speakers.Conditions, seed: int) -> Speaker:
    language = recipe.languages[position % len(recipe.languages)]
    if split in ("server", "test-server") or not (recipe.dialects or recipe.domains):
        return speakers.draw(f"{split}-{language}-{position:04d}", language, conditions, seed)
    dialect = recipe.dialects[position % len(recipe.dialects)] if recipe.dialects else None
    domain = recipe.domains[position % len(recipe.domains)] if recipe.domains else None
    return speakers.draw(f"{split}-{dialect or domain}-{position:04d}", language, conditions, seed, dialect, domain)


def _texts(recipe: Recipe, split: str, speaker: Speaker, count: int) -> list[str]:
    grammar = lexicon.commands(speaker.language) if speaker.domain is None else lexicon.domain(speaker.domain)
    if recipe.kind == "keywords":
        return _classes(recipe, split, speaker, grammar.keywords[: recipe.words], count, "texts")
    generator = seeds.numpy_generator(*speaker.names, "texts")
    if recipe.server_words and speaker.domain is None:
        return sentences.words_of(map(lexicon.domain, lexicon.DOMAINS), count, generator)
    texts = []
    for _ in range(count):
        unseen = split not in TRAINING and generator.random() < recipe.unseen
        texts.append(sentences.draw(grammar, unseen, recipe.held_out, speaker.seed, generator))
    return texts


def _classes(
    recipe: Recipe, split: str, speaker: Speaker, classes: tuple[str, ...], count: int, purpose: str
) -> list[str]:
    """A class for each utterance of a speaker. Only clients have skewed shares."""
    if recipe.skew is None or split != "clients":
        return sentences.shuffled_words(classes, count, seeds.numpy_generator(*speaker.names, purpose))
    return sentences.skewed_words(classes, count, recipe.skew, seeds.numpy_generator(*speaker.names, "skew"))
