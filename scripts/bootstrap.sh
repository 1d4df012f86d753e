#!/usr/bin/env bash
# Installs what building and running need and this machine lacks, on Debian and Ubuntu. Says what it does;
# does nothing, at once, where nothing is missing. Further arguments name commands, or headers by their path, to install as well.
set -euo pipefail

# Keep in step with rust-version in Cargo.toml, from where it is read.
root=$(cd "$(dirname "$0")/.." && pwd)
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
export PATH="$PATH:$HOME/.cargo/bin"

say() { echo "bootstrap: $*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; return; fi
    if command -v sudo >/dev/null; then sudo "$@"; return; fi
    say "this needs root, and there is no sudo: run as root: $*"
    exit 1
}

apt_updated=
apt_install() {
    if ! command -v apt-get >/dev/null; then
        say "missing: $*. This system has no apt-get; install them by its own means and try again."
        exit 1
    fi
    say "installing $*"
    if [ -z "$apt_updated" ]; then as_root apt-get update -qq; apt_updated=1; fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# is_recent CANDIDATE: whether it is at least the wanted version.
is_recent() { [ "$(printf '%s\n%s\n' "$wanted" "$1" | sort -V | head -n 1)" = "$wanted" ]; }

rust_version() { cargo --version 2>/dev/null | awk '{print $2}'; }

# The version that apt would install of a package, without epoch and revision.
apt_candidate() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9.]*\).*/\2/p'
}

install_rust() {
    if command -v rustup >/dev/null; then
        say "installing the stable Rust toolchain with rustup"
        rustup toolchain install stable --profile minimal --component rustfmt --component clippy
        rustup default stable
        return
    fi
    if command -v apt-get >/dev/null; then
        as_root apt-get update -qq; apt_updated=1
        candidate=$(apt_candidate cargo)
        if [ -n "$candidate" ] && is_recent "$candidate"; then
            apt_install cargo rustc rustfmt rust-clippy
            return
        fi
        if [ -n "$(apt_candidate rustup)" ]; then
            apt_install rustup
            install_rust
            return
        fi
    fi
    say "this system's Rust is older than $wanted: installing rustup from https://sh.rustup.rs into ~/.cargo"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --profile minimal --component rustfmt --component clippy --no-modify-path
}

missing=()
command -v cc >/dev/null && command -v make >/dev/null || missing+=(build-essential)
command -v curl >/dev/null || missing+=(curl ca-certificates)
# What libbpf is built with, for `starhop tcp`; not needed with --no-default-features.
command -v pkg-config >/dev/null || missing+=(pkg-config)
has_header() { echo "#include <$1>" | cc -E - >/dev/null 2>&1; }
has_header libelf.h || missing+=(libelf-dev)
has_header zlib.h || missing+=(zlib1g-dev)
for wanted_too in "$@"; do
    case $wanted_too in
    /usr/include/bpf/*) [ -e "$wanted_too" ] || missing+=(libbpf-dev) ;;
    llvm-strip) compgen -c llvm-strip >/dev/null || missing+=(llvm) ;;
    nft) command -v nft >/dev/null || [ -x /usr/sbin/nft ] || missing+=(nftables) ;;
    ip) command -v ip >/dev/null || [ -x /usr/sbin/ip ] || missing+=(iproute2) ;;
    nginx) command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light) ;;
    iptables) command -v iptables >/dev/null || [ -x /usr/sbin/iptables ] || missing+=(iptables) ;;
    *) command -v "$wanted_too" >/dev/null || missing+=("$wanted_too") ;;
    esac
done
[ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"

version=$(rust_version || true)
if [ -z "$version" ] || ! is_recent "$version"; then
    say "Rust ${version:-(none)} is here, $wanted is needed"
    install_rust
    version=$(rust_version || true)
    if [ -z "$version" ] || ! is_recent "$version"; then
        say "Rust is still ${version:-missing}; see https://rustup.rs"
        exit 1
    fi
fi
