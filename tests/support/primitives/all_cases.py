"""Every `PrimitiveCase`; a primitive gets its random kernels by an entry in one of these."""

from support.primitives.buffer_cases import BUFFER_CASES
from support.primitives.call_cases import CALL_CASES
from support.primitives.condition_cases import CONDITION_CASES
from support.primitives.config_cases import CONFIG_CASES
from support.primitives.expression_cases import EXPRESSION_CASES
from support.primitives.layout_cases import LAYOUT_CASES
from support.primitives.let_cases import LET_CASES
from support.primitives.loop_cases import LOOP_CASES
from support.primitives.padding_cases import PADDING_CASES
from support.primitives.prefetch_cases import PREFETCH_CASES
from support.primitives.primitive_cases import PrimitiveCase
from support.primitives.stage_cases import STAGE_CASES
from support.primitives.window_cases import WINDOW_CASES

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
