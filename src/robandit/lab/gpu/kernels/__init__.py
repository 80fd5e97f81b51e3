"""The Triton kernels: one program, which is one warp, plays one trial from its first round to its last.

They need Triton to be imported. With ``TRITON_INTERPRET=1`` in the environment they run on any CPU, slowly.
"""
