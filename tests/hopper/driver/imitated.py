"""`python -m tests.hopper.driver.imitated ...`: `python -m benchmarks.gpu ...` with the stand-in for the driver.

Kernels run on the host twin. Tensors of PyTorch on `cuda:0` are imitated, and times mean nothing.
"""

from __future__ import annotations

import sys

import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import children, timing
from palladio.hopper.launch import timing as events
from palladio.hopper.launch.calls import KernelCall
from tests.hopper.driver.fake import FakeDriver, fake
from tests.hopper.driver.stand_ins import Tensor, Torch, numpy_of


def install(card: FakeDriver, patch: pytest.MonkeyPatch) -> Torch:
    """Let the commands run on the stand-in, in this process; returns the imitated PyTorch."""
    patch.setattr(events, "FLUSHED", 1 << 10)
    patch.setattr(timing, "ROUNDS", 1)
    patch.setattr(timing, "SECONDS", 0.0)
    card.begin()
    card.run_on_twin()
    imitated = Torch(card, patch)
    moved, drawn, on = torch.Tensor.to, torch.randn, KernelCall.on

    def to(tensor: torch.Tensor, *where: object, **options: object) -> torch.Tensor:
        if where and str(where[0]).startswith("cuda"):
            return imitated.tensor(numpy_of(tensor))
        found = moved(tensor, *where, **options)
        return imitated.tensor(numpy_of(found)) if isinstance(tensor, Tensor) else found

    def randn(*shape: int, device: object = None, dtype: torch.dtype | None = None) -> torch.Tensor:
        found = drawn(*shape)
        found = found if dtype is None else moved(found, dtype)
        return found if device is None else imitated.tensor(numpy_of(found))

    def noted(call: KernelCall, device: int) -> object:
        found = on(call, device)
        if found not in card.kernels:
            card.kernels.append(found)
        return found

    patch.setattr(torch.Tensor, "to", to)
    patch.setattr(torch, "randn", randn)
    patch.setattr(Tensor, "contiguous", lambda tensor: imitated.tensor(numpy_of(tensor).copy()), raising=False)
    patch.setattr(KernelCall, "on", noted)
    return imitated


def main() -> int:
    """Run the command on the stand-in; returns its exit status."""
    children.PYTHON = [sys.executable, "-m", "tests.hopper.driver.imitated"]
    card = fake()
    install(card, pytest.MonkeyPatch())
    status = command.main()
    for failure in card.failures:
        print(failure)
    return status or bool(card.failures)


if __name__ == "__main__":
    sys.exit(main())
