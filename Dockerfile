FROM python:3.12-slim AS build
RUN python -m venv /opt/venv
WORKDIR /srv/temporal-memory
# What changes rarely stands first: a change of the code does not install the dependencies again.
COPY requirements.lock ./
RUN /opt/venv/bin/python -m pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY alembic ./alembic
COPY examples ./examples
COPY app ./app
# Editable, because the migrations stand beside the package. The code is compiled here: whoever runs it may not write.
RUN /opt/venv/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation --no-index --editable . \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash app

FROM python:3.12-slim
RUN useradd --system --uid 10001 --user-group --home-dir /data --create-home --shell /usr/sbin/nologin memory
COPY --from=build /opt/venv /opt/venv
COPY --from=build /srv/temporal-memory /srv/temporal-memory
WORKDIR /srv/temporal-memory
# Not a loopback address: without API_KEYS the service says so and does not start.
ENV PATH=/opt/venv/bin:$PATH \
    HOST=0.0.0.0 \
    PORT=8000 \
    DATA_DIR=/data \
    LOG_FORMAT=json
# Where the embedded PostgreSQL keeps its data, if no DATABASE_URL is set.
VOLUME /data
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=4); c.request('GET', '/health/live'); sys.exit(c.getresponse().status != 200)"]
CMD ["temporal-memory", "serve"]
