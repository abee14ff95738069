#!/bin/bash
# Several commands beside each other on one GPU, within a limit of time.
#
#   [LANES=3] tools/on_one_gpu.sh SECONDS LOGS COMMAND [COMMAND ...]
#   tools/on_one_gpu.sh 540 logs "casper reproduce main --dataset aqi36 --row paper --seeds 0 -q" "casper evaluate ..."
#   tools/on_one_gpu.sh 540 logs < commands.txt      one command a line, what follows a # is left out
#
# NVIDIA's MPS lets them compute at the same time instead of in turns: small networks leave most of a GPU idle. LANES of
# them run at a time, the others wait for their turn. "casper" at the beginning of a command is the one of this checkout.
# Each command has a log in LOGS. What is not done in time is stopped; the same call made again skips what was done, and
# `casper reproduce` goes on from its checkpoint. Exit code: how many failed or were not done.
#
# Three or four lanes: with a dozen all of them crawl, and many small kernels (METR-LA's patches, recurrent networks)
# starve beside few large ones. A command that is killed takes the others of the same GPU with it: let them be.
set -u
lanes=${LANES:-3} deadline=$((SECONDS + $1)) logs=$2
shift 2
cd "$(dirname "$0")/.." || exit 1
commands=("$@")
if [ ${#commands[@]} -eq 0 ]; then
    mapfile -t commands < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d')
fi
mkdir -p "$logs"
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
export CUDA_MPS_PIPE_DIRECTORY=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/mps} CUDA_MPS_LOG_DIRECTORY=${CUDA_MPS_LOG_DIRECTORY:-/tmp/mps}
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d

is_done() { # number of a command: whether its mark says so
    [ -e "$logs/$1.done" ] && [ "$(cat "$logs/$1.done")" = "${commands[$1]}" ]
}

run_one() { # number of a command: leaves its log, and a mark when it is done
    local command=${commands[$1]} left=$((deadline - SECONDS))
    is_done "$1" && return 0
    [ $left -gt 0 ] || return 124
    timeout "$left" bash -c "${command/#casper /python3 -m casper }" > "$logs/$1.log" 2>&1 || return $?
    echo "$command" > "$logs/$1.done"
}

running=0
for number in "${!commands[@]}"; do
    if [ $running -ge "$lanes" ]; then
        wait -n
        running=$((running - 1))
    fi
    run_one "$number" &
    running=$((running + 1))
done
wait
failed=0
for number in "${!commands[@]}"; do
    if is_done "$number"; then
        state=done
    else
        state="not done"
        failed=$((failed + 1))
    fi
    echo "$number: $state: ${commands[$number]}"
    [ -e "$logs/$number.log" ] && tail -n 2 "$logs/$number.log"
done
command -v nvidia-cuda-mps-control > /dev/null && echo quit | nvidia-cuda-mps-control
exit $failed
