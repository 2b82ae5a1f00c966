#!/usr/bin/env bash
# Runs the test programs of a bundle on a device: run-tests [DEVICE [JOBS [GTEST_FILTER]]], from any folder.
# DEVICE: cpu (default) or cuda. Each program is split over JOBS processes (default: the processors, at most 16).
# Ends with one line for each program and a total; exit status 1 if anything failed.
set -uo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
device=${1:-cpu}
jobs=${2:-$(nproc)}
filter=${3:-*}
((jobs > 16)) && jobs=16
logs=${OUT:-$(mktemp -d)}
export ARETE_TEST_DEVICE=$device OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2 ARETE_PROGRAM=$here/../../../bin/arete

failed=0
total=0
for program in "$here"/test_*; do
  [[ -x $program ]] || continue
  name=$(basename "$program")
  # Programs that are not about devices run on the CPU only.
  [[ $device == cpu || $name =~ ^test_(op|grad|prim|unit|cuda)$ ]] || continue
  start=$SECONDS
  pids=()
  for ((i = 0; i < jobs; ++i)); do
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$i timeout "${ARETE_TEST_TIMEOUT:-500}" "$program" --gtest_brief=1 \
      --gtest_filter="$filter" >"$logs/$name.$i.log" 2>&1 &
    pids+=($!)
  done
  bad=()
  for i in "${!pids[@]}"; do
    wait "${pids[$i]}"
    status=$?
    ((status == 0 || status == 77)) || bad+=("shard $i: exit $status")
  done
  cat "$logs/$name".*.log >"$logs/$name.log"
  rm -f "$logs/$name".[0-9]*.log
  passed=$(grep -o '\[  PASSED  \] [0-9]*' "$logs/$name.log" | awk '{n += $4} END {print n + 0}')
  red=$(grep -c '^\[  FAILED  \].*ms)$' "$logs/$name.log")
  total=$((total + passed))
  printf '%-12s %6d passed, %4d failed, %4d s  %s\n' "$name" "$passed" "$red" $((SECONDS - start)) "${bad[*]-}"
  ((${#bad[@]})) && failed=1
done
printf '%d tests passed on %s; logs in %s\n' "$total" "$device" "$logs"
exit $failed
