"""Low-rank adapters in a federation: attach them to a backbone, average their products, merge them at the end.

`backbone` is a task without adapters, `adapted` is the same task with adapters (`Task.with_adapters`).
"""

from __future__ import annotations

import numpy as np

from fedray.core.parameters import Layout
from fedray.core.seeds import seed_all
from fedray.core.types import Layer, Vector
from fedray.models.adapters import adapt, factorised, merged, pairs, plain_names, products
from fedray.training.task import Task


def attach(backbone: Task, adapted: Task, params: Vector, seed: int) -> Vector:
    """The initial parameters of the adapted task: a random A, B = 0, and the backbone's `params`."""
    assert adapted.adapters is not None
    tensors_of_backbone = backbone.layout.cut(params)
    seed_all(seed, "adapters")
    model = adapt(backbone.model(), adapted.adapters)
    tensors = model.state_dict()
    names = plain_names(model).items()
    tensors |= {name: tensors_of_backbone[plain] for name, plain in names if plain in tensors_of_backbone}
    return adapted.layout.join(tensors)


def merge(backbone: Task, adapted: Task, params: Vector) -> Vector:
    """theta^0 + alpha / r B A: the parameters of a backbone that computes what the adapted model computes."""
    flat = adapted.flat("cpu")
    flat.load(params)
    return backbone.layout.join(merged(flat.model))


def product_change(change: Vector, before: Vector, layout: Layout) -> Vector:
    """The change in all products B A, concatenated, from a change in A and B. `before`: the adapted parameters."""
    adapters = before[: layout.trainable]
    return products(adapters + change, layout) - products(adapters, layout)


def add_to_products(params: Vector, step: Vector, layout: Layout) -> Vector:
    """The adapted parameters whose products are the nearest to B A + step at the adapters' rank."""
    stepped = params.copy()
    adapters = params[: layout.trainable]
    stepped[: layout.trainable] = factorised(products(adapters, layout) + step, adapters, layout)
    return stepped


def product_layers(layout: Layout) -> tuple[Layer, ...]:
    """The layers of the concatenated products, one for each product."""
    layers: list[Layer] = []
    for pair in pairs(layout):
        start = layers[-1].stop if layers else 0
        a, b = pair.factors(np.empty(layout.trainable, np.float32))
        layers.append(Layer(pair.name, start, start + b.shape[0] * a.shape[1]))
    return tuple(layers)
