"""Loops over time of a GRU and an LSTM, in one direction.

Gates are computed from `sums`, which hold the input's part and the biases; the state's part is added step by step.
Time comes first: [T, B, ...]. Loops over gates are short, with few arrays each: compilers do not vectorise a loop in
which many arrays may overlap.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedray.models.kernels.matrices import COLUMNS, NOTHING, ROWS, pack, tile
from fedray.models.kernels.scalars import OPTIONS, F, sigmoid


@njit(**OPTIONS)
def packed(right):
    """Pack a right matrix [K, N] for `multiply`, once for all steps: [ceil(N / COLUMNS), K + 1, COLUMNS]."""
    inner, width = right.shape
    panels = np.empty(((width + COLUMNS - 1) // COLUMNS, inner + 1, COLUMNS), np.float32)
    for p in range(len(panels)):
        pack(right[:, p * COLUMNS : (p + 1) * COLUMNS], NOTHING, panels[p])
    return panels


@njit(**OPTIONS)
def multiply(left, panels, out):
    """`out` [B, N rounded up to COLUMNS] = left [B, K] @ the matrix [K, N] in the panels."""
    for p in range(len(panels)):
        for row in range(0, len(left), ROWS):
            tile(left[row : row + ROWS], panels[p], out, row, p * COLUMNS, False)


@njit(**OPTIONS)
def turned(x, lengths, backwards, out):
    """Put time first, [B, T, D] -> [T, B, D]; `backwards` reverses each row within its length, but not the padding.

    A second reversal restores the order: see `turned_back`.
    """
    batch, time, _ = x.shape
    for b in range(batch):
        count = lengths[b]
        for t in range(time):
            out[count - 1 - t if backwards and t < count else t, b] = x[b, t]


@njit(**OPTIONS)
def turned_back(x, lengths, backwards, out, first):
    """[T, B, D] -> columns of `out` [B, T, ...] from `first` on, in the order before `turned`."""
    time, batch, width = x.shape
    for b in range(batch):
        count = lengths[b]
        for t in range(time):
            out[b, t, first : first + width] = x[count - 1 - t if backwards and t < count else t, b]


@njit(**OPTIONS)
def gru(sums, weights, bias, states, hidden):
    """`sums` [T, B, 3 H] in the order r, z, n become gates; `states` [T + 1, B, H] begin with zeros.

    `weights` is W_hh [3 H, H]; `hidden` [T, B, H] keeps W_hn h + b_hn.
    """
    time, batch, _ = sums.shape
    size = states.shape[2]
    panels = packed(weights.T)
    product = np.empty((batch, len(panels) * COLUMNS), np.float32)
    for t in range(time):
        multiply(states[t], panels, product)
        for b in range(batch):
            gates, p, before, after, m = sums[t, b], product[b], states[t, b], states[t + 1, b], hidden[t, b]
            for i in range(2 * size):
                gates[i] = sigmoid(gates[i] + p[i])
            for i in range(size):
                m[i] = p[2 * size + i] + bias[i]
            for i in range(size):
                gates[2 * size + i] = F(2) * sigmoid(F(2) * (gates[2 * size + i] + gates[i] * m[i])) - F(1)
            for i in range(size):
                after[i] = gates[2 * size + i] + gates[size + i] * (before[i] - gates[2 * size + i])


@njit(**OPTIONS)
def gru_back(gradient, gates, weights, states, hidden, to_sums, to_products):
    """The backward pass: `gradient` [T, B, H] of the states -> those of the input's and the state's part of the sums.

    `weights` is W_hh [3 H, H]. Both results are [T, B, 3 H]: they differ in n, where r multiplies the state's part.
    """
    time, batch, _ = gates.shape
    size = states.shape[2]
    carried = np.zeros((batch, size), np.float32)
    panels = packed(weights)
    product = np.zeros((batch, len(panels) * COLUMNS), np.float32)
    for t in range(time - 1, -1, -1):
        for b in range(batch):
            gate, before, m = gates[t, b], states[t, b], hidden[t, b]
            sums, products, kept = to_sums[t, b], to_products[t, b], carried[b]
            for i in range(size):
                g = gradient[t, b, i] + kept[i] + product[b, i]
                r, z, n = gate[i], gate[size + i], gate[2 * size + i]
                to_n = g * (F(1) - z) * (F(1) - n * n)
                to_z = g * (before[i] - n) * z * (F(1) - z)
                to_r = to_n * m[i] * r * (F(1) - r)
                sums[i] = to_r
                sums[size + i] = to_z
                sums[2 * size + i] = to_n
                products[i] = to_r
                products[size + i] = to_z
                products[2 * size + i] = to_n * r
                kept[i] = g * z
        multiply(to_products[t], panels, product)


@njit(**OPTIONS)
def lstm(sums, weights, states, cells):
    """`sums` [T, B, 4 H] in the order i, f, g, o become gates; `states` and `cells` [T + 1, B, H] begin with zeros.

    `weights` is W_hh [4 H, H].
    """
    time, batch, _ = sums.shape
    size = states.shape[2]
    panels = packed(weights.T)
    product = np.empty((batch, len(panels) * COLUMNS), np.float32)
    for t in range(time):
        multiply(states[t], panels, product)
        for b in range(batch):
            gates, p, cell, after, state = sums[t, b], product[b], cells[t, b], cells[t + 1, b], states[t + 1, b]
            for k in range(2 * size):
                gates[k] = sigmoid(gates[k] + p[k])
            for k in range(2 * size, 3 * size):
                gates[k] = F(2) * sigmoid(F(2) * (gates[k] + p[k])) - F(1)
            for k in range(3 * size, 4 * size):
                gates[k] = sigmoid(gates[k] + p[k])
            for k in range(size):
                after[k] = gates[size + k] * cell[k] + gates[k] * gates[2 * size + k]
            for k in range(size):
                state[k] = gates[3 * size + k] * (F(2) * sigmoid(F(2) * after[k]) - F(1))


@njit(**OPTIONS)
def lstm_back(gradient, gates, weights, cells, to_sums):
    """The backward pass: `gradient` [T, B, H] of the states -> that of the sums [T, B, 4 H].

    `weights` is W_hh [4 H, H].
    """
    time, batch, _ = gates.shape
    size = cells.shape[2]
    carried = np.zeros((batch, size), np.float32)
    panels = packed(weights)
    product = np.zeros((batch, len(panels) * COLUMNS), np.float32)
    for t in range(time - 1, -1, -1):
        for b in range(batch):
            gate, before, after, sums, kept = gates[t, b], cells[t, b], cells[t + 1, b], to_sums[t, b], carried[b]
            for k in range(size):
                i, f, g, o = gate[k], gate[size + k], gate[2 * size + k], gate[3 * size + k]
                to_state = gradient[t, b, k] + product[b, k]
                c = F(2) * sigmoid(F(2) * after[k]) - F(1)
                to_cell = kept[k] + to_state * o * (F(1) - c * c)
                sums[k] = to_cell * g * i * (F(1) - i)
                sums[size + k] = to_cell * before[k] * f * (F(1) - f)
                sums[2 * size + k] = to_cell * i * (F(1) - g * g)
                sums[3 * size + k] = to_state * c * o * (F(1) - o)
                kept[k] = to_cell * f
        multiply(to_sums[t], panels, product)
