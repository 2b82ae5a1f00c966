#!/bin/sh
# Runs one fuzz target: run.sh PROGRAM SEEDS WORK. SEEDS (may be absent) is read only; what is found new goes to WORK,
# so that a later run starts where this one ended. ARETE_FUZZ_SECONDS sets the time, and the seed is another each
# time; without it there are as many inputs on each machine and at any load, of one seed. (libFuzzer's differ a little all
# the same.)
set -eu
program=$1 seeds=$2 work=$3
if [ -n "${ARETE_FUZZ_SECONDS:-}" ]; then
  how=-max_total_time=$ARETE_FUZZ_SECONDS
else
  case $program in
    *_checkpoint | *_metrics_log | *_program) runs=8000 ;;  # through files, or run: slow ones
    *) runs=20000 ;;
  esac
  how="-seed=1 -runs=$runs"
fi
mkdir -p "$work/corpus"
if [ ! -d "$seeds" ]; then
  seeds=
fi
# ${seeds:+...}: the argument is there only if the folder is.
# shellcheck disable=SC2086
exec "$program" $how -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
  -verbosity=0 -artifact_prefix="$work/" "$work/corpus" ${seeds:+"$seeds"}
