# Everything a person types. tools/setup installs what is needed, so each of these works on a bare
# Debian 12 machine.
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-builtin-rules

PRESETS := release asan tsan lint
TARGET_release := all
TARGET_asan := unit_tests fuzzers
TARGET_tsan := net_test switchd_test ps_test launch_test
TARGET_lint := layers
FUZZ_SECONDS ?= 3
PYTEST := .venv/bin/python -m pytest -q -p no:cacheprovider
SOURCES = $(shell git ls-files '*.cc' '*.h' | grep -E '^(src|include|tests|examples|bench|python)/')
STAGE = @tools/stage
UNIT_ASAN = tools/tests ctest build/asan --progress
UNIT_TSAN = tools/tests ctest build/tsan -R '^(net|switchd|ps|launch)/' --progress
FUZZ = tools/fuzz $(FUZZ_SECONDS)

.PHONY: setup build program ns3 quick unit-asan unit-tsan plans validate explore collectives wheel test-wheel test-image sdist test all-tests test-torch test-torchft test-arm64 test-compilers test-frameworks test-trainers bench demo docs soak format check-format lint fuzz clean unit sanitize pytest $(PRESETS:%=build-%)

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
# with its own summary, and the last lines say how long each part took and how many schedules of the collective protocol
# ran. clang-tidy and the check that every header
# compiles alone take longer than all of them: `make lint`.
test:
	@rm -f build/times build/schedules build/second-tries build/tests-due build/tests-alone
	export THALWEG_SECOND_TRIES=later
	export THALWEG_SCHEDULES=$(CURDIR)/build/schedules
	failed=0
	tools/stage "all" $(MAKE) --no-print-directory all-tests || failed=1
	echo
	cat build/times
	tools/schedules
	[ ! -e build/second-tries ] || sed 's/^/passed at the second try, alone: /' build/second-tries
	exit $$failed

# The compilers of the sanitizers' builds take what the tests of the release build leave of the processors, and what the
# tests under the address sanitizer leave, which wait for much of their time. So do the fuzzers.
all-tests:
	$(STAGE) "set-up" $(MAKE) --no-print-directory setup
	tools/stage "formatting" $(MAKE) --no-print-directory check-format
	tools/stage "build, release" $(MAKE) --no-print-directory build-release
	rm -f build/asan-over
	set -m
	(trap 'touch build/asan-over' EXIT
	tools/stage "build, address+undefined: beside tests" nice -n 19 $(MAKE) --no-print-directory build-asan) >build/asan.log 2>&1 & asan=$$!
	(until [ -e build/asan-over ]; do sleep 1; done
	tools/stage "build, thread: beside tests" nice -n 19 $(MAKE) --no-print-directory build-tsan) >build/tsan.log 2>&1 & tsan=$$!
	set +m
	trap 'kill -- -$$asan 2>/dev/null || true; kill -- -$$tsan 2>/dev/null || true' EXIT
	tools/stage "build, ns-3 peer: beside tests" nice -n 10 $(MAKE) --no-print-directory ns3 >build/ns3.log 2>&1 & ns3=$$!
	tools/stage "unit tests, release" $(MAKE) --no-print-directory unit
	wait $$ns3 || { cat build/ns3.log; exit 1; }
	tools/stage "style, program, PyTorch, soak" $(MAKE) --no-print-directory pytest
	wait $$asan || { cat build/asan.log; exit 1; }
	set -m
	tools/stage "fuzzers: beside tests" nice -n 10 $(FUZZ) >build/fuzz.log 2>&1 & fuzz=$$!
	tools/stage "unit tests, address+undefined" $(UNIT_ASAN) >build/unit-asan.log 2>&1 & unit=$$!
	set +m
	trap 'for job in $$asan $$tsan $$fuzz $$unit; do kill -- -$$job 2>/dev/null || true; done' EXIT
	failed=0
	wait $$tsan || { cat build/tsan.log; exit 1; }
	tools/stage "unit tests, thread" $(UNIT_TSAN) || failed=1
	wait $$unit || failed=1
	cat build/unit-asan.log
	wait $$fuzz || failed=1
	cat build/fuzz.log
	[ $$failed = 0 ]
	tools/stage "tests alone, second tries" tools/tests again

TEST_SOAK_SECONDS := 60
pytest: build-release ns3
	@if [ "$$(id -u)" = 0 ] && [ -w /dev/net/tun ]; then
	  tools/soak --seconds $(TEST_SOAK_SECONDS) >build/soak.log 2>&1 & soak=$$!
	else
	  echo "left out: a testbed needs root and /dev/net/tun" >build/soak.log & soak=$$!
	fi
	trap 'kill $$soak 2>/dev/null || true' EXIT
	failed=0
	tools/tests pytest tests/style tests/docs tests/cli tests/install tests/python tests/torch tests/validation || failed=1
	wait $$soak || failed=1
	cat build/soak.log
	exit $$failed

# A day's work: unit tests in release, style, and the command line without what needs root. Under 3 minutes after a
# first build.
quick:
	@rm -f build/times
	tools/stage "build" $(MAKE) --no-print-directory build-release
	tools/stage "unit tests" ctest --test-dir build/release --output-on-failure -j 2 --progress
	THALWEG_WITHOUT_ROOT=1 tools/stage "style, pages, command line" $(PYTEST) -n 2 tests/style tests/docs tests/cli
	echo
	cat build/times

unit: build-release
	@tools/tests ctest build/release --progress

# Under the thread sanitizer only net, switchd, ps and launch, which have threads: tests/style proves that the layers
# below have none.
sanitize: unit-asan unit-tsan

unit-asan: build-asan
	@$(UNIT_ASAN)

unit-tsan: build-tsan
	@$(UNIT_TSAN)

# FUZZ_SECONDS each; what they find beyond the seeds stays in build/asan/corpus.
fuzz: build-asan
	@$(FUZZ)

# The simulator against closed forms and against ns-3; figures and tables in build/validation.
validate: build
	$(PYTEST) -n 2 --full tests/validation || failed=1
	.venv/bin/python tests/validation/report.py
	exit $${failed:-0}

# Every behaviour of small ATP worlds, the larger ones too (tests/unit/atp/explore.h): about two minutes. Every behaviour
# of small groups of the collective protocol (tests/unit/collective/explore.h), and a million random schedules of it.
explore: build-release
	THALWEG_EXPLORE=long build/release/atp_test --gtest_filter='AtpExploration.*'
	THALWEG_EXPLORE=long build/release/collective_test

# Every scheme over DLCP under loss, on 1 to 17 ranks, ten times: about four minutes.
collectives: build-release
	THALWEG_COLLECTIVES=long build/release/net_test --gtest_filter='Collectives.*dlcp*'

# The Python package with the program, for the PyTorch in .venv: build/wheel/*.whl. It needs no Debian package where it is
# installed. For other PyTorch versions too: make wheel TORCH="2.9.1 2.13.0", or TORCH=all.
TORCH ?=
wheel: build-release
	@tools/wheel $(TORCH)

# The wheel in a fresh environment, and in a bare Debian 12 (by debootstrap and chroot, as root): program, modules, training on two ranks; with TORCH="2.7.1 2.9.1" also with these PyTorch
# versions, which come from PyPI with several GB each.
test-wheel: build-release
	THALWEG_TEST_WHEEL=1 THALWEG_TEST_TORCH="$(TORCH)" $(PYTEST) tests/install/test_wheel.py tests/install/test_image.py

# Both stages of the Dockerfile in chroots, as root: everything is installed and compiled anew, about half an hour.
test-image: setup
	THALWEG_TEST_IMAGE=1 $(PYTEST) tests/install/test_image.py

# What git knows, as build/sdist/*.tar.gz.
sdist:
	@tools/sdist

# PyTorch's own tests with Gloo and with our backend, side by side: build/torch/report.md.
test-torch: build-release
	.venv/bin/python tests/torch/side_by_side.py

# torchft's own tests with Gloo and with Thalweg: some minutes (docs/torchft.md).
test-torchft: build-release
	.venv/bin/python tests/torch/torchft_side_by_side.py

# The layers without I/O for arm64, and their unit tests under qemu-user.
test-arm64:
	@tools/arm64

# The release build by g++ 13 and clang 19 with the libraries of Debian 13, in a chroot of its own (2.5 GB, root): the
# program, the library, the Python modules, and the unit tests, which it runs. COMPILERS="g++-13" for one of them,
# COMPILERS="g++-13:sockets" for a part (tools/compilers).
COMPILERS ?=
test-compilers:
	@tools/compilers $(COMPILERS)

# Arrays of JAX and TensorFlow, in an environment of their own (1.5 GB), which tools/setup has no need of.
FRAMEWORKS := jax==0.4.38 tensorflow-cpu==2.21.0 pytest==8.3.4
test-frameworks: build-release
	if [ "$$(cat build/frameworks/installed 2>/dev/null)" != "$(FRAMEWORKS)" ]; then
	  /usr/bin/python3 -m venv --clear build/frameworks
	  build/frameworks/bin/python -m pip install --quiet --disable-pip-version-check $(FRAMEWORKS)
	  echo "$(FRAMEWORKS)" >build/frameworks/installed
	fi
	build/frameworks/bin/python -m pytest -q -p no:cacheprovider tests/frameworks

# The examples with Lightning, Accelerate and Hugging Face's Trainer, and Kubernetes' schemas for its examples, in an
# environment of their own (1.4 GB). Naming torch keeps pip from installing another one.
TRAINERS := torch==2.13.0 lightning==2.6.6 accelerate==1.15.0 transformers==5.23.0 kubernetes-validate==1.37.0 pytest==8.3.4
test-trainers: build-release
	if [ "$$(cat build/trainers/installed 2>/dev/null)" != "$(TRAINERS)" ]; then
	  /usr/bin/python3 -m venv --clear build/trainers
	  build/trainers/bin/python -m pip install --quiet --disable-pip-version-check $(TRAINERS)
	  echo "$(TRAINERS)" >build/trainers/installed
	fi
	build/trainers/bin/python -m pytest -q -p no:cacheprovider tests/trainers

# The planner's ranking on 50 random networks against the packet simulator's: some minutes.
plans: build-release
	THALWEG_PLANS=long build/release/lab_test --gtest_filter='PlannerNetworks.*'

bench: build
	build/release/thalweg bench kernels
	build/release/thalweg bench sim
	build/release/thalweg bench transport
	build/release/thalweg bench switch
	build/release/thalweg bench allreduce --ranks 2 --transport tcp,shm --against gloo,openmpi

# Digits trained over a lossy testbed with Gloo and with Thalweg: demo/report.html. What the planner and the simulator show:
# tools/demo plan.
demo:
	@tools/setup demo
	mkdir -p build
	cmake --preset release >build/release.configure.log 2>&1 || { cat build/release.configure.log; exit 1; }
	echo "building the program and the PyTorch module"
	cmake --build build/release --target thalweg thalweg_torch
	tools/demo

# The site, for a browser without a network: build/site/index.html. It has the program's own help, so it builds the program.
docs:
	@tools/setup docs
	mkdir -p build
	cmake --preset release >build/release.configure.log 2>&1 || { cat build/release.configure.log; exit 1; }
	cmake --build build/release --target thalweg -- --quiet
	tools/docs
	echo "build/site/index.html"

# Jobs over a testbed whose parts fail at random, with the invariants checked: make soak SECONDS=600.
SECONDS ?= 600
soak: build-release
	@.venv/bin/python tools/soak --seconds $(SECONDS)

format: setup
	@clang-format-19 -i $(SOURCES)

check-format: setup
	@clang-format-19 --dry-run --Werror $(SOURCES)

# clang-tidy over all sources, and every source and header compiled alone.
lint: check-format build-lint
	@tools/tidy

clean:
	rm -rf build
