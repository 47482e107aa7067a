"""Kernels compiled for Hopper GPUs (sm_90a): programs become CUDA C++, NVRTC makes cubins of it."""
