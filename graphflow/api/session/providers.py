"""Providers, loggers and versions: what scripts ask onnxruntime's module for.

What always holds: the one provider is the processor, as in onnxruntime's package without others;
providers that are not there are named in a warning and left out, as there.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from graphflow.base.version import VERSION

PROVIDER = "CPUExecutionProvider"
"""onnxruntime's name of the processor."""

Providers: TypeAlias = "Sequence[str | tuple[str, dict[Any, Any]]]"

_CALLER = 3
"""The frame of a session's caller, counted from the function that warns."""


def get_available_providers() -> list[str]:
    """The providers that a session may have."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """The providers that there are in any build."""
    return [PROVIDER]


def get_device() -> str:
    """The kind of device that sessions run on."""
    return "CPU"


def get_version_string() -> str:
    """graphflow's version."""
    return VERSION


def set_default_logger_severity(severity: int) -> None:
    """Has no effect: graphflow logs nothing; GRAPHFLOW_DEBUG says what it prints."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Has no effect: graphflow logs nothing; GRAPHFLOW_DEBUG says what it prints."""


def set_seed(seed: int) -> None:
    """Has no effect on kernels, as none draws random numbers; onnxruntime runs nodes that do."""


def disable_telemetry_events() -> None:
    """Has no effect: graphflow sends nothing."""


def enable_telemetry_events() -> None:
    """Has no effect: graphflow sends nothing."""


def check_providers(
    providers: Providers | None, provider_options: Sequence[Mapping[Any, Any]] | None
) -> None:
    """Check the arguments of a session, with the errors and warnings of onnxruntime."""
    if providers is None:
        return
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is not None:
        _check_provider_options(providers, provider_options)
    for provider in providers:
        named = provider if isinstance(provider, tuple) else (provider, {})
        if len(named) != 2 or not isinstance(named[0], str) or not isinstance(named[1], Mapping):
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        if named[0] != PROVIDER:
            warnings.warn(
                f"Specified provider '{named[0]}' is not in available provider names. Available "
                f"providers: '{PROVIDER}'",
                stacklevel=_CALLER,
            )


def _check_provider_options(
    providers: Providers, provider_options: Sequence[Mapping[Any, Any]]
) -> None:
    if not isinstance(provider_options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if len(providers) != len(provider_options):
        raise ValueError(
            "'providers' and 'provider_options' should be the same length if both are given."
        )
    if not all(isinstance(provider, str) for provider in providers):
        raise ValueError(
            "Only string values for 'providers' are supported if 'provider_options' is given."
        )
    if not all(isinstance(options, Mapping) for options in provider_options):
        raise ValueError("'provider_options' values must be dicts.")
