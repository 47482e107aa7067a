"""The facts of a GPU that kernels, checks and compilers share, in one record."""

from __future__ import annotations

from palladio.base.dataclass import dataclass


@dataclass(frozen=True)
class Device:
    """A kind of GPU. Sources: CUDA C++ Programming Guide, compute capability 9.0; PTX ISA, wgmma, TMA and setmaxnreg.

    Fields:
        name: the card.
        architecture: as compilers name it.
        multiprocessors: the card's number of them; each holds one block that uses all of its shared memory.
        shared_bytes: shared memory that a block may have.
        held_blocks, held_warpgroups: blocks, and their warpgroups, that a multiprocessor holds at once.
        held_shared_bytes, reserved_shared_bytes: its shared memory, and what the system takes of it for each block.
        shared_alignment: swizzled buffers in shared memory begin at multiples of this many bytes.
        copy_alignment: other buffers do at multiples of this many, where bulk tensor copies reach them.
        barrier_bytes: the bytes of an mbarrier in shared memory.
        named_barriers: the hardware's barriers of a block.
        warp_threads, warpgroup_threads: hardware threads of a warp, and of a warpgroup.
        lane_registers: registers that the warpgroups of a block share, for each of a warpgroup's threads.
        thread_registers: registers of one thread, at most.
        register_unit: `set_max_registers` takes a multiple of it.
        least_registers: what `set_max_registers` leaves a thread, at least.
        wgmma_rows: rows of a left operand in one instruction.
        wgmma_columns, most_wgmma_columns: columns of a right operand: a multiple of the first up to the second.
        wgmma_depth_bytes: bytes of k in one instruction.
        swizzles: the row lengths in bytes that can be swizzled.
        tma_box: elements of a TMA box along one axis, at most.
        tma_alignment: the multiple of bytes of the base and the strides of what TMA copies.
    """

    name: str
    architecture: str
    multiprocessors: int
    shared_bytes: int
    held_blocks: int
    held_warpgroups: int
    held_shared_bytes: int
    reserved_shared_bytes: int
    shared_alignment: int
    copy_alignment: int
    barrier_bytes: int
    named_barriers: int
    warp_threads: int
    warpgroup_threads: int
    lane_registers: int
    thread_registers: int
    register_unit: int
    least_registers: int
    wgmma_rows: int
    wgmma_columns: int
    most_wgmma_columns: int
    wgmma_depth_bytes: int
    swizzles: tuple[int, ...]
    tma_box: int
    tma_alignment: int

    def registers_at_launch(self, warpgroups: int) -> int:
        """The initial registers of each thread in a block of this many warpgroups.

        They are an equal part of all, in the unit of `set_max_registers`, at most the limit of one thread (PTX ISA,
        "setmaxnreg"). The warpgroups of a block share only their initial registers: 3 * 168 = 504 of 512.
        """
        share = self.lane_registers // max(1, warpgroups)
        return min(self.thread_registers, share // self.register_unit * self.register_unit)


H100_SXM = Device(
    name="H100 SXM",
    architecture="sm_90a",
    multiprocessors=132,
    shared_bytes=232_448,  # 227 KiB
    held_blocks=32,
    held_warpgroups=16,  # 2,048 threads
    held_shared_bytes=233_472,  # 228 KiB
    reserved_shared_bytes=1024,
    shared_alignment=1024,
    copy_alignment=128,
    barrier_bytes=8,
    named_barriers=16,
    warp_threads=32,
    warpgroup_threads=128,
    lane_registers=512,  # 65,536 over 128
    thread_registers=256,
    register_unit=8,
    least_registers=24,
    wgmma_rows=64,
    wgmma_columns=8,
    most_wgmma_columns=256,
    wgmma_depth_bytes=32,
    swizzles=(32, 64, 128),
    tma_box=256,
    tma_alignment=16,
)
"""The card that the simulator models and that kernels are checked for while they are traced."""
