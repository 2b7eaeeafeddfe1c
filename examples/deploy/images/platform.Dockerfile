# Image of every role but the agent, and of Spark's driver and executors: Java 17, Python 3.11, the environment at /opt/artimon.
# From the root of the repository: docker build -f examples/deploy/images/platform.Dockerfile -t registry.example.org/artimon:1 .
ARG PYTHON=python:3.11-slim-bookworm
ARG SPARK=apache/spark:4.2.0

FROM ${SPARK} AS spark

FROM ${PYTHON} AS build
RUN apt-get update && apt-get install -y --no-install-recommends default-jdk-headless gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY scripts/build.lock scripts/requirements.lock scripts/
RUN python -m venv /opt/artimon && /opt/artimon/bin/pip install --no-cache-dir --no-deps --require-hashes -r scripts/build.lock \
    && /opt/artimon/bin/pip install --no-cache-dir --no-deps --no-build-isolation --require-hashes -r scripts/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY bookkeeper bookkeeper
COPY artimon artimon
COPY sources sources
COPY pipeline pipeline
COPY varstore varstore
COPY query_dsl query_dsl
COPY alerts alerts
RUN /opt/artimon/bin/pip install --no-cache-dir --no-deps --no-build-isolation ./bookkeeper . \
    && for library in artimon.compute.kernels sources.receive.known_series sources.receive.known_points; do \
        /opt/artimon/bin/python -m "$library" || exit 1; \
    done
RUN XDG_CACHE_HOME=/tmp/cache /opt/artimon/bin/artimon setup --jars spark \
    && mv /tmp/cache/artimon/jars/spark /opt/artimon/jars

FROM ${PYTHON}
RUN apt-get update && apt-get install -y --no-install-recommends default-jdk-headless tini procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 185 --no-create-home --shell /usr/sbin/nologin artimon \
    && install -d -o artimon -g artimon /var/lib/artimon
COPY --from=build /opt/artimon /opt/artimon
# Spark's own script starts executors on Kubernetes; the Python package does not have it
COPY --from=spark /opt/entrypoint.sh /opt/entrypoint.sh
ENV JAVA_HOME=/usr/lib/jvm/default-java \
    SPARK_HOME=/opt/artimon/lib/python3.11/site-packages/pyspark \
    PATH=/opt/artimon/bin:$PATH
RUN install -d /opt/spark && ln -s "$SPARK_HOME/jars" /opt/spark/jars && ln -s "$SPARK_HOME/bin" /opt/spark/bin
USER 185
ENTRYPOINT ["/opt/entrypoint.sh"]
