# Everything a person types. tools/setup installs what is needed, so each of these works on a bare
# Debian 12 machine.
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-builtin-rules

PRESETS := release asan tsan
TARGET_release := all
TARGET_asan := unit_tests fuzzers
TARGET_tsan := net_test switchd_test ps_test
FUZZ_SECONDS ?= 3
PYTEST := .venv/bin/python -m pytest -q -p no:cacheprovider
SOURCES = $(shell git ls-files '*.cc' '*.h' | grep -E '^(src|include|tests|examples|bench|python)/')

.PHONY: setup build ns3 validate explore collectives wheel test test-torch test-frameworks bench demo soak format check-format lint fuzz clean unit sanitize $(PRESETS:%=build-%)

setup:
	@tools/setup
	mkdir -p build

$(PRESETS:%=build-%): build-%: setup
	@cmake --preset $* >build/$*.configure.log 2>&1 || { cat build/$*.configure.log; exit 1; }
	cmake --build build/$* --target $(TARGET_$*) -- --quiet

# The program is at build/release/thalweg.
build: build-release ns3

# build/ns3/ns3_peer: ns-3 as the peer of `thalweg bench sim` and of tests/validation. A project of its
# own: the main build needs no ns-3.
ns3: setup
	@cmake -S tests/validation/ns3 -B build/ns3 -G Ninja >build/ns3.configure.log 2>&1 || { cat build/ns3.configure.log; exit 1; }
	cmake --build build/ns3 -- --quiet

# Every test: formatting, unit tests, the same under the sanitizers, fuzzers for a few seconds each,
# style and the command line, and beside these a minute of the soak, which mostly waits. Each runner closes
# with its own summary. clang-tidy, which takes longer than all of them, is `make lint`.
TEST_SOAK_SECONDS := 60
test: check-format unit sanitize fuzz ns3
	@if [ "$$(id -u)" = 0 ] && [ -w /dev/net/tun ]; then
	  tools/soak --seconds $(TEST_SOAK_SECONDS) >build/soak.log 2>&1 & soak=$$!
	else
	  echo "left out: a testbed needs root and /dev/net/tun" >build/soak.log & soak=$$!
	fi
	trap 'kill $$soak 2>/dev/null || true' EXIT
	failed=0
	$(PYTEST) -n 2 tests/style tests/cli tests/python tests/torch tests/validation || failed=1
	wait $$soak || failed=1
	cat build/soak.log
	exit $$failed

unit: build-release
	ctest --test-dir build/release --output-on-failure -j 2 --progress

# Threads are in net, switchd and ps alone: tests/style proves that the layers below have none.
sanitize: build-asan build-tsan
	ctest --test-dir build/asan --output-on-failure -j 2 --progress
	ctest --test-dir build/tsan --output-on-failure -j 2 --progress -R '^(net|switchd|ps)/'

# FUZZ_SECONDS each; what they find beyond the seeds stays in build/asan/corpus.
fuzz: build-asan
	@tools/fuzz $(FUZZ_SECONDS)

# The simulator against closed forms and against ns-3; figures and tables in build/validation.
validate: build
	$(PYTEST) -n 2 --full tests/validation || failed=1
	.venv/bin/python tests/validation/report.py
	exit $${failed:-0}

# Every behaviour of small ATP worlds, the larger ones too (tests/unit/atp/explore.h): about two minutes.
explore: build-release
	THALWEG_EXPLORE=long build/release/atp_test --gtest_filter='AtpExploration.*'

# Every scheme over DLCP under loss, on 1 to 17 ranks, ten times: about four minutes.
collectives: build-release
	THALWEG_COLLECTIVES=long build/release/net_test --gtest_filter='Collectives.*dlcp*'

# The Python package for the PyTorch in .venv: build/wheel/*.whl.
wheel: setup
	.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .

# PyTorch's own tests with Gloo and with our backend, side by side: build/torch/report.md.
test-torch: build-release
	.venv/bin/python tests/torch/side_by_side.py

# Arrays of JAX and TensorFlow, in an environment of their own (1.5 GB), which tools/setup has no need of.
FRAMEWORKS := jax==0.4.38 tensorflow-cpu==2.21.0 pytest==8.3.4
test-frameworks: build-release
	if [ "$$(cat build/frameworks/installed 2>/dev/null)" != "$(FRAMEWORKS)" ]; then
	  /usr/bin/python3 -m venv --clear build/frameworks
	  build/frameworks/bin/python -m pip install --quiet --disable-pip-version-check $(FRAMEWORKS)
	  echo "$(FRAMEWORKS)" >build/frameworks/installed
	fi
	build/frameworks/bin/python -m pytest -q -p no:cacheprovider tests/frameworks

bench: build
	build/release/thalweg bench kernels
	build/release/thalweg bench sim
	build/release/thalweg bench transport
	build/release/thalweg bench switch
	build/release/thalweg bench allreduce --ranks 2 --transport tcp,shm --against gloo,openmpi

# Digits trained over a lossy testbed with Gloo and with Thalweg: demo/report.html. What the planner and the simulator show:
# tools/demo plan.
demo: build-release
	@tools/demo

# Jobs over a testbed whose parts fail at random, with the invariants checked: make soak SECONDS=600.
SECONDS ?= 600
soak: build-release
	@tools/soak --seconds $(SECONDS)

format: setup
	@clang-format-19 -i $(SOURCES)

check-format: setup
	@clang-format-19 --dry-run --Werror $(SOURCES)

lint: check-format build-release
	@tools/tidy

clean:
	rm -rf build
