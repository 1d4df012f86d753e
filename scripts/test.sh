#!/usr/bin/env bash
# All tests, in three lanes. Those that compare real processes with the clock have the machine for themselves. Then the other real
# processes, which wait most of the time; the tests in virtual time run beside them, when the processor has nothing else to do
# (SCHED_IDLE), or afterwards where that cannot be asked for. Output goes to target/test.log, too.
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

names() { for file in "$@"; do basename "$file" .rs; done | sort -u; }
tests() { sed 's/^/--test /' | tr '\n' ' '; }

strict=$(printf '%s\n' carry crowds driver emulate emulated tcp xcp)
# Tests of the program that start no other.
alone=$(printf '%s\n' figures orbit outputs)
real=$(names crates/cli/tests/*.rs crates/net/tests/*.rs | grep -vxF "$strict" | grep -vxF "$alone")
simulated=$(names crates/*/tests/*.rs | grep -vxF "$strict" | grep -vxF "$real")

# The packages are the same each time, so that their features are, too, and nothing is built twice.
run() { "$cargo" test --workspace --locked "$@"; }

mkdir -p target
run --no-run || exit 1
: >target/test.log
log() { tee -a target/test.log; }
failed=0
run $(tests <<<"$strict") 2>&1 | log || failed=1
if chrt -i 0 true 2>/dev/null; then
    chrt -i 0 "$cargo" test --workspace --locked --lib --bins $(tests <<<"$simulated") >target/test-simulated.log 2>&1 &
    beside=$!
    run $(tests <<<"$real") 2>&1 | log || failed=1
    wait $beside || failed=1
    log <target/test-simulated.log
else
    run $(tests <<<"$real") 2>&1 | log || failed=1
    run --lib --bins $(tests <<<"$simulated") 2>&1 | log || failed=1
fi
run --doc 2>&1 | log || failed=1
awk '/^skipped [0-9]+ tests:/ {sum += $2} END {printf "%d tests were skipped; target/test.log says why\n", sum}' target/test.log
exit $failed
