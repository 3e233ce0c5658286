"""As many float32 as a register of the processor holds, for loops that compilers do not vectorise well themselves.

Only compiled loops can call the functions here. An index counts floats from an array's first one, in the order of its
memory, and is not checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import extending
from numba.core import cgutils, types

WIDTH = 16 if binding.get_host_cpu_features().get("avx512f") else 8  # where registers are narrower, LLVM takes two
VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
intrinsic: Any = extending.intrinsic  # its type hints do not describe what it returns
CONTRACT = ["contract"]  # a product and a sum may become one instruction


class Register(types.Type):
    """numba's type of a register, WIDTH float32."""

    def __init__(self) -> None:
        super().__init__(f"Register{WIDTH}")


@extending.register_model(Register)
class RegisterModel(extending.models.PrimitiveModel):
    """How LLVM holds a register."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


REGISTER = Register()


def _place(context, builder, kind, array, index):
    return builder.gep(cgutils.create_struct_proxy(kind)(context, builder, array).data, [index])


def _splat(builder, x):
    nothing, zero = ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    first = builder.insert_element(nothing, x, zero)
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


@intrinsic
def load(typing, array, index):
    """WIDTH values of a float32 array from an index on."""

    def code(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        loaded = builder.load(builder.bitcast(place, VECTOR.as_pointer()))
        loaded.align = 4
        return loaded

    return REGISTER(array, types.intp), code


@intrinsic
def store(typing, array, index, value):
    """Write WIDTH values into a float32 array from an index on."""

    def code(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(place, VECTOR.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, REGISTER), code


@intrinsic
def splat(typing, x):
    """WIDTH copies of a float32."""

    def code(context, builder, signature, arguments):
        return _splat(builder, arguments[0])

    return REGISTER(types.float32), code


@intrinsic
def splat_of(typing, array, index):
    """WIDTH copies of the value of a float32 array at an index."""

    def code(context, builder, signature, arguments):
        return _splat(builder, builder.load(_place(context, builder, signature.args[0], *arguments)))

    return REGISTER(array, types.intp), code


@intrinsic
def add_product(typing, a, b, c):
    """a b + c, elementwise."""

    def code(context, builder, signature, arguments):
        product = builder.fmul(arguments[0], arguments[1], flags=CONTRACT)
        return builder.fadd(product, arguments[2], flags=CONTRACT)

    return REGISTER(REGISTER, REGISTER, REGISTER), code


@intrinsic
def total(typing, a):
    """The sum of a register's values."""

    def code(context, builder, signature, arguments):
        parts = [builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), place)) for place in range(WIDTH)]
        while len(parts) > 1:
            parts = [builder.fadd(one, other) for one, other in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return types.float32(REGISTER), code
