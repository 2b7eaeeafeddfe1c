# Image of the agent: Python 3.11 and the two wheels of a host (artimon-bookkeeper, artimon-agent), the environment at /opt/artimon.
# From the root of the repository: docker build -f examples/deploy/images/agent.Dockerfile -t registry.example.org/artimon-agent:1 .
# EXTRAS: those of the wheel that flows and receivers need, such as --build-arg EXTRAS=[receive,kafka]
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS build
ARG EXTRAS=
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY scripts/build.lock scripts/requirements.lock scripts/
# the lock is of the platform: here it only chooses versions, and pip takes no hashes beside wheels without one
RUN python -m venv --without-pip /opt/artimon && pip install --no-cache-dir --no-deps --require-hashes -r scripts/build.lock \
    && sed -e '/--hash/d' -e 's/ \\$//' scripts/requirements.lock > versions.txt
COPY bookkeeper bookkeeper
COPY scripts/agent_wheel scripts/agent_wheel
COPY artimon artimon
COPY sources sources
COPY pipeline pipeline
# byte code is written for what the agent imports alone
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation -w wheels ./bookkeeper ./scripts/agent_wheel \
    && pip --python /opt/artimon/bin/python install --no-cache-dir --no-compile -c versions.txt \
        wheels/artimon_bookkeeper-*.whl "$(echo wheels/artimon_agent-*.whl)${EXTRAS}" \
    && /opt/artimon/bin/python -c 'import artimon.cli.agent_process'
# C functions that receivers use if they are there
RUN /opt/artimon/bin/python -m sources.receive.known_series && /opt/artimon/bin/python -m sources.receive.known_points

FROM ${PYTHON}
RUN useradd --uid 185 --no-create-home --shell /usr/sbin/nologin artimon \
    && install -d -o artimon -g artimon /var/lib/artimon
COPY --from=build /opt/artimon /opt/artimon
ENV PATH=/opt/artimon/bin:$PATH
USER 185
ENTRYPOINT ["/opt/artimon/bin/artimon", "agent"]
