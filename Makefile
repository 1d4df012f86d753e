# Everything a developer or a user types. Tools that are missing are installed by scripts/bootstrap.sh.
SHELL := /bin/bash
# What a command before a pipe says is what the pipe says.
.SHELLFLAGS := -o pipefail -c
CARGO ?= cargo
# A cargo that rustup has just installed is not on the PATH of this shell yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: all docs package build test demo bench bpf chaos figures results fuzz lint deny install bootstrap

all: build

bootstrap:
	@scripts/bootstrap.sh

build: bootstrap
	$(CARGO) build --release --locked -p starhop

# Format, lints, all tests; those on real networks make their own namespaces and say so where they cannot. As root, the programs
# that tests talk to are installed first; without them tests are skipped, and counted.
TESTED_WITH := nft ip nginx curl tshark chromium zsh fish
test: lint
	@if [ "$$(id -u)" = 0 ]; then scripts/bootstrap.sh $(TESTED_WITH) || echo "some tests will be skipped"; fi
	CARGO=$(CARGO) scripts/test.sh
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --offline check licenses bans sources; \
	 else echo "cargo-deny is not installed; 'make deny' installs it"; fi

lint: bootstrap
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Six processes, five lossy hops, beside the kernel's cubic and bbr. Options: make demo ARGS="--size 5MB"
demo: build
	target/release/starhop demo $(ARGS)

# CHAOS_SEEDS seeds of every chaos test in the simulator, with random paths, graphs and gateways, then the emulator's long tests: outages
# and switching of a minute, all transports beside the simulator. Then those of gateways: a day of mixed traffic in twenty minutes, outages
# of a minute, ten thousand connections, a new program each second.
chaos: bootstrap
	CHAOS_SEEDS=$${CHAOS_SEEDS:-1000} $(CARGO) test --profile fuzz --locked -p starhop-lab --test chaos --test random_paths --test random_graphs --test random_gateways
	$(CARGO) test --locked -p starhop --test emulate -- long
	$(CARGO) test --locked -p starhop --test gateway -- long

# Sealed and plain, beside iperf3.
bench: ARGS ?= --compare
bench: build
	@scripts/bootstrap.sh iperf3
	target/release/starhop bench $(ARGS)

# The programs for the kernel, compiled anew from crates/kernel/bpf; commit what changes in crates/kernel/objects.
bpf:
	@scripts/bootstrap.sh clang llvm-strip /usr/include/bpf/bpf_helpers.h
	crates/kernel/bpf/build.sh

# Every figure of the papers that takes minutes, with its verdicts; FIGURES="all --long" for the days over the sky.
figures: build
	target/release/starhop figure $${FIGURES:-all} --out figures-out

# docs/RESULTS.md, all of it: hours. It may be cut off and goes on where it was.
results: build
	target/release/starhop figure all --long --out figures-out --results docs/RESULTS.md --resume

# Every fuzz target (parsers, seal, roles) for FUZZ_SECONDS on one core, with the number of inputs; then every
# property test with FUZZ_CASES.
fuzz: bootstrap
	BOLERO_RANDOM_TEST_TIME_MS=$$(($${FUZZ_SECONDS:-60} * 1000)) $(CARGO) test --profile fuzz --locked \
	 -p starhop-proto -p starhop-net --test fuzz -- --nocapture --test-threads=1 2>&1 | tee target/fuzz.log
	@awk '/rng inputs:/ {sub(/.*rng inputs: /, ""); sum += $$1} END {printf "%.3g inputs in total\n", sum}' target/fuzz.log
	PROPTEST_CASES=$${FUZZ_CASES:-20000} $(CARGO) test --profile fuzz --locked --workspace --lib

# README and guides: every number has its source, every link and every test that they name is there.
docs: bootstrap
	$(CARGO) test --locked -p starhop-lab --test documents

# A Debian package and an OCI image layout in target/package, from the release build.
package: build
	scripts/package.sh target/release/starhop target/package

deny: bootstrap
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check

install: bootstrap
	$(CARGO) install --locked --path crates/cli
