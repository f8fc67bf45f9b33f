"""Fuzzing of expansions: results agree with onnxruntime's where channels are moved and scaled."""

from support.fuzz.movement_fuzz import agrees
from support.models.movement_models import random_moving_model


def test_random_models_that_move_and_scale_channels() -> None:
    assert sum(agrees(random_moving_model(seed), seed) for seed in range(8)) > 6
