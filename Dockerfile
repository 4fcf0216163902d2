# One target for each service, `spark` for the tenants' Spark jobs, and `cli` for the headwater command:
#
#     docker build --target router -t headwater-router .
#
# Every image holds a virtual environment with what requirements/<service>.txt (cli.txt) locks (hashes checked), the code that the service
# imports, and nothing that only builds. It runs as user 10001 and writes nowhere but /tmp and /var/lib/headwater. BuildKit is not
# needed: buildah builds it too.
#
# The base is of one release of Python. Its maintainers build that anew for Debian's security updates; who wants the very bytes
# names them: --build-arg PYTHON_IMAGE=python@sha256:….
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

# --- building ---------------------------------------------------------------------------------------------------------

# With a C compiler, for the compiled modules.
FROM ${PYTHON_IMAGE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements/build.txt requirements/build.txt
RUN python3.11 -m venv .venv && .venv/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt

# The wheel (`make wheel`), with its modules compiled here.
FROM build AS wheel
COPY hatch_build.py pyproject.toml README.md LICENSE ./
COPY package/headwater package/headwater
COPY requirements/dev.txt requirements/
COPY libs libs
COPY protos protos
COPY services services
COPY spark spark
RUN .venv/bin/python -m hatchling build -t wheel -d /dist

# The code out of the wheel, and the wheel's record of its version.
FROM build AS whole-code
COPY --from=wheel /dist /dist
RUN .venv/bin/pip install --no-cache-dir --no-deps --no-index --no-compile --target /wheel /dist/*.whl \
    && mv /wheel/headwater/libs /wheel/headwater/protos /wheel/headwater/services /wheel/headwater/spark . \
    && mkdir /record && mv /wheel/headwater-*.dist-info /record/ \
    && .venv/bin/python -m compileall -q libs protos services spark

# What services import: without the headwater command, and the stack of one machine.
FROM whole-code AS code
RUN cd libs && rm -rf check cli demo mesh migrate operations servers setup stack stand_ins warehouse_readers

# Spark's jars by their lock, each verified by its sha256.
FROM build AS jars
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends maven openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY libs libs
RUN .venv/bin/python -c "import shutil; from pathlib import Path; from libs.setup import jar_download, jars; shutil.copytree(jar_download.fetched(jars.jar_set('spark'), Path('/tmp/cache')), '/jars')"

# --- running ----------------------------------------------------------------------------------------------------------

FROM ${PYTHON_IMAGE} AS runtime
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/headwater --shell /usr/sbin/nologin headwater \
    && install -d -o headwater -g headwater /var/lib/headwater
ENV PATH=/opt/headwater/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
EXPOSE 7000 8080

FROM build AS binlog-reader-packages
COPY requirements/binlog_reader.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/binlog_reader.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS binlog-reader
COPY --from=binlog-reader-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/binlog_reader services/binlog_reader
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.binlog_reader"]

FROM build AS vstream-reader-packages
COPY requirements/vstream_reader.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/vstream_reader.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS vstream-reader
COPY --from=vstream-reader-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/vstream_reader services/vstream_reader
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.vstream_reader"]

FROM build AS dts-decoder-packages
COPY requirements/dts_decoder.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/dts_decoder.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS dts-decoder
COPY --from=dts-decoder-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/dts_decoder services/dts_decoder
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.dts_decoder"]

FROM build AS logminer-reader-packages
COPY requirements/logminer_reader.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/logminer_reader.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS logminer-reader
COPY --from=logminer-reader-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/logminer_reader services/logminer_reader
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.logminer_reader"]

FROM build AS schema-history-packages
COPY requirements/schema_history.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/schema_history.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS schema-history
COPY --from=schema-history-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/schema_history services/schema_history
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.schema_history"]

FROM build AS checkpoint-committer-packages
COPY requirements/checkpoint_committer.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/checkpoint_committer.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS checkpoint-committer
COPY --from=checkpoint-committer-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/checkpoint_committer services/checkpoint_committer
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.checkpoint_committer"]

FROM build AS router-packages
COPY requirements/router.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/router.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS router
COPY --from=router-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/router services/router
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.router"]

FROM build AS tenant-operator-packages
COPY requirements/tenant_operator.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/tenant_operator.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS tenant-operator
COPY --from=tenant-operator-packages /opt/headwater /opt/headwater
COPY --from=code /src/libs libs
COPY --from=code /src/protos protos
COPY --from=code /src/services/__init__.py services/
COPY --from=code /src/services/tenant_operator services/tenant_operator
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.tenant_operator"]

FROM build AS cli-packages
COPY requirements/cli.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/cli.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

# The headwater command, for a mesh elsewhere (`--mesh`): it reads sources and warehouses, which no service does.
FROM runtime AS cli
COPY --from=cli-packages /opt/headwater /opt/headwater
COPY --from=whole-code /src/libs libs
COPY --from=whole-code /src/protos protos
# Its version.
COPY --from=whole-code /record ./
USER 10001:10001
ENTRYPOINT ["python", "-m", "libs.cli"]

FROM build AS spark-packages
COPY requirements/spark.txt requirements/
RUN python3.11 -m venv /opt/headwater && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/spark.txt \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

FROM runtime AS spark
USER root
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-packages /opt/headwater /opt/headwater
COPY --from=jars /jars /opt/headwater/jars
COPY --from=code /src/libs libs
COPY --from=code /src/spark spark
# Spark's Python workers import what their tasks call, wherever they are started.
ENV PYTHONPATH=/app
# With this Java, these jars and their times, as they lie in this image: no other archive would fit. It is written whole, and a JVM has taken
# it, or the build ends.
RUN python -m spark.session.class_archive /opt/headwater/spark-classes.jsa --jars-dir /opt/headwater/jars && rm -rf /tmp/hsperfdata_root
USER 10001:10001
ENTRYPOINT ["python", "-m", "spark.jobs.container"]

# --- on trial ---------------------------------------------------------------------------------------------------------

FROM build AS trial-packages
COPY requirements/ requirements/
RUN python3.11 -m venv /opt/headwater \
    && /opt/headwater/bin/pip install --no-cache-dir --require-hashes -r requirements/cli.txt -r requirements/binlog_reader.txt \
        -r requirements/vstream_reader.txt -r requirements/dts_decoder.txt -r requirements/logminer_reader.txt \
        -r requirements/schema_history.txt -r requirements/checkpoint_committer.txt -r requirements/router.txt -r requirements/tenant_operator.txt -r requirements/spark.txt
COPY --from=wheel /dist /dist
RUN /opt/headwater/bin/pip install --no-cache-dir --no-deps --no-index /dist/*.whl \
    && /opt/headwater/bin/pip uninstall -q -y pip setuptools

# The installed wheel with a Java: the embedded stack in one container, for compose.yaml. Not for Kubernetes, so that `make images` leaves it out.
# Its first `up` or `demo` downloads jars and MySQL into a volume.
FROM ${PYTHON_IMAGE} AS trial
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --user-group --create-home --shell /usr/sbin/nologin headwater \
    && install -d -o headwater -g headwater /data /cache
COPY --from=trial-packages /opt/headwater /opt/headwater
ENV PATH=/opt/headwater/bin:$PATH PYTHONUNBUFFERED=1 HEADWATER_CACHE=/cache
WORKDIR /data
USER 10001:10001
ENTRYPOINT ["headwater"]
