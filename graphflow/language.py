"""The names of the kernel language, for annotations of functions under `@graphflow.kernel`.

The body of such a function is read and never run, so these names do nothing; they let Python
evaluate annotations such as `x: f32[14]`, and let type checkers know them.
"""

from __future__ import annotations

from typing import Any


class Name:
    """A word of the kernel language: an element type, `index`, or what stands around a type."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __getitem__(self, _: Any) -> Name:
        return self

    def __call__(self, *_: Any, **__: Any) -> Name:
        return self

    def __repr__(self) -> str:
        return self.word


f32, f64 = Name("f32"), Name("f64")
i8, i16, i32, i64 = Name("i8"), Name("i16"), Name("i32"), Name("i64")
u8, u16, u32, u64 = Name("u8"), Name("u16"), Name("u32"), Name("u64")
f16, bf16 = Name("f16"), Name("bf16")
out, inout = Name("out"), Name("inout")
buffer, window, index = Name("buffer"), Name("window"), Name("index")

__all__ = [
    "bf16", "buffer", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "index", "inout", "out",
    "u8", "u16", "u32", "u64", "window",
]  # fmt: skip
