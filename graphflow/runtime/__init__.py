"""The runtime: loads native programs and runs them on persistent native threads."""

from graphflow.runtime.constant_block import NOTHING_BORROWED, Borrowed, Initial
from graphflow.runtime.container import is_container
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.drafts import replace_file
from graphflow.runtime.executor import Program, StampedRun
from graphflow.runtime.given_arrays import given_array, require_value, value_key
from graphflow.runtime.host_identity import host_identity
from graphflow.runtime.linking import LinkedCode, link
from graphflow.runtime.one_at_a_time import OneAtATime
from graphflow.runtime.processor import Processor, check_host, processor_of
from graphflow.runtime.run_sizes import stated_integer, with_size_names
from graphflow.runtime.saved_program import (
    SavedProgram,
    load_programs,
    prepared_spec,
    save_programs,
)
from graphflow.runtime.state_runs import StateMemory, StateRun, StateTensor

__all__ = [
    "NOTHING_BORROWED",
    "Borrowed",
    "Initial",
    "LinkedCode",
    "OneAtATime",
    "Processor",
    "Program",
    "SavedProgram",
    "StampedRun",
    "StateMemory",
    "StateRun",
    "StateTensor",
    "check_host",
    "default_threads",
    "given_array",
    "host_identity",
    "is_container",
    "link",
    "load_programs",
    "prepared_spec",
    "processor_of",
    "replace_file",
    "require_value",
    "save_programs",
    "stated_integer",
    "value_key",
    "with_size_names",
]
