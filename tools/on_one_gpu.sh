#!/bin/bash
# Several commands beside each other on one GPU, within a limit of time.
#
#   tools/on_one_gpu.sh SECONDS LOGS COMMAND [COMMAND ...]
#   tools/on_one_gpu.sh 540 logs "casper reproduce main --dataset aqi36 --row paper --seeds 0 -q" "casper evaluate ..."
#
# NVIDIA's MPS lets them compute at the same time instead of in turns: small networks leave most of a GPU idle. "casper"
# at the beginning of a command is the one of this checkout. Each command has a log in LOGS; one that is not done in time
# is stopped, and `casper reproduce` goes on from its checkpoint when it is started again. Exit code: how many failed.
#
# Three or four trainings at a time: with a dozen all of them crawl, and many small kernels (METR-LA's patches, recurrent
# networks) starve beside few large ones. A command killed by hand (SIGKILL) takes the others of the same GPU with it.
set -u
limit=$1 logs=$2
shift 2
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$logs"
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2
export CUDA_MPS_PIPE_DIRECTORY=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/mps} CUDA_MPS_LOG_DIRECTORY=${CUDA_MPS_LOG_DIRECTORY:-/tmp/mps}
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d

processes=()
for number in $(seq $#); do
    command=${!number}
    command=${command/#casper /python3 -m casper }
    timeout "$limit" bash -c "$command" > "$logs/$number.log" 2>&1 &
    processes+=($!)
done
failed=0
for number in $(seq $#); do
    wait "${processes[$((number - 1))]}"
    code=$?
    [ $code -eq 0 ] || failed=$((failed + 1))
    echo "$number: exit code $code after at most $SECONDS s: ${!number}"
    tail -n 2 "$logs/$number.log"
done
command -v nvidia-cuda-mps-control > /dev/null && echo quit | nvidia-cuda-mps-control
exit $failed
