"""Every `PrimitiveCase`; a primitive gets its random kernels by an entry in one of these."""

from __future__ import annotations

from support.buffer_cases import BUFFER_CASES
from support.call_cases import CALL_CASES
from support.condition_cases import CONDITION_CASES
from support.config_cases import CONFIG_CASES
from support.expression_cases import EXPRESSION_CASES
from support.layout_cases import LAYOUT_CASES
from support.let_cases import LET_CASES
from support.loop_cases import LOOP_CASES
from support.padding_cases import PADDING_CASES
from support.prefetch_cases import PREFETCH_CASES
from support.primitive_cases import PrimitiveCase
from support.stage_cases import STAGE_CASES
from support.window_cases import WINDOW_CASES

ALL_CASES: tuple[PrimitiveCase, ...] = (
    *BUFFER_CASES,
    *CALL_CASES,
    *CONDITION_CASES,
    *CONFIG_CASES,
    *EXPRESSION_CASES,
    *LAYOUT_CASES,
    *LET_CASES,
    *LOOP_CASES,
    *PADDING_CASES,
    *PREFETCH_CASES,
    *STAGE_CASES,
    *WINDOW_CASES,
)

SEQUENCE_CASES = tuple(case for case in ALL_CASES if case.keeps_interface)
"""Those of which several apply one after another to a kernel."""
