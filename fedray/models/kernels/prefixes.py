"""One frame of CTC prefix beam search, which `fedray.training.decoding.prefixes` describes."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit

from fedray.models.kernels.scalars import OPTIONS

BLANK = 0
PARENT, LAST, CHILD, SIBLING, PLACE = range(5)  # columns of the links of a prefix in the tree
COLUMNS = 5
NONE = -1
# Without reassociation and contraction: scores have the same bits as Python's floats.
EXACT = OPTIONS | {"fastmath": False}


def in_python() -> Callable[..., Any]:
    """`grow` without compilation, with the same bits."""
    return FunctionType(grow.py_func.__code__, globals() | {"_place": _place.py_func, "_child": _child.py_func})


@njit(**EXACT)
def grow(probabilities, allowed, gains, beam, links, fused, size, live, masses):
    """Search one frame: (number of prefixes in the tree, the best `beam` prefixes, their masses, the largest mass).

    `probabilities` [V] are those of the frame, `live` int32 [L] the prefixes before it. `masses` [L, 2] are the
    probabilities of a prefix's alignments that end in a blank and in its last token; their sum is its mass. Returned
    masses are relative to the largest one. `allowed` bool and `gains` float64, [L, V] or [1, V] for all: the tokens
    that may extend a prefix, and what they add to the score of the language model.

    The tree has `size` prefixes so far: `links` int32 [capacity, 5] with the columns above, and `fused` [capacity], the
    scores of the language model. It must have room for L V more.
    """
    vocabulary = len(probabilities)
    grown = np.empty(len(live) * vocabulary, np.int32)
    ends = np.zeros((len(grown), 2))
    count = 0
    for i in range(len(live)):
        prefix = live[i]
        whole, last = masses[i, 0] + masses[i, 1], links[prefix, LAST]
        count = _place(prefix, links, grown, count)
        ends[links[prefix, PLACE], 0] += whole * probabilities[BLANK]
        if prefix:
            ends[links[prefix, PLACE], 1] += masses[i, 1] * probabilities[last]
        tokens, gain = allowed[min(i, len(allowed) - 1)], gains[min(i, len(gains) - 1)]
        for token in range(BLANK + 1, vocabulary):
            before = masses[i, 0] if token == last else whole
            if tokens[token] and before > 0.0:
                child, size = _child(prefix, token, links, size)
                fused[child] = fused[prefix] + gain[token]
                count = _place(child, links, grown, count)
                ends[links[child, PLACE], 1] += before * probabilities[token]
    best, scores = np.empty(beam, np.int64), np.empty(beam)
    kept = 0
    for n in range(count):
        prefix, mass = grown[n], ends[n, 0] + ends[n, 1]
        links[prefix, PLACE] = NONE
        if not mass > 0.0:
            continue
        score, k = math.log(mass) + fused[prefix], kept
        while k and (score > scores[k - 1] or (score == scores[k - 1] and prefix < grown[best[k - 1]])):
            if k < beam:
                scores[k], best[k] = scores[k - 1], best[k - 1]
            k -= 1
        if k < beam:
            scores[k], best[k] = score, n
            kept = min(kept + 1, beam)
    after, left, largest = np.empty(kept, np.int32), np.empty((kept, 2)), 0.0
    for k in range(kept):
        after[k] = grown[best[k]]
        left[k] = ends[best[k]]
        largest = max(largest, left[k, 0] + left[k, 1])
    for k in range(kept):
        left[k, 0] /= largest
        left[k, 1] /= largest
    return size, after, left, largest


@njit(**EXACT)
def _place(prefix, links, grown, count):
    """Give a prefix a place in `grown` if it has none; returns the number of places taken."""
    if links[prefix, PLACE] == NONE:
        links[prefix, PLACE], grown[count] = count, prefix
        count += 1
    return count


@njit(**EXACT)
def _child(prefix, token, links, size):
    """The prefix with one more token, which is created if it is new, and the size of the tree."""
    child = links[prefix, CHILD]
    while child != NONE and links[child, LAST] != token:
        child = links[child, SIBLING]
    if child != NONE:
        return child, size
    links[size, PARENT], links[size, LAST], links[size, CHILD], links[size, PLACE] = prefix, token, NONE, NONE
    links[size, SIBLING], links[prefix, CHILD] = links[prefix, CHILD], size
    return size, size + 1
