#!/usr/bin/env bash
# `make test` with a third of the CPU: a test that fails here, and not otherwise, measures the machine.
#   tools/slow_tests.sh [ARGUMENT OF PYTEST]…
set -euo pipefail
cd "$(dirname "$0")/.."
percent=$(($(nproc) * 100 / 3))
tests=(make --no-print-directory test "ARGS=$*")

if systemd-run --scope --quiet --property=CPUQuota="$percent%" true 2>/dev/null; then
    exec systemd-run --scope --quiet --property=CPUQuota="$percent%" "${tests[@]}"
fi

cleanup=()
trap 'for each in "${cleanup[@]}"; do $each || true; done' EXIT
group=
for parent in /sys/fs/cgroup/cpu /sys/fs/cgroup; do # version 1, version 2
    made=$parent/klaw-tests-$$
    mkdir "$made" 2>/dev/null || continue
    cleanup+=("rmdir $made")
    if { echo $((percent * 1000)) >"$made/cpu.cfs_quota_us" || echo "$((percent * 1000)) 100000" >"$made/cpu.max"; } 2>/dev/null; then
        group=$made
        break
    fi
done
if [ -n "$group" ]; then
    echo "at most $percent % of one core"
    tests=(bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "${tests[@]}")
else
    echo "no control group can be made here: two busy loops for each core take the rest of the CPU"
    for _ in $(seq $((2 * $(nproc)))); do
        (while :; do :; done) &
        cleanup+=("kill $!")
    done
fi
time "${tests[@]}"
