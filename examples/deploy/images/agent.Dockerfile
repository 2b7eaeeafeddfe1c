# Image of the agent alone: no Java, no Spark. It is a DaemonSet of its own (../kubernetes/agent.yaml).
# From the root of the repository: docker build -f examples/deploy/images/agent.Dockerfile -t registry.example.org/artimon-agent:1 .
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS build
WORKDIR /source
COPY scripts/build.lock scripts/
RUN python -m venv /opt/artimon && /opt/artimon/bin/pip install --no-cache-dir --require-hashes -r scripts/build.lock
COPY pyproject.toml README.md LICENSE ./
