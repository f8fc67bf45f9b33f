"""One effect analysis of a kernel: what its statements read, write and leave for others to read."""

from graphflow.effects.access_conflicts import commuting, independent_iterations
from graphflow.effects.carried_flow import no_carried_flow
from graphflow.effects.equal_values import (
    equal_in_any_state,
    equal_indices,
    equal_values,
    held_constant,
    stores_known_value,
)
from graphflow.effects.own_iterations import (
    apart_in_iteration,
    stored_before_read,
    touches_whenever_begun,
)
from graphflow.effects.paths import (
    Change,
    Path,
    body_below,
    declared_around,
    domain_at,
    exchange_path,
    paths_below,
    paths_directly_below,
    rewrite_path,
    statement_at,
    with_body_below,
)
from graphflow.effects.questions import (
    is_first_to_touch,
    never_read,
    never_touched,
    overwritten_unread,
    state_unread,
    unread_outside,
    written_before_read,
)
from graphflow.effects.relations import relations_of
from graphflow.effects.remapping import same_sources
from graphflow.effects.statements import (
    KernelStatements,
    Statement,
    StatementAccess,
    claimed_loads,
    statements_of,
)
from graphflow.effects.touched import DomainTouched, domain_touched

__all__ = [
    "Change",
    "DomainTouched",
    "KernelStatements",
    "Path",
    "Statement",
    "StatementAccess",
    "apart_in_iteration",
    "body_below",
    "claimed_loads",
    "commuting",
    "declared_around",
    "domain_at",
    "domain_touched",
    "equal_in_any_state",
    "equal_indices",
    "equal_values",
    "exchange_path",
    "held_constant",
    "independent_iterations",
    "is_first_to_touch",
    "never_read",
    "never_touched",
    "no_carried_flow",
    "overwritten_unread",
    "paths_below",
    "paths_directly_below",
    "relations_of",
    "rewrite_path",
    "same_sources",
    "state_unread",
    "statement_at",
    "statements_of",
    "stored_before_read",
    "stores_known_value",
    "touches_whenever_begun",
    "unread_outside",
    "with_body_below",
    "written_before_read",
]
