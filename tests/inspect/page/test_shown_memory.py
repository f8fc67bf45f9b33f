"""Tests of the memory on the page: it is the memory plan of the program that runs."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from graphflow.inspect.page.page_data import ShownMemory
from graphflow.inspect.page.shown_memory import shown_memory
from support.models.compiled_networks import compiled_network

NAMES = ("probe:concat:58", pytest.param("shufflenet_v2", marks=pytest.mark.slow))


@cache
def shown(name: str) -> ShownMemory:
    return shown_memory(compiled_network(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_step_finds_its_tensors_in_memory_that_is_theirs(name: str) -> None:
    memory, spec = shown(name), compiled_network(name).spec
    assert (memory.bytes, len(memory.steps)) == (spec.arena_bytes, len(spec.run))
    for number, step in enumerate(spec.run):
        live = {part.offset: part for part in memory.parts if part.first <= number <= part.last}
        for ref in step.buffers:
            if ref.space == "arena":
                assert ref.offset < live[ref.position].bytes
        ends = sorted((part.offset, part.offset + part.bytes) for part in live.values())
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
        assert memory.live[number] == sum(part.bytes for part in live.values()) <= memory.bytes


@pytest.mark.parametrize("name", NAMES)
def test_a_part_reuses_those_that_had_its_bytes_last(name: str) -> None:
    memory = shown(name)
    owner = np.full(memory.bytes, -1)
    for place, part in enumerate(memory.parts):
        bytes_of = owner[part.offset : part.offset + part.bytes]
        before = {*bytes_of.tolist()} - {-1}
        assert set(part.reuses) == before
        assert all(memory.parts[other].last < part.first for other in before)
        bytes_of[:] = place


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_the_arena_are_in_the_part_of_their_storage(name: str) -> None:
    lowered = compiled_network(name).lowered
    found = {tensor: part for part in shown(name).parts for tensor in part.tensors}
    for value, place in lowered.physical.values.items():
        if value in found:
            assert found[value].storage == place.storage
            assert lowered.places[place.storage].position == found[value].offset
