"""Kernels in Triton for training on CUDA, in the modules `triton_*`, and the choice between them and torch's."""
