"""The lab on a GPU: `plan` says what a scenario is to a kernel, `launch` plays it, `kernels` are what runs there."""
