"""Tests of the native driver: its structs as Python and native code see them, its function builder,
and its atomic accesses.

What the driver does with threads is in tests/runtime/test_executor.py and test_concurrency.py.
"""

import ctypes
import math
import re
from typing import Any

import pytest
from llvmlite import binding as llvm

from graphflow.base.errors import CodegenError
from graphflow.runtime import link
from graphflow.runtime.driver import LEVEL, PATCH, STEP, DriverObject, bring_driver, driver_object
from graphflow.runtime.driver.driver_code import compiled_driver
from graphflow.runtime.driver.function_builder import (
    NativeBody,
    NativeFunction,
    function,
    module_text,
)
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.loading import driver_text
from graphflow.runtime.driver.records import BARRIER, POOL, STRUCTS, WORKER
from graphflow.runtime.driver.structs import (
    INT32,
    INT64,
    POINTER,
    ArrayType,
    StructField,
    StructType,
)

TRIPLE = "x86_64-unknown-linux-gnu"

UNEVEN = StructType(
    "Uneven",
    (
        (StructField("small", INT32), StructField("large", INT64), StructField("last", INT32)),
        (StructField("words", ArrayType(INT32, 3)), StructField("pointer", POINTER)),
    ),
    32,
)
"""A struct that needs padding between fields, behind a group, and at its end."""


# Structs ----------------------------------------------------------------------------------------


def native(struct: StructType) -> tuple[list[int], int]:
    """LLVM's offsets of the fields, and its size."""
    llvm.initialize_native_target()
    inside = {"Barrier": BARRIER, "Worker": WORKER}
    text = "\n".join(each.llvm_definition for each in {struct.name: struct, **inside}.values())
    text += f"\n@it = external global {struct.llvm}"
    module = llvm.parse_assembly(text)
    data = llvm.Target.from_default_triple().create_target_machine().target_data
    # LLVM numbers the names of structs that its context has already.
    (kind,) = (k for k in module.struct_types if k.name.partition(".")[0] == struct.name)
    offsets = [data.get_element_offset(kind, member.position) for member in struct.members.values()]
    return offsets, data.get_abi_size(kind)


@pytest.mark.parametrize("struct", [*STRUCTS, UNEVEN], ids=lambda struct: struct.name)
def test_llvm_and_ctypes_place_fields_where_the_description_says(struct: StructType) -> None:
    offsets = [member.offset for member in struct.members.values()]
    assert native(struct) == (offsets, struct.size)
    ctype = struct.ctype
    assert [getattr(ctype, name).offset for name in struct.members] == offsets
    assert ctypes.sizeof(ctype) == struct.size


@pytest.mark.parametrize("struct", [STEP, LEVEL, PATCH], ids=lambda struct: struct.name)
def test_numpy_places_the_fields_of_tables_where_the_description_says(struct: StructType) -> None:
    fields, dtype = struct.dtype.fields, struct.dtype
    assert fields is not None and dtype.itemsize == struct.size
    expected = {name: (member.offset, member.type.size) for name, member in struct.members.items()}
    assert {name: (at[1], at[0].itemsize) for name, at in fields.items()} == expected


def test_padding_follows_the_alignment_of_fields_and_groups() -> None:
    offsets = {name: member.offset for name, member in UNEVEN.members.items()}
    assert offsets == {"small": 0, "large": 8, "last": 16, "words": 32, "pointer": 48}
    assert UNEVEN.size == 64


@pytest.mark.parametrize("struct", [POOL, WORKER], ids=lambda struct: struct.name)
def test_groups_that_threads_write_at_once_are_two_cache_lines_apart(struct: StructType) -> None:
    starts = [struct.members[group[0].name].offset for group in struct.groups]
    assert all(start % 128 == 0 for start in (*starts, struct.size))
    assert len(set(starts)) == len(starts)


# The function builder ---------------------------------------------------------------------------


@function(INT64, exported=True, a=INT64, b=INT64)
def greatest_divisor(f: NativeBody, a: NativeValue, b: NativeValue) -> None:
    larger, smaller = f.local(INT64, a), f.local(INT64, b)
    with f.loop() as loop:
        with f.when(smaller.load().equals(0)):
            loop.leave()
        rest = larger.load() - larger.load() // smaller.load() * smaller.load()
        larger.store(smaller.load())
        smaller.store(rest)
    f.give(larger.load())


@function(INT64, x=INT64)
def odd_or_nothing(f: NativeBody, x: NativeValue) -> None:
    with f.either((x & 1).equals(1)) as otherwise:
        f.give(x)
        otherwise()
        f.give(0)


@function(INT64, exported=True, count=INT64)
def sum_of_odd(f: NativeBody, count: NativeValue) -> None:
    total = f.local(INT64, 0)
    with f.counted(0, count) as i:
        total.store(total.load() + f.call(odd_or_nothing, i))
    f.give(total.load())


@function(INT64, exported=True, place=AddressOf(UNEVEN), count=INT64)
def exchange_words(f: NativeBody, place: NativePlace, count: NativeValue) -> None:
    """words[i] = 7 where it is 5; how many were."""
    changed = f.local(INT64, 0)
    with f.counted(0, count) as i:
        found, won = place.at("words", i).compare_exchange(5, 7, "acq_rel", "monotonic")
        with f.either(won) as otherwise:
            changed.store(changed.load() + 1)
            otherwise()
            place.at("last").store(found)
    f.give(changed.load())


def compiled(made: NativeFunction, *arguments: Any) -> Any:
    code = link(((made.name, compiled_driver(module_text([made], [UNEVEN], TRIPLE))),))
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(code.addresses[made.name])
    entry.code = code  # which has the memory
    return entry


def test_loops_and_branches_do_what_they_say() -> None:
    divisor = compiled(greatest_divisor, ctypes.c_int64, ctypes.c_int64)
    for a, b in [(12, 18), (17, 5), (0, 4), (9, 0), (2**40, 2**33 * 3)]:
        assert divisor(a, b) == math.gcd(a, b)
    total = compiled(sum_of_odd, ctypes.c_int64)
    assert [total(n) for n in (0, 1, 2, 7)] == [0, 0, 1, 9]


def test_places_reach_fields_and_elements() -> None:
    memory = UNEVEN.ctype(small=1, large=2, last=3, words=(5, 4, 5), pointer=6)
    entry = compiled(exchange_words, ctypes.c_void_p, ctypes.c_int64)
    assert entry(ctypes.addressof(memory), 3) == 2
    assert ([*memory.words], memory.small, memory.large) == ([7, 4, 7], 1, 2)
    assert (memory.last, memory.pointer) == (4, 6)


def test_nothing_follows_the_end_of_a_block() -> None:
    body = NativeBody(None)
    body.give()
    with pytest.raises(CodegenError, match="behind the end"):
        body.local(INT64, 0)


def test_a_result_is_given_on_every_way() -> None:
    @function(INT64, x=INT64)
    def forgetful(f: NativeBody, x: NativeValue) -> None:
        with f.when(x.equals(0)):
            f.give(1)

    with pytest.raises(CodegenError, match="forgetful may end without a result"):
        module_text([forgetful], [], TRIPLE)


def test_operands_have_the_type_that_is_asked_for() -> None:
    body = NativeBody(None)
    wide, narrow = body.local(INT64).load(), body.local(INT32).load()
    with pytest.raises(CodegenError, match="is i32 where i64 is wanted"):
        _ = wide + narrow
    with pytest.raises(CodegenError, match="no part of"):
        body.local(UNEVEN).at("words", "small")
    with pytest.raises(CodegenError, match="no scalar"):
        body.local(UNEVEN).load()


# Atomic accesses --------------------------------------------------------------------------------

ATOMICS = """
apply_patches
apply_sizes
apply_step_sizes
begin_comparing
block_signals
change: store seq_cst, load seq_cst
compare_ways
consider_pause: store monotonic
crowded: load monotonic
estimate_saving
exact_nanoseconds
execute: load monotonic, cmpxchg acq_rel monotonic, load monotonic
execute_together: load monotonic
forget_claims: store monotonic
graphflow_orphan
graphflow_pool
graphflow_run: load monotonic, cmpxchg acquire monotonic, store release
graphflow_spin
group_is_shared
is_compared
is_run_together
may_try
meet: load monotonic, atomicrmw add acq_rel, store monotonic
meet_behind_step
meet_within_step
move_apart: load monotonic, load monotonic, store monotonic
nanoseconds
note_run
publish: load monotonic, store monotonic
share_steps
smaller
spread_apart: load monotonic, cmpxchg acquire monotonic, store monotonic, store release
stamp
start_workers
wait_for_change: load acquire, store monotonic, atomicrmw add seq_cst, load acquire, \
atomicrmw sub seq_cst
work: store monotonic
"""


def test_atomic_accesses_have_the_orders_that_the_protocol_needs() -> None:
    """No lost wake-up, no iteration twice, no result unseen: each weaker order would allow one."""
    found = []
    for name, body in re.findall(r"define .*?@(\w+)\(.*?\{(.*?)\n\}", driver_text(), re.DOTALL):
        accesses = []
        for line in body.splitlines():
            if match := re.search(r"(load|store) atomic .* (\w+), align", line):
                accesses.append(f"{match[1]} {match[2]}")
            elif match := re.search(r"= (atomicrmw \w+|cmpxchg) ptr .*?((?: [a-z_]+)+)$", line):
                accesses.append(f"{match[1]}{match[2]}")
        found.append(f"{name}: {', '.join(accesses)}" if accesses else name)
    assert sorted(found) == ATOMICS.strip().split("\n")


def test_a_driver_of_another_version_is_not_used() -> None:
    """What a saved program brings counts where it is made of this version's IR; `__wrapped__` asks
    again, as a process keeps the first answer."""
    bring_driver(DriverObject("of another version", b"other"))
    own = driver_object.__wrapped__()
    assert own.made_of == driver_object().made_of and own.code[:4] == b"\x7fELF"
    bring_driver(DriverObject(own.made_of, b"brought"))
    try:
        assert driver_object.__wrapped__().code == b"brought"
    finally:
        bring_driver(own)
