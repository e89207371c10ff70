"""What pytest leaves alone: the GPU's kernels where the compiler they are written for is not installed."""

from importlib.util import find_spec

collect_ignore = (
    [] if find_spec("triton") else ["src/idiolect/layers/launch.py", "src/idiolect/layers/triton_kernels.py"]
)
