"""Eight float32 in one register of the processor, for loops that compilers do not vectorise well themselves.

The functions here are for compiled loops alone. Where registers are narrower, LLVM takes two of them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

VECTOR = ir.VectorType(ir.FloatType(), 8)
intrinsic: Any = extending.intrinsic  # its types are not those of what it makes
CONTRACT = ["contract"]  # a product and a sum may become one instruction


class Eight(types.Type):
    """numba's type of eight float32."""

    def __init__(self) -> None:
        super().__init__("Eight")


@extending.register_model(Eight)
class EightModel(extending.models.PrimitiveModel):
    """How LLVM holds them."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


EIGHT = Eight()


def _place(context, builder, kind, array, index):
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), VECTOR.as_pointer())


@intrinsic
def load(typing, array, index):
    """Eight values of a contiguous float32 array [N] from an index on, which is not checked."""

    def code(context, builder, signature, arguments):
        loaded = builder.load(_place(context, builder, signature.args[0], *arguments))
        loaded.align = 4
        return loaded

    return EIGHT(array, types.intp), code


@intrinsic
def store(typing, array, index, value):
    """Write eight values into a contiguous float32 array [N] from an index on, which is not checked."""

    def code(context, builder, signature, arguments):
        builder.store(arguments[2], _place(context, builder, signature.args[0], *arguments[:2])).align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, EIGHT), code


@intrinsic
def splat(typing, x):
    """Eight times the same float32."""

    def code(context, builder, signature, arguments):
        nothing, zero = ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        first = builder.insert_element(nothing, arguments[0], zero)
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8))

    return EIGHT(types.float32), code


@intrinsic
def add_product(typing, a, b, c):
    """a b + c, each of the eight by itself."""

    def code(context, builder, signature, arguments):
        product = builder.fmul(arguments[0], arguments[1], flags=CONTRACT)
        return builder.fadd(product, arguments[2], flags=CONTRACT)

    return EIGHT(EIGHT, EIGHT, EIGHT), code


@intrinsic
def total(typing, a):
    """The sum of the eight."""

    def code(context, builder, signature, arguments):
        parts = [builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), place)) for place in range(8)]
        while len(parts) > 1:
            parts = [builder.fadd(one, other) for one, other in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return types.float32(EIGHT), code
