"""Programs written by hand: kernels of LLVM IR text, and their step tables."""

import functools

import numpy as np
from llvmlite import binding as llvm

from graphflow.program import BufferRef, ProgramSpec, ProgramStep, TensorSpec


@functools.cache
def compiled(text: str, reloc: str = "pic", codemodel: str = "default") -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc=reloc, codemodel=codemodel
    )
    return machine.emit_object(module)


def kernel(name: str, parameters: int, body: str, declarations: str = "") -> tuple[str, bytes]:
    """A kernel that does `body` for each %i of lo..hi; %p0, %p1 ... are its buffers."""
    pointers = "\n".join(
        f"%at{k} = getelementptr ptr, ptr %buffers, i64 {k}\n%p{k} = load ptr, ptr %at{k}"
        for k in range(parameters)
    )
    return name, compiled(f"""
{declarations}
define void @{name}(ptr %buffers, i64 %lo, i64 %hi) {{
entry:
  {pointers}
  %any = icmp slt i64 %lo, %hi
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ %lo, %entry ], [ %next, %loop ]
  {body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %hi
  br i1 %more, label %loop, label %end
end:
  ret void
}}""")


def elementwise(name: str, operation: str) -> tuple[str, bytes]:
    """p1[i] = operation(%v = p0[i]), float32; the operation sets %r."""
    return kernel(
        name,
        2,
        f"""%x = getelementptr float, ptr %p0, i64 %i
  %v = load float, ptr %x
  {operation}
  %y = getelementptr float, ptr %p1, i64 %i
  store float %r, ptr %y""",
    )


def inc() -> tuple[str, bytes]:
    return elementwise("inc", "%r = fadd float %v, 1.0")


def add() -> tuple[str, bytes]:
    return kernel(
        "add",
        3,
        """%x = getelementptr float, ptr %p0, i64 %i
  %y = getelementptr float, ptr %p1, i64 %i
  %a = load float, ptr %x
  %b = load float, ptr %y
  %r = fadd float %a, %b
  %z = getelementptr float, ptr %p2, i64 %i
  store float %r, ptr %z""",
    )


def rotate(n: int) -> tuple[str, bytes]:
    """p1[i] = p0[(i + 1) % n] + 1: every thread reads what its neighbour wrote one step before."""
    return kernel(
        "rotate",
        2,
        f"""%j = add i64 %i, 1
  %m = urem i64 %j, {n}
  %x = getelementptr float, ptr %p0, i64 %m
  %v = load float, ptr %x
  %r = fadd float %v, 1.0
  %y = getelementptr float, ptr %p1, i64 %i
  store float %r, ptr %y""",
    )


def arena(offset: int) -> BufferRef:
    return BufferRef("arena", offset)


X, Y = BufferRef("input", 0), BufferRef("output", 0)


def spec(
    objects: list[tuple[str, bytes]],
    run: list[ProgramStep],
    inputs: list[TensorSpec],
    outputs: list[TensorSpec],
    prepare: tuple[ProgramStep, ...] = (),
    constants: tuple[tuple[int, np.ndarray], ...] = (),
    constant_bytes: int = 0,
    arena_bytes: int = 4096,
) -> ProgramSpec:
    return ProgramSpec(
        tuple(objects),
        prepare,
        tuple(run),
        constants,
        constant_bytes,
        arena_bytes,
        tuple(inputs),
        tuple(outputs),
    )


def vector(name: str, n: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, dtype, (n,))


def increments(n: int, times: int = 1) -> ProgramSpec:
    places = [X, *[arena(0)] * (times - 1), Y]
    steps = [ProgramStep("inc", (places[k], places[k + 1]), n) for k in range(times)]
    return spec([inc()], steps, [vector("x", n)], [vector("y", n)], arena_bytes=4 * n)


def rotations(n: int, times: int) -> ProgramSpec:
    assert times % 2 == 1 and n * 4 <= 1024
    places = [X] + [arena(1024 * (k % 2)) for k in range(times - 1)] + [Y]
    steps = [ProgramStep("rotate", (places[k], places[k + 1]), n) for k in range(times)]
    return spec([rotate(n)], steps, [vector("x", n)], [vector("y", n)])
