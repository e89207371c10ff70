# Idiolect in a container, for a CPU or for CUDA.
#
#   docker build --target cpu  -t idiolect:cpu  .
#   docker build --target cuda -t idiolect:cuda .
#   docker run --rm -v "$PWD:/data" idiolect:cpu run --quick --out /data/runs
#   docker run --rm --gpus all -v "$PWD:/data" idiolect:cuda run --device cuda --precision tf32 --out /data/runs
#
# The commands that install were run in fresh environments; the images themselves were not built where this was written.

FROM python:3.11-slim AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
WORKDIR /opt/idiolect
COPY constraints.txt pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY src ./src

# The CPU image takes the build of PyTorch whose index is given; without one, that of the usual index, which has CUDA in it.
FROM base AS cpu
ARG TORCH_INDEX=""
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -c constraints.txt torch \
    && pip install -c constraints.txt '.[ray,onnx,tune,duckdb]'
RUN useradd --create-home idiolect
USER idiolect
WORKDIR /data
ENTRYPOINT ["idiolect"]

# The usual index has PyTorch with CUDA; the driver comes from the host.  gcc is for the Triton kernels of the engine cohort.
FROM base AS cuda
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN pip install -c constraints.txt torch && pip install -c constraints.txt '.[ray,onnx,tune,duckdb]'
RUN useradd --create-home idiolect
USER idiolect
WORKDIR /data
ENTRYPOINT ["idiolect"]
