#!/bin/bash
# From a fresh clone to a trained model: installs what is missing, builds, starts a daemon of its
# own, trains a small model on text, shows it, and stops what it started.
#
#   deploy/quickstart.sh [TEXT_FILE_OR_FOLDER]    default: the licence texts of the system
#
# Everything that it makes lies under ${XDG_DATA_HOME:-~/.local/share}/millrace/quickstart.
set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \?//;p}' "$0" && exit 0 ;;
esac
text=$(realpath -m -- "${1:-/usr/share/common-licenses}")
[ -r "$text" ] || { echo "quickstart: $text: no such file or folder, or not readable" >&2 && exit 1; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=${XDG_DATA_HOME:-$HOME/.local/share}/millrace/quickstart
run=run-$(date +%Y%m%d-%H%M%S)
out=$data/$run
daemon_pid=

say() { printf '\n== %s\n' "$*"; }
millrace() { bazel-bin/client/cli/millrace "$@"; }

stop_daemon() {
  [ -n "$daemon_pid" ] || return 0
  kill "$daemon_pid" 2>/dev/null || true
  wait "$daemon_pid" 2>/dev/null || true
  daemon_pid=
}
trap stop_daemon EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A port of loopback where nobody listens.
free_port() {
  local port
  while port=$((20000 + RANDOM % 20000)); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
  done
}

start_daemon() {
  local port
  port=$(free_port)
  export MILLRACE_SERVER=127.0.0.1:$port
  bazel-bin/server/millraced --data_dir="$data/node" --listen="$MILLRACE_SERVER" \
    --http_listen="127.0.0.1:$(free_port)" >"$out/millraced.log" 2>&1 &
  daemon_pid=$!
  for _ in $(seq 100); do
    millrace info >/dev/null 2>&1 && return 0
    kill -0 "$daemon_pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "quickstart: the daemon did not start; it said:" >&2
  cat "$out/millraced.log" >&2
  exit 1
}

say "Building (the first time takes some minutes)"
deploy/install_deps.sh
bazel build --curses=no --show_progress_rate_limit=15 --ui_event_filters=-info \
  //server:millraced //server/worker:millrace-worker //client/cli:millrace

say "Starting a daemon of its own on loopback"
mkdir -p -m 700 "$data" "$out"
start_daemon
millrace info

say "Uploading $text"
millrace datasets upload "$run" "$text"

say "Training"
cat >"$out/job.yaml" <<EOF
name: $run
model:
  config:
    model_type: llama
    hidden_size: 256
    intermediate_size: 640
    num_hidden_layers: 4
    num_attention_heads: 4
    max_position_embeddings: 256
    tie_word_embeddings: true
data: {train: datasets/$run, eval_fraction: 0.05, sequence_length: 256}
train:
  steps: 400
  tokens_per_step: 4096
  seed: 7
  optimizer: {learning_rate: 2.0e-3}
  schedule: {name: cosine, warmup_steps: 20}
checkpoint: {every_steps: 200}
sample: {every_steps: 200, prompts: ["This License "], max_tokens: 300}
EOF
millrace submit "$out/job.yaml" --id "$run" --watch

say "Fetching the checkpoint"
millrace checkpoints download "$run" latest --directory "$out/model"

cat <<EOF

The model is in $out/model

Three commands to go on with, the first of which starts the daemon again:
  bazel-bin/server/millraced --data_dir=$data/node &
  bazel-bin/client/cli/millrace show $run
  bazel-bin/client/cli/millrace submit $out/job.yaml --watch     # edit it first
EOF
