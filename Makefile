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

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PEERS := $(VENV)/peers
PEERS_PIP := $(PEERS)/bin/python -m pip --disable-pip-version-check --quiet
PACKAGE := bindings/python
# The compiled kernels; a wheel that is built without them compiles kernels when they are needed.
PACK := $(PACKAGE)/kernels/kernels.pack
# A CUDA driver in plain memory, for the tests of arrays on a GPU.
FAKE_DRIVER = $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug/libunspool_fakecuda.so

RUST_SOURCES := $(shell find crates $(PACKAGE)/src -name '*.rs' -path '*/src/*') \
	$(wildcard Cargo.toml Cargo.lock crates/*/Cargo.toml $(PACKAGE)/Cargo.toml)
PYTHON_SOURCES := $(PACKAGE)/pyproject.toml $(PACKAGE)/build.rs $(wildcard $(PACK)) \
	$(shell find $(PACKAGE)/python -name '*.py' -o -name '*.pyi' -o -name '*.cu' -o -name py.typed)

.PHONY: kernels wheel help demo test test-rust test-python test-peers bench lint fmt sim fuzz clean \
	need-rust

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.rtm ## migrate the default model through a spool and write pictures to demo-output/
	$(BIN)/unspool rtm --out demo-output
	@echo
	@echo "The migrated image: demo-output/image.png"

test: test-rust test-python test-peers ## run all tests: Rust and Python
	@echo
	@echo "All tests passed: the Rust workspace and the Python package, with its peers too."

test-rust: need-rust ## run the Rust tests
	$(CARGO) test --workspace --locked
	$(CARGO) test --locked --package unspool-transfer --features shuttle --test shuttle
	$(CARGO) test --locked --package unspool --features shuttle --lib interleavings

test-python: $(VENV)/.test ## run the Python tests on the release wheel
	$(BIN)/python -m pytest $(PACKAGE)
	$(CARGO) build --locked --package unspool-fakecuda
	FAKECUDA_DEVICES=2 UNSPOOL_CUDA_DRIVER="$(FAKE_DRIVER)" \
		$(BIN)/python -m pytest $(PACKAGE) -m fake_gpu
	$(BIN)/python -m pytest docs

test-peers: $(VENV)/.peers ## run the Python tests with other projects' packages, and their own tests
	$(PEERS)/bin/python -m pytest $(PACKAGE)/tests/peers -m peer
	$(PEERS)/bin/python -m pytest $(PACKAGE)/tests/test_devito_example.py

bench: need-rust $(VENV)/.rtm ## print tables of what things cost, against the raw operation of the same run
	$(CARGO) run --locked --release --package unspool-benches
	$(CARGO) run --locked --release --package unspool-benches --bin overhead
	$(CARGO) bench --locked --package unspool-benches --bench codec
	$(CARGO) bench --locked --package unspool-benches --bench twine
	$(CARGO) bench --locked --package unspool-benches --bench outer
	@mkdir -p $(CURDIR)/target
	$(CARGO) bench --locked --package unspool-benches --bench disk -- --quick --dir $(CURDIR)/target
	$(BIN)/python $(PACKAGE)/benches/python_calls.py
	$(BIN)/python $(PACKAGE)/benches/python_adjoint.py

sim: need-rust ## run SEEDS=10000 seeds of the simulator (or a range: SEEDS=500..600)
	$(CARGO) run --locked --release --package unspool-sim -- \
		--seeds $(if $(findstring ..,$(SEEDS)),$(SEEDS),0..$(SEEDS))

fuzz: need-rust ## fuzz each parser for FUZZ_SECONDS=60 (needs a nightly Rust and cargo-fuzz)
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || { echo "fuzzing needs a nightly Rust and" \
		"cargo-fuzz: rustup toolchain install nightly; cargo install cargo-fuzz" >&2; exit 1; }
	@for target in head twine outer zfp; do \
		mkdir -p "fuzz/corpus/$$target"; \
		seeds=; [ "$$target" != head ] || seeds=crates/codec/tests/golden; \
		$(CARGO) +nightly fuzz run "$$target" "fuzz/corpus/$$target" $$seeds -- \
			-max_len=16384 -max_total_time=$(FUZZ_SECONDS); \
	done

lint: need-rust $(VENV)/.tools ## check formatting, lints (warnings are errors) and the style budgets
	$(CARGO) fmt --all --check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	$(CARGO) clippy --locked --package unspool-transfer --package unspool --features shuttle \
		--all-targets -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc --workspace --no-deps --locked --quiet
	$(CARGO) x tidy

# By the compiler of CUDA 12.9: drivers of CUDA 12 refuse machine code of 13, and those of 13 take
# this. What was compiled stays in a folder, so that only what has changed is compiled again.
kernels: need-rust $(VENV)/.made ## compile every CUDA kernel, for wheels that are built afterwards (needs no GPU)
	$(PIP) install 'nvidia-cuda-nvrtc-cu12>=12.9,<13'
	export UNSPOOL_NVRTC="$$($(BIN)/python -c \
		'import nvidia.cuda_nvrtc as m; print(list(m.__path__)[0] + "/lib")')"; \
	$(CARGO) run --locked --package unspool-gpu-codec --example kernels -- $(PACK) \
		$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/kernels; \
	$(CARGO) test --locked --package unspool-gpu-codec --test kernels

wheel: kernels ## build the wheel with its kernels, at most 15 MB
	$(MAKE) --no-print-directory $(VENV)/.unspool
	@for wheel in dist/unspool-*.whl; do \
		size=$$(stat -c %s "$$wheel"); echo "$$wheel: $$size bytes"; [ "$$size" -le 15000000 ]; \
	done

fmt: need-rust $(VENV)/.tools ## format all sources
	$(CARGO) fmt --all
	$(BIN)/ruff format
	$(BIN)/ruff check --fix-only

clean: ## remove everything that was built or written here
	rm -rf $(VENV) dist demo-output .pytest_cache .ruff_cache .hypothesis
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

# The wheel as users get it: built in release, installed without touching its dependencies.
$(VENV)/.unspool: $(VENV)/.tools $(RUST_SOURCES) $(PYTHON_SOURCES) | need-rust
	rm -rf dist
	$(BIN)/maturin build --release --locked --quiet --manifest-path $(PACKAGE)/Cargo.toml --out dist
	$(PIP) install --force-reinstall --no-deps dist/unspool-*.whl
	@touch $@

$(VENV)/.rtm: $(VENV)/.unspool
	wheel=$$(echo dist/unspool-*.whl); $(PIP) install "$$wheel[rtm]"
	@touch $@

$(VENV)/.test: $(VENV)/.rtm $(PACKAGE)/tests/requirements.txt
	$(PIP) install --requirement $(PACKAGE)/tests/requirements.txt
	@touch $@

# An environment of their own, as Devito pins what the other tests use: 240 MB of wheels, and one
# package that is compiled.
$(VENV)/.peers-made: $(VENV)/.made $(PACKAGE)/tests/peers/requirements.txt
	xtask/venv.sh "$(PYTHON)" $(PEERS)
	$(PEERS_PIP) install --requirement $(PACKAGE)/tests/peers/requirements.txt
	@touch $@

$(VENV)/.peers: $(VENV)/.unspool $(VENV)/.peers-made
	$(PEERS_PIP) install --force-reinstall --no-deps dist/unspool-*.whl
	@touch $@
