# The gateway alone: no compiler, no pip, no vLLM. Built from the top of the checkout:
#   docker build --file deploy/gateway.Dockerfile --tag vllm-gateway:0.1.0 .

FROM python:3.12.12-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /src
RUN python -m venv --without-pip /opt/gateway
# Files that are known by their hashes: what somebody puts in their place is not taken.
COPY deploy/requirements.txt deploy/requirements.build.txt deploy/
RUN pip --python /opt/gateway/bin/python install --no-cache-dir --require-hashes -r deploy/requirements.txt
RUN pip install --no-cache-dir --require-hashes -r deploy/requirements.txt -r deploy/requirements.build.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY workers workers
# Bytecode is made here, since the running container cannot write it; what a request passes, compiled to C.
ENV HATCH_BUILD_HOOKS_ENABLE=true
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels .
RUN pip --python /opt/gateway/bin/python install --no-cache-dir --no-deps --no-index wheels/*.whl

FROM python:3.12.12-slim-bookworm
RUN python -m pip uninstall --yes --root-user-action=ignore pip
COPY --from=build /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it is not root. Owns nothing and needs no home.
USER 10001:10001
EXPOSE 8080 8081
# Begins the drain: see server.drain_s. The grace period of the container must be longer.
STOPSIGNAL SIGTERM
# Not urllib: it would go through a proxy that the engine puts into the environment.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["python", "-c", \
    "import http.client; c = http.client.HTTPConnection('127.0.0.1', 8080, timeout=2); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["gateway"]
CMD ["serve", "--config", "/etc/gateway/gateway.toml"]
