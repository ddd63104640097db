# An image to train with: Thalweg's wheel and PyTorch in an environment of their own (docs/clusters.md).
#
#     docker build -t thalweg .
#     docker run --rm --network host thalweg torchrun --nproc-per-node 2 examples/ddp_digits.py --backend thalweg
#
# The first stage is what a developer's machine has; only the wheel leaves it.
FROM debian:12 AS build
WORKDIR /thalweg
# The packages change less often than the sources, so they are a layer of their own.
COPY tools/setup tools/
COPY tools/site/requirements.txt tools/site/
RUN tools/setup
COPY . .
RUN make wheel

FROM debian:12-slim
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends python3 python3-venv openssh-client iproute2 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /thalweg/build/wheel/ /tmp/wheel/
RUN python3 -m venv /opt/thalweg \
 && /opt/thalweg/bin/python -m pip install --no-cache-dir --disable-pip-version-check torch==2.13.0 /tmp/wheel/thalweg-*.whl \
 && rm -rf /tmp/wheel
ENV PATH=/opt/thalweg/bin:$PATH
COPY examples /home/thalweg/examples
RUN useradd --uid 1000 --home-dir /home/thalweg thalweg && chown -R thalweg: /home/thalweg
USER 1000
WORKDIR /home/thalweg
CMD ["thalweg", "--help"]
