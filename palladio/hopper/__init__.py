"""Kernels compiled for Hopper GPUs (sm_90a): programs are lowered to CUDA C++, which NVRTC compiles to cubins."""
