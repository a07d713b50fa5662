# The server. `serve` is the default command; `migrate`, `space`, `key` and `settings` are the others.
# The tag says what the digest is; to move on, replace both.
ARG PYTHON=python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /srv/source
RUN python -m venv --without-pip /srv/runstate && python -m venv /srv/tools
COPY requirements/build.txt requirements/server.txt requirements/
RUN /srv/tools/bin/pip install --require-hashes -r requirements/build.txt \
    && /srv/tools/bin/pip --python /srv/runstate/bin/python install --require-hashes -r requirements/server.txt
COPY pyproject.toml README.md LICENSE ./
COPY server server
COPY migrations migrations
RUN /srv/tools/bin/python -m hatchling build --target wheel --directory /srv/wheels \
    && /srv/tools/bin/pip --python /srv/runstate/bin/python install --no-deps --no-index /srv/wheels/*.whl

FROM ${PYTHON}
COPY --from=build /srv/runstate /srv/runstate
ENV PATH=/srv/runstate/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RUNSTATE_HOST=0.0.0.0 \
    RUNSTATE_LOG_FORMAT=json \
    RUNSTATE_PORT=8080
# A number, so that orchestrators can see that it is not root. It owns nothing and writes nothing.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# Alive, not ready: a server whose database is away mends itself, and must not be ended for it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-c", \
    "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ['RUNSTATE_PORT']), timeout=4); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["runstate"]
CMD ["serve"]
