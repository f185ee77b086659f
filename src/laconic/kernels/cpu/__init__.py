"""The C++ kernels: ``_native`` has them for every instruction set that this machine runs."""
