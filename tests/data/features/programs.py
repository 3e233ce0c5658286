"""Audio files as ffmpeg and SoX write them, into a file and into a pipe."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A command that converts `IN`, a wav, to `OUT`."""

    name: str
    words: str
    pads: float = 0.02  # seconds that the codec may add

    @property
    def missing(self) -> str | None:
        """Why the command cannot be tried; None: it can."""
        tool = self.words.partition(" ")[0]
        return None if shutil.which(tool) else f"{tool} is not installed (`apt-get install {tool}`)"

    def file(self, source: Path, out: Path) -> bytes:
        """What it writes into a file."""
        self._run(source, str(out))
        return out.read_bytes()

    def pipe(self, source: Path) -> bytes:
        """What it writes into a pipe."""
        return self._run(source, "-")

    def _run(self, source: Path, out: str) -> bytes:
        words = [{"IN": str(source), "OUT": out}.get(word, word) for word in self.words.split()]
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout


FFMPEG = "ffmpeg -v error -y -i IN"
MPEG = 0.15  # the encoder's delay, and two frames
PROGRAMS = (
    *(Program(f"ffmpeg {form}", f"{FFMPEG} -f {form} OUT") for form in ("wav", "w64", "aiff", "caf", "au", "flac")),
    Program("ffmpeg RF64", f"{FFMPEG} -rf64 always -f wav OUT"),
    Program("ffmpeg voc", f"{FFMPEG} -f voc OUT", 0.1),
    Program("ffmpeg 24 bits", f"{FFMPEG} -c:a pcm_s24le -f wav OUT"),
    Program("ffmpeg IMA ADPCM", f"{FFMPEG} -c:a adpcm_ima_wav -f wav OUT", 0.13),
    Program("ffmpeg MS ADPCM", f"{FFMPEG} -c:a adpcm_ms -f wav OUT", 0.13),
    Program("ffmpeg mu-law", f"{FFMPEG} -c:a pcm_mulaw -f au OUT"),
    Program("ffmpeg mp3, variable", f"{FFMPEG} -q:a 4 -f mp3 OUT", MPEG),
    Program("ffmpeg mp3, constant", f"{FFMPEG} -b:a 64k -f mp3 OUT", MPEG),
    Program("ffmpeg mp3, average", f"{FFMPEG} -abr 1 -b:a 48k -f mp3 OUT", MPEG),
    Program("ffmpeg mp3, 44.1 kHz", f"{FFMPEG} -ar 44100 -q:a 6 -f mp3 OUT", MPEG),
    Program("ffmpeg mp3, 8 kHz", f"{FFMPEG} -ar 8000 -q:a 6 -f mp3 OUT", 2 * MPEG),
    Program("ffmpeg mp3 in wav", f"{FFMPEG} -c:a libmp3lame -q:a 4 -f wav OUT", MPEG),
    Program("ffmpeg mp2", f"{FFMPEG} -b:a 64k -f mp2 OUT", MPEG),
    Program("ffmpeg Vorbis", f"{FFMPEG} -c:a libvorbis -f ogg OUT"),
    Program("ffmpeg Opus", f"{FFMPEG} -c:a libopus -f ogg OUT"),
    *(Program(f"sox {form}", f"sox IN -t {form} OUT") for form in ("wav", "w64", "aiff", "caf", "au", "flac", "ogg")),
    *(Program(f"sox {form}", f"sox IN -t {form} OUT") for form in ("nist", "ircam", "htk")),
    Program("sox mp3", "sox IN -t mp3 -C -4.2 OUT", MPEG),
    Program("sox MS ADPCM", "sox IN -e ms-adpcm -t wav OUT", 0.13),
    Program("sox GSM", "sox IN -r 8000 -e gsm -t wav OUT", 0.06),
)
