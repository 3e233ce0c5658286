"""espeak-ng through ctypes: the one place that touches the synthesiser.

espeak-ng keeps its state in globals and never clears all of it, so the same sentence sounds slightly different the second time. It is
bit-identical only as the first thing a freshly loaded library does: hence one load a speaker (2 ms), and never two at a time in a process.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

SAMPLE_RATE = 22050  # Hz, of every espeak-ng voice
LONGEST_DATA_PATH = 140  # characters; espeak-ng cuts longer ones silently

SYNCHRONOUS = 2  # audio output: espeak_Synth returns when the callback has had everything; no thread is started
DONT_EXIT = 0x8000  # report missing data instead of ending our process
UTF8 = 1
RATE, PITCH, PITCH_RANGE = 1, 3, 4  # of espeak_PARAMETER
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def version() -> str:
    """The version of the installed espeak-ng, such as "1.52.0". Raises ValueError when it is not installed."""
    with _loaded() as library:
        library.espeak_Info.restype = ctypes.c_char_p
        return library.espeak_Info(None).decode().split()[0]


Manner = tuple[int, int, int]  # rate in words a minute (80-450), pitch and pitch range (0-99)


@contextmanager
def voice(name: str, seed: int) -> Iterator[Callable[[str, Manner], np.ndarray]]:
    """A freshly loaded voice: `speak(text, manner)` -> int16 [samples] at SAMPLE_RATE.

    The same bits for the same seed and the same calls in order. `name` is a language and a variant ("en-us+f3"), `seed` any integer.
    """
    with _loaded() as library:
        if library.espeak_Initialize(SYNCHRONOUS, 0, os.fsencode(_data()), DONT_EXIT) != SAMPLE_RATE:
            raise ValueError(
                f"espeak-ng cannot read its data in {_data()}: reinstall it with `pip install --force-reinstall espeakng-loader`"
            )
        try:
            library.espeak_ng_SetRandSeed(ctypes.c_long(seed % 2**31))
            if library.espeak_SetVoiceByName(name.encode()) != 0:
                raise ValueError(
                    f'espeak-ng has no voice "{name}": languages and accents are names such as "en-us", "en-gb-scotland", "fr"'
                )
            pieces: list[bytes] = []
            current: list[Manner] = []

            @CALLBACK
            def take(samples: int | None, count: int, _events: int | None) -> int:
                if samples and count > 0:
                    pieces.append(ctypes.string_at(samples, 2 * count))
                return 0

            def speak(text: str, manner: Manner) -> np.ndarray:
                pieces.clear()
                if current != [manner]:
                    for parameter, value in zip((RATE, PITCH, PITCH_RANGE), manner, strict=True):
                        library.espeak_SetParameter(parameter, value, 0)
                    current[:] = [manner]
                data = text.encode()
                if library.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 0, 0, UTF8, None, None) != 0:
                    raise ValueError(f'espeak-ng could not speak "{text}" as {name}')
                return np.frombuffer(b"".join(pieces), dtype=np.int16)

            library.espeak_SetSynthCallback(take)
            yield speak
        finally:
            library.espeak_Terminate()


@contextmanager
def _loaded() -> Iterator[ctypes.CDLL]:
    """The shared library, fresh: every global at its initial value, and gone from the process afterwards."""
    path = _loader().get_library_path()
    if _resident(path):
        raise RuntimeError("espeak-ng is already loaded in this process: its voices are repeatable only one at a time, from a fresh load")
    library = ctypes.CDLL(path)
    try:
        yield library
    finally:
        _ctypes.dlclose(library._handle)


def _resident(path: str) -> bool:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    _ctypes.dlclose(library._handle)
    return True


def _data() -> Path:
    path = Path(_loader().get_data_path())
    if len(str(path)) > LONGEST_DATA_PATH:
        raise ValueError(
            f"espeak-ng reads no data from paths longer than {LONGEST_DATA_PATH} characters: {path}; install it in a shorter one"
        )
    return path


def _loader():
    try:
        import espeakng_loader  # GPL-3.0-or-later data and library: an optional extra, never imported unless it is used
    except ImportError as error:
        raise ValueError('the embedded corpus is spoken by espeak-ng, which is not installed: pip install "fedray[synth]"') from error
    return espeakng_loader
