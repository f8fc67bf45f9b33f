"""The rows of docs/rfc77.md about the IR, analyses, padding, the graph, and bound inference."""

from __future__ import annotations

from support.rfc77.row import Row

IR = (
    Row(
        "A1",
        "A buffer gets a layout by a map of its indices, and its padding one of four meanings: "
        "never accessed, undefined, a constant, a function of the place. For inputs, outputs and "
        "caches; transformations of transformations keep each padding; offsets pad in front.",
        ("schedule.transform_layout", "schedule.PadFunction"),
        (
            "schedule/buffers/test_layouts: test_transform_layout_of_an_output "
            "test_transform_layout_of_an_input "
            "test_transform_layout_with_a_function_of_the_place "
            "test_transform_layout_with_an_offset_pads_in_front "
            "test_a_pad_function_may_return_an_index_expression "
            "test_a_pad_function_that_fits_no_element_is_refused "
            "test_a_layout_function_takes_its_indices_by_name_or_all_at_once "
            "test_a_chain_of_layouts_keeps_each_padding test_transform_layout_refuses",
            "schedule/facts/test_padding: test_c3_an_internal_padded_copy",
            "system/pages/test_rfc77_rows: test_a1_a_layout_with_each_kind_of_padding "
            "test_a1_transformations_of_transformations_and_offsets",
            "system/fuzz/test_schedule_fuzz: test_random_schedules",
        ),
    ),
    Row(
        "A2",
        "A buffer flattens to one axis more than it has separators; flattening again changes "
        "nothing; a target whose memory lacks the rank says so.",
        ("schedule.flatten_buffer", "codegen.emit_ir"),
        (
            "schedule/buffers/test_flattening: test_a2_each_group_of_axes_becomes_one "
            "test_an_access_that_leaves_its_axis_is_refused "
            "test_a_target_that_lacks_the_rank_says_so",
        ),
    ),
    Row(
        "A3",
        "A copy of an input or output outside all loops, whose layout changes while the interface "
        "does not.",
        ("schedule.cache_read", "schedule.cache_write"),
        (
            "schedule/buffers/test_memory: test_cache_read_and_write "
            "test_caches_are_for_parameters_without_padding",
            "schedule/facts/test_padding: test_c3_an_internal_padded_copy",
            "system/pages/test_rfc77_rows: "
            "test_a3_a_copy_changes_its_layout_and_the_interface_stays",
        ),
    ),
    Row(
        "A4",
        "`assume` states what memory holds and `undef` is any value; a pass removes each, and the "
        "verifier refuses a kernel in which one is left.",
        (
            "kernels.lowering.remove_assume",
            "kernels.lowering.remove_undef",
            "tir.verify",
        ),
        (
            "tir/meaning/test_interpret: test_assumptions_are_checked",
            "schedule/facts/test_soundness: test_an_assumption_that_no_value_makes_true_is_refused "
            "test_assumptions_that_contradict_each_other_are_refused",
            "lower/test_lower: test_assumptions_go_with_the_loops_that_held_them "
            "test_stores_of_undef_go_and_the_others_stay "
            "test_storing_a_value_of_undef_leaves_anything test_a_branch_on_undef_is_refused",
            "layout/test_evaluator: test_undef_is_poison_and_a_load_of_undef_is_not",
            "tir/checks/test_verify: test_what_is_legal_at_which_stage",
            "system/pages/test_rfc77_rows: test_a4_assumptions_and_undef_are_used_and_then_removed",
        ),
    ),
    Row(
        "A5",
        "Loops run in the order in which a buffer lies in memory, an output or an input; the "
        "initialization of a reduction is split off where it must be; a convolution that adds to "
        "its last result is refused by its dependence.",
        ("schedule.sequential_buffer_access",),
        (
            "schedule/buffers/test_layouts: test_sequential_buffer_access "
            "test_sequential_buffer_access_over_a_turned_input "
            "test_sequential_buffer_access_refuses "
            "test_the_last_of_several_writers_is_part_of_the_meaning "
            "test_a5_the_cumulative_convolution_is_refused_by_its_dependence "
            "test_a5_an_initialization_is_split_off",
        ),
    ),
    Row(
        "A6",
        "A compiled module tells the logical and the physical shape of each tensor; a padded "
        "buffer shares the memory of a flat one where nobody reads or writes its padding.",
        (
            "api.executable.Executable.layouts",
            "schedule.elide_padding",
            "schedule.parameter_layouts",
        ),
        (
            "inspect/test_report: test_shapes_are_logical_and_boxes_hold_them",
            "schedule/user/test_parameter_layouts: "
            "test_a6_a_compiled_schedule_tells_the_logical_shape_of_its_parameters",
            "schedule/padding/test_elided_padding: "
            "test_a6_a_copy_whose_padding_nobody_touches_is_flat "
            "test_a6_a_parameter_becomes_what_it_was_before_it_was_transformed "
            "test_a6_flat_memory_is_what_lies_behind_the_padding_in_front "
            "test_one_piece_rows_that_are_padded_lie_apart "
            "test_untouched_a_kernel_over_the_whole_box_reads_and_writes_its_padding",
            "kernels/recipes/test_scheduled: "
            "test_a6_a_tensor_whose_padding_nobody_touches_needs_no_conversion "
            "test_a6_padding_that_a_neighbour_needs_is_not_elided "
            "test_a6_one_side_may_be_elided_and_the_other_not "
            "test_a6_rows_that_are_padded_in_memory_are_converted "
            "test_a6_the_executable_tells_both_shapes",
            "schedule/test_primitives: test_primitive_on_random_kernels",
        ),
    ),
)

ANALYSES = (
    Row(
        "B1",
        "The elements of a buffer that a kernel touches, and the condition under which it does.",
        ("effects.domain_touched", "schedule.Schedule.domain_touched"),
        (
            "effects/test_touched: test_b1_the_predicate_is_part_of_the_answer "
            "test_b1_what_data_decide_may_be_written_and_need_not "
            "test_b1_refuses_a_buffer_that_is_not_there",
        ),
    ),
    Row(
        "B2",
        "Statements without an effect go: stores and blocks that are overwritten unread, storing "
        "back what was read, storing a value that is known to be there.",
        ("schedule.remove_no_op",),
        (
            "schedule/conditions/test_no_ops: test_b2_a_store_overwritten_unread "
            "test_b2_a_block_overwritten_unread "
            "test_b2_a_block_that_is_overwritten_in_part_stays "
            "test_b2_storing_back_what_was_read test_b2_storing_a_value_known_to_be_there "
            "test_b2_an_assumption_of_zero_says_nothing_of_the_sign_of_a_float",
            "effects/test_effects: test_answers_agree_with_enumeration",
        ),
    ),
    Row(
        "B3",
        "Equal branches become one; so do neighbours under equal or complementary conditions, "
        "however these are written, in the first form; never across a write of what a condition "
        "reads; what is assumed counts until a write.",
        ("schedule.merge_conditions", "schedule.replace_known_loads"),
        (
            "schedule/conditions/test_branches: test_b3_equal_conditions_however_they_are_written "
            "test_b3_complementary_conditions_keep_the_first_form "
            "test_b3_conditions_that_differ_at_one_point_stay test_b3_equal_branches "
            "test_b3_never_across_data_written_between "
            "test_b3_a_constant_that_was_stored_until_it_is_overwritten "
            "test_b3_a_constant_that_is_assumed",
            "effects/test_equal_values: test_a_write_ends_an_assumption",
            "schedule/conditions/test_conditions: test_a_fact_ends_where_the_buffer_is_written",
        ),
    ),
    Row(
        "B4",
        "Conditions, selects, boolean expressions and let bindings move outwards, those of a "
        "condition alone too, and never above a binding that they use.",
        (
            "schedule.bind_let",
            "schedule.inline_let",
            "schedule.lift_conditions",
            "schedule.lift_lets",
            "schedule.lift_scope",
        ),
        (
            "schedule/conditions/test_conditions: test_lift_conditions "
            "test_lift_conditions_leaves_what_it_must",
            "schedule/statements/test_scopes: test_lift_scope_takes_a_condition_out_of_a_loop "
            "test_lift_scope_refuses_a_condition_that_the_loop_changes",
            "schedule/statements/test_lets: "
            "test_b4_the_condition_of_an_if_becomes_a_let_and_leaves_the_loop "
            "test_b4_a_select_and_a_part_of_a_boolean_expression_become_lets "
            "test_b4_a_let_leaves_conditions_blocks_and_lets "
            "test_b4_no_let_moves_above_one_that_it_uses "
            "test_b4_a_condition_leaves_a_let_that_it_does_not_use "
            "test_b4_a_condition_on_indices_leaves_a_let_and_the_loop_around "
            "test_b4_all_lets_leave_the_loops_that_they_do_not_use "
            "test_b4_only_lets_that_a_condition_needs_move test_inline_let_is_the_way_back",
            "schedule/test_primitives: test_primitive_on_random_kernels",
        ),
    ),
    Row(
        "B5",
        "Conditions become bounds of loops, equalities among them; or a loop is partitioned where "
        "its conditions change, without the parts that never run.",
        ("schedule.restrict_loop", "schedule.partition_loop"),
        (
            "schedule/conditions/test_extents: "
            "test_b5_an_equality_and_a_bound_become_one_loop_of_two "
            "test_b5_equalities_are_exact test_b5_a_loop_is_partitioned_where_conditions_change "
            "test_b5_a_nest_is_partitioned_under_a_condition_on_both_loops "
            "test_b5_each_part_keeps_what_is_open_of_a_conjunction "
            "test_b5_a_loop_that_is_not_worth_it_is_refused",
        ),
    ),
    Row(
        "B6",
        "Neighbouring loops become one where no dependence forbids it: with one that overwrites "
        "or reads the element before, and not with one that reads the element behind.",
        ("schedule.fuse",),
        (
            "schedule/loops/test_loops: test_fuse test_fuse_refuses_a_read_of_the_next_iteration",
            "system/pages/test_rfc77_rows: "
            "test_b6_neighbouring_loops_become_one_where_no_dependence_forbids_it",
        ),
    ),
    Row(
        "B7",
        "A branch goes where the iterations that it excludes would have no effect: overwritten "
        "later, freed unread, the same value; a load that would leave its buffer takes an index "
        "modulo the extent. The reverse excludes iterations without an effect.",
        (
            "schedule.remove_branching_through_overcompute",
            "schedule.remove_overcompute_through_branching",
        ),
        (
            "schedule/padding/test_overcompute: test_b7_overwritten_later_by_any_statement "
            "test_b7_overwritten_in_a_later_iteration test_b7_freed_unread "
            "test_b7_the_same_value test_b7_an_index_that_would_leave_the_buffer_is_reduced "
            "test_b7_a_store_is_not_wrapped test_b7_overcompute_removed_by_branching "
            "test_b7_what_has_an_effect_is_not_excluded",
        ),
    ),
)

PADDING = (
    Row(
        "C1",
        "Never write it: filling 14 elements of [4, 4] keeps its predicate.",
        ("schedule.transform_layout",),
        ("schedule/facts/test_padding: test_c1_never_write_it",),
    ),
    Row(
        "C2",
        "Never read it: the sum of 14 elements of [4, 4] keeps its predicate.",
        ("schedule.transform_layout",),
        ("schedule/facts/test_padding: test_c2_never_read_it",),
    ),
    Row(
        "C3",
        "An internal copy padded with zeros: the sum loses its branch, and the interface stays.",
        (
            "schedule.cache_read",
            "schedule.sequential_buffer_access",
            "schedule.remove_branching_through_overcompute",
        ),
        ("schedule/facts/test_padding: test_c3_an_internal_padded_copy",),
    ),
    Row(
        "C4",
        "The producer writes what the consumer starts from, in one store with a select, and the "
        "consumer has no branch; a product wants ones where a sum wants zeros.",
        ("schedule.absorb_padding", "schedule.remove_branching_through_overcompute"),
        (
            "schedule/facts/test_padding: test_c4_the_producer_writes_the_default_of_the_next "
            "test_c4_a_product_wants_ones",
            "flow/test_planner: test_the_producer_writes_what_a_reduction_demands",
        ),
    ),
    Row(
        "C5",
        "A convolution of width 3 with padding 2, [16] → [18] → [20], all as [3, 8]: no branch is "
        "left, an index is reduced modulo 3, and its output's padding is zero by itself, so that "
        "it chains into itself. In int32; in float32 for a finite filter, else refused.",
        (
            "schedule.remove_branching_through_overcompute",
            "schedule.sequential_buffer_access",
            "schedule.assume_finite",
            "schedule.derive_padding",
        ),
        (
            "schedule/padding/test_derived_padding: "
            "test_c5_no_branch_is_left_and_nothing_writes_the_padding "
            "test_c5_what_one_convolution_leaves_is_what_the_next_assumes "
            "test_c5_chained_over_any_length_that_fits test_c5_natively "
            "test_c5_the_halo_is_checked_where_that_is_asked_for "
            "test_c5_in_floats_the_filter_must_be_finite "
            "test_neutral_a_window_over_the_last_row_reaches_the_first",
            "schedule/test_primitives: test_primitive_on_random_kernels",
            "schedule/facts/test_padding: test_c5_a_zero_halo_frees_the_window_of_its_branch "
            "test_c5_in_floats_the_filter_must_be_finite",
        ),
    ),
    Row(
        "C6",
        "Elementwise over undefined padding: one loop over all 16 places.",
        ("schedule.remove_branching_through_overcompute", "schedule.mult_loops"),
        ("schedule/facts/test_padding: test_c6_elementwise_over_the_padding",),
    ),
    Row(
        "C7",
        "Rows padded by anything and columns by zero, in one buffer: the sums over rows lose both "
        "branches.",
        ("schedule.transform_layout", "schedule.remove_branching_through_overcompute"),
        ("schedule/facts/test_padding: test_c7_two_semantics_in_one_buffer",),
    ),
    Row(
        "split 1",
        "A function cut in two, nothing stated: the writer may not write the padding.",
        ("schedule.remove_branching_through_overcompute",),
        ("schedule/facts/test_padding: test_split_1_without_a_statement_neither_side_changes",),
    ),
    Row(
        "split 2",
        "Nothing stated: the reader may not read the padding.",
        ("schedule.remove_branching_through_overcompute",),
        ("schedule/facts/test_padding: test_split_2_nor_may_the_reader_rely_on_anything",),
    ),
    Row(
        "split 3",
        "Undefined padding stated: the writer may write anything, the reader may not sum it.",
        ("schedule.remove_branching_through_overcompute",),
        (
            "schedule/facts/test_padding: "
            "test_split_3_undef_lets_the_writer_write_and_not_the_reader_sum",
        ),
    ),
    Row(
        "split 4",
        "Zeros written and assumed: the reader may sum over them.",
        ("schedule.absorb_padding", "schedule.remove_branching_through_overcompute"),
        ("schedule/facts/test_padding: test_split_4_zeros_written_and_assumed_let_the_reader_sum",),
    ),
)

SCHEDULED = "kernels/recipes/test_scheduled"

GRAPH = (
    Row(
        "D1",
        "Doubling, adding one, doubling, each over [14] as [4, 4] with zeros: the pair between "
        "goes, the kernel between is rewritten over [4, 4] and only writes its padding anew, and "
        "the ends stay. With `exp` between likewise.",
        ("schedule.lift_stages", "schedule.state_padding", "flow.plan_layouts"),
        (
            f"{SCHEDULED}: test_d1_the_inner_pair_goes_and_only_the_padding_is_fixed "
            "test_d1_facts_go_through_kernels_without_a_schedule",
        ),
    ),
    Row(
        "D2",
        "Six forms of adding one, by what they state of padding, are six variants; which pairs of "
        "neighbours cancel differs, and the solver chooses.",
        ("graph.OperatorGraph.offer", "flow.plan_layouts"),
        (
            f"{SCHEDULED}: test_d2_each_variant_of_six_cancels_other_pairs "
            "test_d2_each_variant_computes_the_same test_d2_the_solver_chooses_among_the_variants",
        ),
    ),
    Row(
        "D3",
        "Two chained convolutions with padding 2, [16] → [18] → [20]: one pad at the start and "
        "one crop at the end are left, in int32, or with finite filters.",
        ("schedule.lift_stages", "schedule.derive_padding", "flow.plan_layouts"),
        (
            f"{SCHEDULED}: test_d3_pads_and_crops_of_two_convolutions_become_one_of_each "
            "test_d3_in_floats_the_filter_must_be_known_to_be_finite "
            "test_d3_a_filter_given_at_run_time_may_be_stated_to_be_finite",
        ),
    ),
    Row(
        "D4",
        "Pairs cancel back to back, through kernels that take any layout, and through kernels "
        "with several inputs up to a constant; the optimum is global, and greedy motion is worse.",
        ("flow.plan_layouts", "convert.apply_plan"),
        (
            f"{SCHEDULED}: test_d4_neighbours_cancel_back_to_back "
            "test_d4_layouts_go_through_kernels_with_several_inputs_up_to_a_constant "
            "test_d4_kernels_that_do_not_care_follow",
            "flow/test_solve: "
            "test_greedy_motion_is_worse_where_many_inputs_meet_and_many_outputs_part "
            "test_no_greedy_plan_is_cheaper",
        ),
    ),
    Row(
        "D5",
        "A product of matrices of 127 by blocks of 32: padded with zeros, without a branch; and "
        "with partitioned loops instead. Both equal numpy.",
        ("schedule.transform_layout", "schedule.divide_loop"),
        (
            f"{SCHEDULED}: test_d5_a_matmul_in_blocks_that_do_not_divide_it",
            "system/pages/test_kernels_page: test_schedules_by_hand_compute_what_numpy_does",
        ),
    ),
    Row(
        "D6",
        "An operator has several layouts, and the search says what each alternative would cost, "
        "what the plan costs, and what the next best one does.",
        ("flow.plan_layouts",),
        (
            f"{SCHEDULED}: test_d6_the_search_prices_all_that_was_offered",
            "inspect/test_explain: test_the_next_best_plan_says_what_differs "
            "test_a_plan_says_what_other_edge_types_of_an_edge_would_cost",
        ),
    ),
)

BOUNDS = (
    Row(
        "F",
        "One pass from the outputs to the inputs gives each stage the elements that it must "
        "compute and each loop its range, through divided and joined loops and attached stages; "
        "the document's examples 1 to 5 as printed, example 6 and the tails of splits exactly, "
        "disjoint parts apart, in the smallest boxes.",
        ("schedule.infer_bounds", "schedule.Schedule.bounds", "schedule.compute_at"),
        (
            "schedule/facts/test_bound_inference: test_f_example_1_all_elements_are_needed "
            "test_f_example_2_one_element_at_the_inner_axis "
            "test_f_example_3_a_row_at_the_outer_axis "
            "test_f_example_4_a_loop_that_the_indices_do_not_use_is_in_the_path "
            "test_f_example_5_after_a_split test_f_example_6_a_split_undoes_the_fusion "
            "test_f_example_6_by_a_factor_that_does_not_divide_the_exact_set "
            "test_the_tail_of_a_split_ends_with_the_extent "
            "test_two_disjoint_corners_do_not_cost_the_square test_bounds_equal_enumeration "
            "test_attached_stages_compute_the_same",
            "schedule/stages/test_attach: test_two_corners_are_two_nests "
            "test_a_blur_takes_its_neighbours_at_each_element",
            "system/pages/test_rfc77_rows: "
            "test_f_a_stage_is_computed_where_it_is_used_over_the_elements_that_are",
        ),
    ),
)
