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
daemon_pid= watch_pid=

say() { printf '\n== %s\n' "$*"; }
millrace() { bazel-bin/client/cli/millrace "$@"; }

clean_up() {
  [ -z "$watch_pid" ] || kill "$watch_pid" 2>/dev/null || true
  [ -n "$daemon_pid" ] || return 0
  # A job that was interrupted would go on when the daemon starts again.
  cancel_unfinished
  kill "$daemon_pid" 2>/dev/null || true
  wait "$daemon_pid" 2>/dev/null || true
  daemon_pid=
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

cancel_unfinished() {
  local job
  for job in $(millrace jobs --all --state queued --state preparing --state running \
    --state pausing --state paused -o json 2>/dev/null | grep -o '"jobs/[^"/]*"' | tr -d '"' | sort -u); do
    millrace cancel "${job#jobs/}" --wait >/dev/null 2>&1 || true
  done
}

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
  # In a session of its own: Ctrl-C is for this script, which then ends the daemon in order.
  setsid bazel-bin/server/millraced --data_dir="$data/node" --listen="$MILLRACE_SERVER" \
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
cancel_unfinished
millrace info

say "Uploading $text"
millrace datasets upload "$run" "$text"

say "Training"
cat >"$out/job.yaml" <<EOF
name: $run
model:
  config:
    model_type: llama
    hidden_size: 192
    intermediate_size: 512
    num_hidden_layers: 4
    num_attention_heads: 3
    max_position_embeddings: 256
    tie_word_embeddings: true
data: {train: datasets/$run, eval_fraction: 0.05, sequence_length: 256}
train:
  steps: 640
  tokens_per_step: 2048
  seed: 7
  optimizer: {learning_rate: 3.0e-3}
  schedule: {name: cosine, warmup_steps: 40}
checkpoint: {every_steps: 320, keep_last: 1}
sample: {every_steps: 320, prompts: ["This "], max_tokens: 400}
EOF
# In the background, so that a signal to this script need not wait for the job.
millrace submit "$out/job.yaml" --id "$run" --watch &
watch_pid=$!
wait "$watch_pid"
watch_pid=

say "Fetching the checkpoint"
millrace checkpoints download "$run" latest --directory "$out/model"

cat <<EOF

The model is in $out/model

Three commands to go on with. The first one starts the daemon again; the last one trains once more, as
the file says when you have edited it.
  bazel-bin/server/millraced --data_dir=$data/node & sleep 3
  bazel-bin/client/cli/millrace show $run
  bazel-bin/client/cli/millrace submit $out/job.yaml --watch
EOF
