# ShoalFS: `make up` starts a file system and mounts it at ./mnt, `make test` runs what CI runs.

DATA    ?= ./shoal-data
MNT     ?= ./mnt
SERVERS ?= 4
target  := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help up test test-all profiled fmt lint docs clean

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  For make up: DATA=$(DATA) MNT=$(MNT) SERVERS=$(SERVERS)"

up: ## Build, start SERVERS servers with their data in DATA, mount at MNT; Ctrl-C stops
	@tests/prepare up
	cargo build --release --locked -p shoal -p shoal-preload -p shoal-capi
	@mkdir -p $(MNT)
	@exec $(target)/release/shoal up $(DATA) --servers $(SERVERS) --mount $(MNT)

test: ## Run the test suite that CI runs
	@tests/prepare
	@tests/run short

test-all: ## Run the long forms: whole trees, 200,000 operations, longer fuzzing
	@tests/prepare
	@tests/run long

profiled: ## Build a release laid out by what its own benchmarks run, a tenth to a third faster (a quarter of an hour)
	@tests/prepare up
	@tests/profiled

fmt: ## Format the code
	cargo fmt --all

lint: ## Check format, lints and the dependency policy
	@tests/run short format lint policy

docs: ## Build the library documentation, without warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --locked

clean: ## Remove what was built (not DATA, and not the test tools in ~/.cache)
	cargo clean
