"""A made-up run to draw: a matmul with two compute warpgroups, one for memory, and a ring of stages."""

from __future__ import annotations

from palladio.base.locations import Location
from palladio.machine.timeline.cost import H100
from palladio.machine.timeline.records import Edge, Lane, Span
from palladio.machine.timeline.timeline import Timeline


def line(number: int) -> Location:
    return Location("/somewhere/kernels/matmul.py", number, number, 4, 20, "matmul")


def warp_specialised(*, blocks: int = 1, steps: int = 8, stages: int = 4) -> Timeline:
    spans: list[Span] = []
    edges: list[Edge] = []
    for block in range(blocks):
        _block(f"block ({block}, 0)", steps, stages, spans, edges)
    return Timeline(spans, edges, "matmul, 128×256×64 tiles, 4 stages", "schedule: round robin, copies complete latest")


def _block(block: str, steps: int, stages: int, spans: list[Span], edges: list[Edge]) -> None:
    copier, path = Lane(block, "wg 2"), Lane(block, "wg 2", "TMA")
    workers = [Lane(block, f"wg {index}") for index in range(2)]
    full, empty = [0.0] * steps, [[0.0, 0.0] for _ in range(steps)]
    starts = [Span(lane, "launch", 0, 60, "launch") for lane in (*workers, copier)]
    spans += starts
    tensor_free, now, path_free = 60.0, [60.0, 60.0], 60.0
    time, loaded = 60.0, 0

    def load_until(limit: int) -> None:
        nonlocal time, loaded, path_free
        while loaded < limit:
            slot = loaded % stages
            if loaded >= stages:
                free = empty[loaded - stages]
                if max(free) > time:
                    spans.append(Span(copier, f"wait empty[{slot}]", time, max(free), "wait", line(31)))
                    edges.append(Edge(workers[free.index(max(free))], max(free), copier, max(free), f"empty[{slot}]"))
                    time = max(free)
            spans.append(Span(copier, f"copy {loaded}", time, time + 2 * H100.tma_issue_ns, "compute", line(32)))
            time += 2 * H100.tma_issue_ns
            begin = max(time, path_free)
            path_free = begin + H100.transfer_time(49152, copying_sms=8)
            full[loaded] = path_free + H100.tma_latency_ns - 100
            detail = "48 KiB to shared memory"
            spans.append(Span(path, f"A, B → stage {slot}", begin, full[loaded], "copy", line(32), detail))
            loaded += 1

    for step in range(steps):
        load_until(min(steps, step + stages if step else stages))
        for index, lane in enumerate(workers):
            ready, slot = full[step], step % stages
            if ready > now[index]:
                spans.append(Span(lane, f"wait full[{slot}]", now[index], ready, "wait", line(40)))
                edges.append(Edge(path, ready, lane, ready, f"full[{slot}]"))
                now[index] = ready
            issued = now[index] + H100.wgmma_issue_ns
            spans.append(Span(lane, "wgmma", now[index], issued, "compute", line(41)))
            begin = max(tensor_free, issued)
            tensor_free = begin + H100.wgmma_time(64, 256, 64, "bfloat16")
            core = Lane(block, lane.thread, "tensor core")
            spans.append(Span(core, f"k = {step}", begin, tensor_free, "wgmma", line(41), "64×256×64 bf16"))
            spans.append(Span(lane, "wgmma_wait", issued, tensor_free, "wait", line(42)))
            now[index] = tensor_free + H100.arrive_ns
            spans.append(Span(lane, f"arrive empty[{slot}]", tensor_free, now[index], "sync", line(43)))
            empty[step][index] = now[index]
    for index, lane in enumerate(workers):
        _epilogue(block, lane, now[index], spans)


def _epilogue(block: str, lane: Lane, now: float, spans: list[Span]) -> None:
    work = H100.elementwise_time(64 * 256) + H100.smem_time(64 * 256 * 2)
    spans.append(Span(lane, "convert, store to SMEM", now, now + work, "compute", line(50)))
    now += work
    spans.append(Span(lane, "commit_smem", now, now + H100.commit_smem_ns, "sync", line(51)))
    now += H100.commit_smem_ns
    end = now + H100.store_read_time(64 * 256 * 2)
    spans.append(Span(Lane(block, lane.thread, "TMA"), "C → GMEM", now, end, "store", line(52)))
    spans.append(Span(lane, "wait_smem_to_gmem", now, end, "wait", line(53)))
