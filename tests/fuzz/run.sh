#!/bin/sh
# Runs one fuzz target: run.sh PROGRAM SEEDS WORK. SEEDS (may be absent) is read only; what is found new goes to WORK,
# so that a later run starts where this one ended. ARETE_FUZZ_SECONDS sets the time, 10 by default.
set -eu
program=$1 seeds=$2 work=$3
seconds=${ARETE_FUZZ_SECONDS:-10}
mkdir -p "$work/corpus"
if [ ! -d "$seeds" ]; then
  seeds=
fi
# ${seeds:+...}: the argument is there only if the folder is.
exec "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
  -verbosity=0 -artifact_prefix="$work/" "$work/corpus" ${seeds:+"$seeds"}
