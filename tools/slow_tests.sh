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
if mkdir "/sys/fs/cgroup/cpu/klaw-tests-$$" 2>/dev/null; then
    group=/sys/fs/cgroup/cpu/klaw-tests-$$ # cgroup v1
    cleanup+=("rmdir $group")
    echo "$((percent * 1000))" >"$group/cpu.cfs_quota_us"
elif mkdir "/sys/fs/cgroup/klaw-tests-$$" 2>/dev/null; then
    group=/sys/fs/cgroup/klaw-tests-$$ # cgroup v2
    cleanup+=("rmdir $group")
    echo "$((percent * 1000)) 100000" >"$group/cpu.max"
else
    echo "no control group can be made here: two busy loops for each core take the rest of the CPU"
    for _ in $(seq $((2 * $(nproc)))); do
        (while :; do :; done) &
        cleanup+=("kill $!")
    done
fi
if [ -n "${group:-}" ]; then
    echo "at most $percent % of one core"
    tests=(bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "${tests[@]}")
fi
time "${tests[@]}"
