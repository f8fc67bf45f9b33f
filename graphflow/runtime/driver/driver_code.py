"""The native driver's way from LLVM IR to object code.

Only a process without an object of the driver needs this module, and with it LLVM; saved programs
bring one.
"""

from __future__ import annotations

from llvmlite import binding as llvm

from graphflow.processes.uninterrupted import uninterrupted


@uninterrupted
def compiled_driver(text: str) -> bytes:
    """IR as an object for every x86-64 processor, with stack slots promoted to registers."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc="pic", codemodel="small"
    )
    # Local variables → SSA values; nothing else is changed.
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.run(module, builder)
    code: bytes = machine.emit_object(module)
    return code
