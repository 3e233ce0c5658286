"""espeak-ng through ctypes. No other module calls the synthesiser.

espeak-ng keeps state in global variables and never clears all of it, so the same sentence sounds slightly different the
second time. Only a freshly loaded library repeats its bits. Therefore each speaker loads a fresh library (2 ms), and a
process never loads two at a time.
"""

from __future__ import annotations

import _ctypes
import ctypes
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np

SAMPLE_RATE = 22050  # Hz, of every espeak-ng voice
LONGEST_DATA_PATH = 140  # characters; espeak-ng cuts longer ones silently

SYNCHRONOUS = 2  # espeak_Synth returns after the last callback, without a thread
DONT_EXIT = 0x8000  # report missing data, do not end the process
UTF8 = 1
RATE, PITCH, PITCH_RANGE = 1, 3, 4  # of espeak_PARAMETER
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def version() -> str:
    """The version of the installed espeak-ng, such as "1.52.0". Raises ValueError if it is not installed."""
    with _loaded() as library:
        library.espeak_Info.restype = ctypes.c_char_p
        info: bytes = library.espeak_Info(None)
        return info.decode().split()[0]


Manner = tuple[int, int, int]  # rate in words a minute (80-450), pitch and pitch range (0-99)


@contextmanager
def voice(name: str, seed: int) -> Iterator[Callable[[str, Manner], np.ndarray]]:
    """A freshly loaded voice: `speak(text, manner)` -> int16 [samples] at SAMPLE_RATE.

    The same seed and the same calls in the same order give the same bits. `name` is a language and a variant, such as
    "en-us+f3".
    """
    with _loaded() as library:
        if library.espeak_Initialize(SYNCHRONOUS, 0, os.fsencode(_data()), DONT_EXIT) != SAMPLE_RATE:
            remedy = "reinstall it with `pip install --force-reinstall espeakng-loader`"
            raise ValueError(f"espeak-ng cannot read its data in {_data()}: {remedy}")
        try:
            library.espeak_ng_SetRandSeed(ctypes.c_long(seed % 2**31))
            if library.espeak_SetVoiceByName(name.encode()) != 0:
                raise ValueError(
                    f'espeak-ng has no voice "{name}": choose a name such as "en-us", "en-gb-scotland", "fr"'
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
                    raise ValueError(f'espeak-ng failed to speak "{text}" as {name}: change the text or the voice')
                return np.frombuffer(b"".join(pieces), dtype=np.int16)

            library.espeak_SetSynthCallback(take)
            yield speak
        finally:
            library.espeak_Terminate()


@contextmanager
def _loaded() -> Iterator[ctypes.CDLL]:
    """Load the shared library, with all globals at their initial values, and unload it at the end."""
    path = _loader().get_library_path()
    if _resident(path):
        raise RuntimeError("espeak-ng is already loaded in this process: only a fresh load repeats its bits")
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
            f"{path}: espeak-ng reads no data from paths longer than {LONGEST_DATA_PATH} characters: "
            "install espeakng-loader in a shorter path"
        )
    return path


def _loader() -> ModuleType:
    try:
        # The library and its data are GPL-3.0-or-later: an optional extra, imported on use only.
        return importlib.import_module("espeakng_loader")
    except ImportError as error:
        raise ValueError('the embedded corpus needs espeak-ng: install it with pip install "fedray[synth]"') from error
