"""Processes that try damaged models, and how each of them ended."""

from dataclasses import dataclass

from support.fuzz.fuzz_process import Child

SECONDS = 30.0
"""For one mutant."""


@dataclass(frozen=True)
class End:
    """How a mutant ended, and what is wrong with that; empty where nothing is."""

    how: str
    wrong: str = ""


class MutantProcess:
    """A process that tries mutants of a kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._child = Child("support.mutants.mutants", kind)

    def attempt(self, seed: int) -> End:
        """Try one mutant."""
        at_peer = False
        line = self._child.send(str(seed), SECONDS)
        while True:
            if at_peer and not line:
                return End("ran, and onnxruntime hangs or dies")
            if line is None:
                return self._ended(seed, f"no end after {SECONDS} s")
            if not line:
                return self._ended(seed, f"the process died: {self._child.last_words()}")
            _, what, *rest = line.rstrip("\n").split(" ", 2)
            text = " ".join(rest)
            if what != "peer":
                return (
                    End("wrong", f"seed {seed}: {text}") if what == "wrong" else End(_label(text))
                )
            at_peer = True
            line = self._child.line(SECONDS)

    def _ended(self, seed: int, how: str) -> End:
        """What ended the process is onnxruntime's own where it dies of the whole model too.

        Without a fallback, and of saved models, nothing is; and where onnxruntime runs alone, there
        is nobody else to ask.
        """
        is_alone = self._kind.endswith(".peer")
        if seed % 2 == 0 and self._kind != "saved" and not is_alone:
            alone = MutantProcess(f"{self._kind}.peer")
            try:
                if alone.attempt(seed).wrong:
                    return End("dead, and onnxruntime alone dies too")
            finally:
                alone.close()
        return End("dead", f"seed {seed}: {how}")

    def close(self) -> None:
        self._child.close()


def _label(text: str) -> str:
    """The kind of an end, without what belongs to one mutant."""
    return text.partition(":")[0].partition(" after a change")[0]
