#!/usr/bin/env bash
# Compiles every program into ../objects and writes which source each object belongs to; `make bpf` runs it.
set -euo pipefail
cd "$(dirname "$0")"
clang=${CLANG:-clang}
strip=$(command -v llvm-strip || compgen -c llvm-strip- | sort -V | tail -n 1)
mkdir -p ../objects
rm -f ../objects/*
for source in *.c; do
    # Debug information becomes type information; relative paths keep the result the same in every directory.
    "$clang" -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-address-of-packed-member -target bpf -mcpu=v3 \
        -I"/usr/include/$(uname -m)-linux-gnu" -fdebug-prefix-map="$PWD"=. -c "$source" -o "../objects/${source%.c}.o"
    "$strip" -g "../objects/${source%.c}.o"
done
cd ..
sha256sum bpf/* objects/*.o >objects/SHA256SUMS
"$clang" --version | head -n 1 >objects/COMPILER
