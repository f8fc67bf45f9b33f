"""The rows of docs/rfc77.md about scheduling primitives, by the catalogue's names, in its order."""

from __future__ import annotations

from support.rfc77.row import Row

RANDOM = "schedule/test_primitives: test_primitive_on_random_kernels"
"""Each primitive on random kernels: applied or refused, never another meaning."""
ALWAYS_SAFE = ("inline", "simplify")
"""Primitives without a condition."""

REFUSED = "schedule/test_refusals: test_a_clause_that_fails_is_named_with_a_witness"
"""Each clause of each primitive's condition, on a kernel that fails it."""


def primitive(name: str, asks: str, *tests: str, missing: str = "") -> Row:
    """A primitive that has the name of the catalogue."""
    refused = () if name in ALWAYS_SAFE else (REFUSED,)
    return Row(name, asks, (f"schedule.{name}",), (*tests, RANDOM, *refused), missing)


LOOPS = (
    primitive(
        "reorder_loops",
        "Two loops change places; the inner bounds do not use the outer loop, and iterations that "
        "swap their order commute.",
        "schedule/loops/test_loops: "
        "test_reorder_loops test_reorder_loops_refuses_an_order_that_matters "
        "test_reorder_loops_refuses_what_is_no_perfect_nest",
    ),
    primitive(
        "divide_loop",
        "A loop becomes blocks of c iterations, with a tail that is perfect, guarded, cut, or cut "
        "and guarded; a perfect one needs c to divide the extent.",
        "schedule/loops/test_loops: test_divide_loop test_divide_loop_perfectly "
        "test_divide_loop_of_an_extent_that_is_an_expression "
        "test_divide_loop_perfectly_by_proof",
    ),
    primitive(
        "divide_with_recompute",
        "A loop becomes N blocks that overlap; the body is idempotent, and N·c is at most the "
        "extent.",
        "schedule/loops/test_recompute: test_blocks_overlap_by_what_is_left "
        "test_every_count_and_step_compute_the_same test_refusals",
    ),
    primitive(
        "mult_loops",
        "Two loops become one over both; the inner one is alone in the outer one, and its extent "
        "is constant.",
        "schedule/loops/test_loops: test_mult_loops "
        "test_mult_loops_of_an_extent_that_is_an_expression",
    ),
    primitive(
        "cut_loop",
        "A loop becomes two at a point between its bounds.",
        "schedule/loops/test_loops: test_cut_loop test_cut_loop_by_an_expression",
    ),
    primitive(
        "join_loops",
        "Two adjacent loops of one body become one; the second starts where the first stops.",
        "schedule/loops/test_pieces: test_join_loops_undoes_a_cut "
        "test_join_loops_with_bounds_that_are_expressions",
    ),
    primitive(
        "shift_loop",
        "A loop starts elsewhere, and not below zero.",
        "schedule/loops/test_loops: test_shift_loop test_shift_loop_by_an_expression",
    ),
    primitive(
        "fission",
        "A loop becomes two at a gap in its body; the second part uses nothing that the first "
        "allocates, and the two commute where they change their order.",
        "schedule/loops/test_loops: test_fission test_fission_through_conditions",
    ),
    primitive(
        "remove_loop",
        "A loop becomes its body, which is idempotent and does not use the variable; it runs at "
        "least once.",
        "schedule/statements/test_repetition: test_remove_loop "
        "test_remove_loop_refuses_what_reads_earlier_iterations",
    ),
    primitive(
        "add_loop",
        "A statement gets a loop around it, and a guard for the first iteration or not; it is "
        "idempotent without one, and the extent is positive.",
        "schedule/statements/test_repetition: test_add_loop "
        "test_add_loop_refuses_what_is_not_idempotent_without_a_guard "
        "test_add_loop_refuses_extents_that_are_not_positive",
    ),
    primitive(
        "unroll_loop",
        "A loop of constant bounds that runs becomes a copy of its body for each iteration.",
        "schedule/loops/test_pieces: test_unroll_loop test_unroll_loop_copies_places",
    ),
)

STATEMENTS_AND_SCOPES = (
    primitive(
        "reorder_stmts",
        "Two neighbouring statements that commute change places.",
        "schedule/statements/test_single_statements: test_reorder_stmts "
        "test_reorder_stmts_refuses_what_does_not_commute test_reorder_stmts_refuses_strangers "
        "test_reorder_stmts_keeps_an_allocation_in_front_of_its_uses",
    ),
    primitive(
        "commute_expr",
        "The operands of a sum or a product change places.",
        "schedule/statements/test_single_statements: test_commute_expr",
    ),
    primitive(
        "specialize",
        "A statement is copied into branches of conditions, each of which is valid there.",
        "schedule/statements/test_scopes: test_specialize test_specialize_for_data "
        "test_specialize_refuses_conditions_that_are_not_valid "
        "test_specialize_refuses_what_nothing_may_read",
    ),
    primitive(
        "fuse",
        "Two loops of equal bounds whose iterations commute, or two conditions that are "
        "equivalent, become one.",
        "schedule/loops/test_loops: test_fuse test_fuse_of_conditions "
        "test_fuse_refuses_a_read_of_the_next_iteration "
        "test_fuse_refuses_conditions_that_differ "
        "test_fuse_refuses_a_condition_whose_data_change_between",
    ),
    primitive(
        "lift_scope",
        "A loop or condition that is alone in its parent changes places with it; a condition that "
        "leaves a loop does not use it.",
        "schedule/statements/test_scopes: test_lift_scope_takes_a_condition_out_of_a_loop "
        "test_lift_scope_takes_a_loop_out_of_a_condition test_lift_scope_exchanges_conditions "
        "test_lift_scope_exchanges_loops_as_reorder_loops_does "
        "test_lift_scope_refuses_a_condition_that_the_loop_changes "
        "test_lift_scope_refuses_a_condition_on_what_may_not_exist",
    ),
)

CALLS = (
    primitive(
        "inline",
        "A call becomes the statements of what it calls.",
        "schedule/calls/test_kernel_calls: test_inlining_gives_the_statements_back "
        "test_random_kernels_are_the_same_with_a_part_extracted",
    ),
    primitive(
        "replace",
        "A statement becomes a call of an instruction with which it unifies.",
        "schedule/calls/test_kernel_calls: test_a_loop_is_replaced_by_an_instruction "
        "test_the_body_of_a_block_is_replaced "
        "test_what_does_not_unify_is_refused_with_the_first_difference "
        "test_lanes_of_an_instruction_may_not_depend_on_one_another",
        "codegen/test_instruction_set: test_a_fused_multiply_add test_a_dot_product_of_four_bytes "
        "test_a_masked_load_touches_nothing_behind",
    ),
    primitive(
        "call_eqv",
        "A call is exchanged for one of an equivalent kernel, as scheduled from the same one.",
        "schedule/calls/test_kernel_calls: test_a_call_is_exchanged_for_an_equivalent_kernel "
        "test_kernels_that_no_schedule_relates_are_not_exchanged "
        "test_a_schedule_of_disjoint_parameters_does_not_hold_for_one_buffer "
        "test_an_equivalent_kernel_with_other_parameters_does_not_fit "
        "test_an_equivalent_kernel_writes_no_more",
    ),
    primitive(
        "extract_subproc",
        "A statement becomes a kernel of its own, and a call of it.",
        "schedule/calls/test_kernel_calls: test_a_loop_becomes_a_kernel "
        "test_what_cannot_be_a_kernel_is_not_extracted "
        "test_random_kernels_are_the_same_with_a_part_extracted",
    ),
)

BUFFERS = (
    primitive(
        "lift_alloc",
        "An allocation leaves a loop; no value is carried between iterations.",
        "schedule/buffers/test_memory: test_lift_alloc "
        "test_lift_alloc_where_stores_and_loads_have_the_same_condition "
        "test_lift_alloc_does_not_share_a_buffer_between_threads",
    ),
    primitive(
        "sink_alloc",
        "An allocation enters the only loop that uses it; no value is carried between iterations.",
        "schedule/stages/test_private: test_a_row_becomes_private_to_its_iteration "
        "test_the_box_is_what_an_iteration_uses "
        "test_what_an_iteration_does_not_store_itself_is_refused "
        "test_a_refusal_shows_the_iterations_between_which_a_value_is_carried "
        "test_parameters_and_lanes_are_refused",
    ),
    primitive(
        "delete_buffer",
        "A buffer that nothing reads goes, with the stores to it.",
        "schedule/buffers/test_lifetimes: test_delete_buffer_with_the_stores_to_it "
        "test_delete_buffer_refuses_what_is_read",
    ),
    primitive(
        "reuse_buffer",
        "A buffer takes the memory of another of the same type and size that is dead.",
        "schedule/buffers/test_lifetimes: "
        "test_reuse_buffer_of_a_buffer_that_is_not_needed_any_more "
        "test_reuse_buffer_refuses_a_buffer_that_is_read_later "
        "test_reuse_buffer_refuses_other_types_and_scopes",
    ),
    primitive(
        "resize_dim",
        "An axis gets another size and offset, within which all accesses lie; or with fold "
        "becomes circular, where no access goes back further than its size.",
        "schedule/buffers/test_dimensions: test_resize_dim_drops_elements_that_nothing_accesses "
        "test_resize_dim_folds_a_line_into_a_circular_buffer "
        "test_resize_dim_refuses_a_window_that_is_too_small "
        "test_resize_dim_does_not_fold_what_is_read_after_the_loop "
        "test_resize_dim_offset_uses_loops_around_the_allocation_alone "
        "test_resize_dim_needs_a_size_an_axis_and_a_private_buffer",
    ),
    primitive(
        "expand_dim",
        "A buffer gets an axis and an index for it, which exists and lies in its size everywhere.",
        "schedule/buffers/test_dimensions: test_expand_dim_gives_each_iteration_its_own "
        "test_expand_dim_refuses_by_size_scope_range_and_values",
    ),
    primitive(
        "rearrange_dim",
        "The axes of a buffer change their order; a call that is given it remains one of its "
        "definition.",
        "schedule/buffers/test_dimensions: test_rearrange_dim "
        "test_a_call_with_a_window_along_one_axis_follows "
        "test_a_call_with_a_window_along_both_axes_is_refused",
    ),
    primitive(
        "divide_dim",
        "An axis whose extent c divides becomes two.",
        "schedule/buffers/test_dimensions: test_divide_dim test_axes_with_separators_stay",
    ),
    primitive(
        "mult_dim",
        "Two axes become one; a call that is given the buffer remains one of its definition.",
        "schedule/buffers/test_dimensions: "
        "test_mult_dim test_mult_dim_refuses_elements_that_would_meet "
        "test_a_call_with_a_window_along_one_axis_follows "
        "test_a_call_with_a_window_along_both_axes_is_refused "
        "test_a_call_whose_elements_would_be_apart_is_refused",
    ),
    primitive(
        "unroll_buffer",
        "A buffer becomes one for each position on an axis along which all indices are constant.",
        "schedule/buffers/test_dimensions: test_unroll_buffer_makes_a_buffer_of_each_position "
        "test_unroll_buffer_refuses_a_position_outside",
    ),
    primitive(
        "bind_expr",
        "An expression is computed into a new buffer, and read from it wherever it stood.",
        "schedule/statements/test_expressions: test_bind_expr "
        "test_bind_expr_of_all_equal_expressions test_bind_expr_of_the_first_use_alone "
        "test_bind_expr_refuses_what_is_written_before_its_last_use",
    ),
    Row(
        "stage_mem",
        "Statements work on a copy of a window of a buffer, outside of which they touch nothing; "
        "the window is stated, or the smallest one.",
        ("schedule.stage_mem", "schedule.stage_window"),
        (
            "schedule/buffers/test_memory: test_stage_mem_of_an_output "
            "test_stage_mem_of_an_input_loads_only "
            "test_stage_mem_loads_first_what_is_not_stored_first "
            "test_stage_mem_refuses_indices_that_vary_beyond_the_dims",
            "schedule/buffers/test_staging: test_a_window_has_the_neighbours_and_nothing_outside "
            "test_what_is_stored_first_is_not_copied_in test_refusals "
            "test_a_larger_window_is_stated test_an_axis_of_one_index_is_none_of_the_copy "
            "test_blocks_and_statements_without_a_name_are_staged "
            "test_a_window_that_is_too_small_is_refused_with_an_index "
            "test_a_window_is_stated_over_the_loops_around "
            "test_a_stated_window_does_not_copy_padding_that_nothing_may_touch",
            REFUSED,
            RANDOM,
        ),
    ),
)

SIMPLIFICATION = (
    primitive(
        "simplify",
        "Arithmetic is simplified in the whole kernel, and decided branches are resolved.",
        "schedule/conditions/test_conditions: "
        "test_simplify test_simplify_is_exact_for_loops_that_start_later",
        "system/fuzz/test_schedule_fuzz: test_random_schedules",
    ),
    primitive(
        "eliminate_dead_code",
        "Loops that never run and branches that are decided go.",
        "schedule/conditions/test_conditions: test_eliminate_dead_code "
        "test_eliminate_dead_code_in_one_place_only "
        "test_eliminate_dead_code_refuses_a_loop_that_runs",
    ),
    primitive(
        "rewrite_expr",
        "An expression becomes another one that is equal where it stands.",
        "schedule/statements/test_expressions: "
        "test_rewrite_expr_of_an_index_a_bound_and_a_condition "
        "test_rewrite_expr_knows_the_context test_rewrite_expr_to_what_is_known_to_be_there "
        "test_rewrite_expr_refuses_other_types_and_places "
        "test_rewrite_expr_refuses_loads_that_leave_the_buffer",
    ),
    primitive(
        "merge_writes",
        "Two writes to one element become one, in four cases; the second does not read it.",
        "schedule/statements/test_writes: test_merge_writes test_merge_writes_refuses",
    ),
    primitive(
        "inline_window",
        "The name of a window of a buffer is replaced by the buffer.",
        "schedule/buffers/test_named_windows: test_a_window_is_a_name_for_elements_of_a_buffer "
        "test_inline_window test_windows_survive_other_steps",
    ),
    primitive(
        "inline_assign",
        "What was stored stands where it is loaded, behind a store that nothing overwrites first.",
        "schedule/statements/test_writes: "
        "test_inline_assign test_inline_assign_up_to_a_later_write "
        "test_inline_assign_refuses test_inline_assign_refuses_operands_that_change "
        "test_inline_assign_refuses_values_that_are_read_elsewhere",
    ),
)

CHECKED_LATER = (
    primitive(
        "set_memory",
        "A buffer lies in another memory; before code is generated, its accesses are checked "
        "against the definition of that memory, and callers against callees.",
        "schedule/buffers/test_annotations: test_set_memory "
        "test_what_a_memory_cannot_do_is_found_before_code_is_generated "
        "test_set_memory_refuses_by_memory_and_threads",
        "schedule/facts/test_memory_spaces: test_set_memory_to_a_memory_of_the_user "
        "test_what_the_memory_allows test_what_it_does_not_allow "
        "test_capacity_is_of_buffers_that_exist_at_once",
        "kernels/recipes/schedules/test_on_host: "
        "test_memories_are_checked_before_code_is_generated",
    ),
    primitive(
        "set_precision",
        "A buffer has another element type; types are checked before code is generated.",
        "schedule/buffers/test_annotations: test_set_precision_to_a_type_that_holds_every_value "
        "test_set_precision_rounds_only_where_it_may "
        "test_set_precision_refuses_types_and_reductions",
        "tir/checks/test_verify: test_broken_types",
    ),
    primitive(
        "parallelize_loop",
        "A loop is marked as parallel; its iterations have no dependences.",
        "schedule/loops/test_loops: test_loops_at_once test_loops_at_once_refuse_lanes_that_meet "
        "test_reductions_meet_in_lanes_but_not_in_threads",
        "schedule/facts/test_soundness: test_written_loop_kinds_are_proven",
    ),
    primitive(
        "set_window",
        "A parameter is a window of a buffer instead of a dense one; shapes of windows are "
        "checked before code is generated.",
        "schedule/buffers/test_named_windows: test_set_window_of_a_callee_permits_strides "
        "test_set_window_of_a_kernel_that_nobody_calls_is_found_before_code_is_generated "
        "test_set_window_refuses_what_is_no_parameter "
        "test_a_window_of_another_shape_does_not_fit",
    ),
)

ACCELERATOR = (
    "kernels/recipes/schedules/test_on_host: test_a_matmul_on_an_accelerator_by_primitives_alone "
    "test_it_runs_natively_by_the_definitions_of_its_instructions"
)

CONFIGURATION = (
    primitive(
        "bind_config",
        "An expression is read from a field of configuration state that nothing reads later.",
        "schedule/calls/test_configuration: test_bind_config test_bind_config_of_a_whole_loop "
        "test_bind_config_refuses test_bind_config_refuses_a_field_that_is_read_behind",
        ACCELERATOR,
    ),
    primitive(
        "delete_config",
        "A write to configuration state that nothing reads later goes.",
        "schedule/calls/test_configuration: test_delete_config_of_a_write_that_nothing_reads "
        "test_delete_config_of_a_redundant_write_in_a_loop test_delete_config_refuses "
        "test_a_schedule_tells_which_fields_may_differ",
        ACCELERATOR,
    ),
    primitive(
        "write_config",
        "A write to configuration state that nothing reads later is put in a gap.",
        "schedule/calls/test_configuration: test_write_config_in_a_gap "
        "test_write_config_before_another_write_changes_no_state "
        "test_write_config_of_what_the_field_holds test_write_config_refuses "
        "test_call_eqv_asks_whether_the_caller_reads_what_may_differ",
        ACCELERATOR,
    ),
)

PRIMITIVES = (
    *LOOPS,
    *STATEMENTS_AND_SCOPES,
    *CALLS,
    *BUFFERS,
    *SIMPLIFICATION,
    *CHECKED_LATER,
    *CONFIGURATION,
)
