#!/bin/bash
# End to end: cli_test.sh ZERORUN [MPIEXEC]. What a user does, and does wrong: exit codes, one
# message of one rank, the same bits on any ranks, stop and resume, ranks that vanish.
set -u
zerorun=$1
mpiexec=${2:-}
# Open MPI itself leaks: leaks are looked for on one rank alone.
under_mpi=(env "ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}" "$mpiexec")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
n_failed=0

fail() {
  echo "FAILED: $*"
  n_failed=$((n_failed + 1))
}

# A text with some structure, and token files, good and bad.
python3 - <<'PY' || exit 77
import random, struct
random.seed(5)
words = [bytes(random.choice(b"abcdefghij") for _ in range(random.randint(2, 6))) for _ in range(50)]
open("text.txt", "wb").write(b" ".join(random.choice(words) for _ in range(8000)))
open("eval.txt", "wb").write(b" ".join(random.choice(words) for _ in range(400)))
open("empty.txt", "wb")
def tokens(name, magic, said, ids):
    with open(name, "wb") as f:
        f.write(struct.pack("<256i", magic, 1, said, *[0] * 253))
        f.write(struct.pack("<%dH" % len(ids), *ids))
ids = [random.randrange(100) for _ in range(5000)]
tokens("good.bin", 20240520, 5000, ids)
tokens("magic.bin", 7, 5000, ids)
tokens("cut.bin", 20240520, 6000, ids)
ids[4321] = 300
tokens("vocab.bin", 20240520, 5000, ids)
PY

cat > base.yaml <<'YAML'
model: {architectures: [LlamaForCausalLM], vocab_size: 256, hidden_size: 64, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 160}
data: {train: text.txt, eval: eval.txt, tokenizer: byte, seq_len: 32}
run: {steps: 8, eval_every: 4, eval_batches: 2, digest: states, log_every: 2, threads: 1}
checkpoint: {every: 4}
train_batch_size: 16
train_micro_batch_size_per_gpu: 2
gradient_clipping: 1.0
optimizer: {params: {lr: 2e-3, weight_decay: 0.1}}
scheduler: {type: Cosine, params: {warmup_num_steps: 2, min_lr: 1e-4}}
zero_optimization: {stage: 3}
YAML

# run RANKS args...: rc in $rc, output in out, err
run() {
  local ranks=$1
  shift
  if [ "$ranks" = 1 ]; then
    timeout 60 "$zerorun" "$@" >out 2>err
  else
    timeout 60 "${under_mpi[@]}" -n "$ranks" "$zerorun" "$@" >out 2>err
  fi
  rc=$?
}

# bad CODE TEXT args...: that exit code and exactly one message, on every rank count
bad() {
  local code=$1 text=$2
  shift 2
  for ranks in 1 ${mpiexec:+2}; do
    local begin=$(date +%s%N)
    run "$ranks" "$@"
    local ms=$((($(date +%s%N) - begin) / 1000000))
    local n=$(grep -c '^zerorun.*error:' err)
    [ "$rc" = "$code" ] || fail "$* on $ranks: exit code $rc, not $code: $(cat err)"
    [ "$n" = 1 ] || fail "$* on $ranks: $n messages, not 1: $(cat err)"
    grep -qF -- "$text" err || fail "$* on $ranks: no '$text' in: $(grep error: err)"
    [ "$ms" -lt 15000 ] || fail "$* on $ranks: took $ms ms"
  done
}

bad_input() {
  echo 'run: {stepz: 3}' >unknown.yaml
  echo 'run: {steps: many}' >type.yaml
  printf 'run:\n  steps: 3\n run: 4\n' >yaml.yaml
  bad 2 "unknown.yaml:1:7: unknown key 'run.stepz'; did you mean 'run.steps'?" unknown.yaml
  bad 2 "type.yaml:1:7: 'run.steps' must be an integer of at least 1, not 'many'" type.yaml
  bad 2 "yaml.yaml:3:2: not YAML" yaml.yaml
  bad 2 "none.yaml: can not be opened: No such file" none.yaml
  bad 2 "unknown option --bogus" --bogus base.yaml
  bad 2 "no configuration is named"
  bad 2 "must be an integer of at least 1, not '0'" --set run.steps=0 base.yaml
  bad 2 "'train_batch_size' = 7 is not" --set train_batch_size=7 base.yaml
  bad 2 "leave one of the three out" --set gradient_accumulation_steps=9 base.yaml
  bad 2 "'fp16.enabled' = true and 'bf16.enabled' = true (--set) exclude each other" \
    --set bf16.enabled=true --set fp16.enabled=true base.yaml
  bad 2 "plan.group: 2^7 does not divide" --set plan.group=7 base.yaml
  bad 3 "can not open gone.txt: No such file" --set data.train=gone.txt base.yaml
  bad 3 "no file matches gone*.txt" --set 'data.train=gone*.txt' base.yaml
  bad 3 "empty.txt is empty" --set data.train=empty.txt base.yaml
  bad 3 "eval.txt holds" --set data.eval=eval.txt --set data.train=eval.txt \
    --set data.seq_len=100000 base.yaml
  bad 3 "text.txt is not a token file" --set data.tokenizer=null base.yaml
  sed 's/tokenizer: byte, //; s/eval: eval.txt, //; s/eval_every: 4, //' base.yaml >tokens.yaml
  bad 3 "magic.bin is not an llm.c token file" --set data.train=magic.bin \
    --set data.format=llm.c tokens.yaml
  bad 2 "'data.format' is that of token files" --set data.format=nanogpt base.yaml
  bad 3 "cut.bin is cut off: its header says 6000 tokens" --set data.train=cut.bin tokens.yaml
  bad 3 "vocab.bin: token 4321 (from 0) is 300, but model.vocab_size is 256" \
    --set data.train=vocab.bin tokens.yaml
  bad 4 "missing" --set memory.device=1MiB base.yaml
  bad 5 "can not make the folder /proc/zerorun" --set run.dir=/proc/zerorun base.yaml
  bad 7 "run.max_skipped" --set run.dir=runs/nan --set run.max_skipped=3 \
    --set optimizer.params.lr=1e30 --set gradient_clipping=0 --set scheduler.type=Constant base.yaml
  bad 7 "not finite at the least loss scale, 65536" --set run.dir=runs/scale --set fp16.enabled=true \
    --set fp16.min_loss_scale=65536 --set optimizer.params.lr=1e4 --set gradient_clipping=0 \
    --set scheduler.type=Constant base.yaml
  bad 7 "became NaN; lower the learning rate" --set run.dir=runs/bad-parameter \
    --set optimizer.params.lr=1e38 --set gradient_clipping=0 --set scheduler.type=Constant base.yaml
}

full_disk() {
  mkdir full
  mount -t tmpfs -o size=600k tmpfs full 2>/dev/null || { echo "skip full_disk: no mount"; return; }
  bad 4 "No space left on device; free some space" --set run.dir=full/run base.yaml
  umount full
}

commands() {
  run 1 --version
  [ "$rc" = 0 ] && grep -q '^zerorun [0-9]' out || fail "--version"
  run 1 --help
  grep -q 'exit codes' out || fail "--help"
  run 1 help options
  grep -q '`zero_optimization.stage`' out || fail "help options"
  run 1 plan --ranks 4 base.yaml
  [ "$rc" = 0 ] && grep -q 'stage 3, 4 ranks' out || fail "plan: $(cat err)"
  run 1 plan --ranks 2 --dump-after=hoist base.yaml
  grep -q all_gather out || fail "plan --dump-after"
  run 1 --print-config --set run.seed=77 base.yaml
  cp out printed.yaml
  grep -q 'seed: 77' out || fail "--print-config"
  run 1 --print-config printed.yaml
  diff <(sed 's/ *# default//' out) <(sed 's/ *# default//' printed.yaml) >/dev/null ||
    fail "--print-config does not read back"
  run 1 --check --set run.dir=runs/check base.yaml
  [ "$rc" = 0 ] && [ ! -e runs/check/checkpoints ] || fail "--check: $(cat err)"
}

# The digest and loss of each step, and the evaluations.
bits() {
  python3 - "$1" <<'PY'
import json, sys
for line in open(sys.argv[1] + "/log.jsonl"):
    e = json.loads(line)
    if e["event"] == "step":
        print(e["step"], e["loss"], e["grad_norm"], e["digest_params"], e["digest_states"])
    if e["event"] == "eval":
        print("eval", e["step"], e["loss"], e["tokens"])
PY
}

same() {
  diff <(bits runs/one | sort -u) <(bits "$1" | sort -u) >diff.txt || fail "$1: other bits: $(head -4 diff.txt)"
}

exactness() {
  run 1 --set run.dir=runs/one base.yaml
  [ "$rc" = 0 ] || fail "one rank: $(cat err)"
  [ "$(bits runs/one | grep -c '^[0-9]')" = 8 ] || fail "one rank: not 8 steps"
  [ "$(bits runs/one | grep -c '^eval')" = 2 ] || fail "one rank: not 2 evaluations"
  run 1 --set run.dir=runs/serial --set run.serial=true --set run.threads=3 \
    --set run.poison=255 base.yaml
  same runs/serial
  # stop and resume; another run of fewer steps is not the same schedule, so it is stopped
  run 1 --set run.dir=runs/stage0 --set zero_optimization.stage=0 --set plan.order=breadth base.yaml
  same runs/stage0
  [ -n "$mpiexec" ] || return
  for ranks in 2 4 8; do
    run $ranks --set run.dir=runs/r$ranks --set run.delay_us=200 base.yaml
    [ "$rc" = 0 ] || fail "$ranks ranks: $(cat err)"
    same runs/r$ranks
  done
}

# A run that ends at its checkpoint of step 4 continues elsewhere with the same bits.
resume() {
  for from in 1 ${mpiexec:+2}; do
    rm -rf runs/part
    run $from --set run.dir=runs/part base.yaml
    echo step-00000004 >runs/part/checkpoints/latest
    for to in 1 ${mpiexec:+2 4}; do
      rm -rf runs/again
      cp -r runs/part runs/again
      run $to --set run.dir=runs/again --set zero_optimization.stage=$((to % 4)) base.yaml
      [ "$rc" = 0 ] || fail "resume from $from on $to: $(cat err)"
      same runs/again
    done
  done
  run 1 --set run.dir=runs/again base.yaml
  [ "$rc" = 0 ] && grep -q 'this run is finished' out || fail "a finished run says so: $(cat out err)"
  run 1 --set run.dir=runs/again --set run.steps=12 --set optimizer.params.lr=1e-3 base.yaml
  [ "$rc" = 2 ] && grep -q 'optimizer.params.lr: 0.002, now it is 0.001' err ||
    fail "other options: $rc $(cat err)"
  run 1 --set run.dir=runs/again --set run.steps=12 --set checkpoint.ignore_options=true base.yaml
  [ "$rc" = 0 ] || fail "other options, ignored: $(cat err)"
}

# Each optimizer and schedule learns, and goes on from a checkpoint, elsewhere, with the same bits.
optimizers() {
  local name optimizer scheduler
  while IFS='|' read -r name optimizer scheduler; do
    grep -v '^optimizer:\|^scheduler:\|^run:\|^checkpoint:' base.yaml >o.yaml
    printf '%s\n' "optimizer: $optimizer" "scheduler: $scheduler" 'checkpoint: {every: 12}' \
      'run: {steps: 24, digest: states, threads: 1}' >>o.yaml
    rm -rf runs/one runs/o
    run 1 --set run.dir=runs/one o.yaml
    [ "$rc" = 0 ] || fail "$name: $(cat err)"
    python3 - <<'PY' || fail "$name does not learn"
import json, sys
losses = [e["loss"] for e in map(json.loads, open("runs/one/log.jsonl")) if e["event"] == "step"]
sys.exit(not (len(losses) == 24 and 5.4 < losses[0] < 5.7 and sum(losses[-4:]) < 3.9 * losses[0]))
PY
    cp -r runs/one runs/o
    echo step-00000012 >runs/o/checkpoints/latest
    run $((${#mpiexec} > 0 ? 2 : 1)) --set run.dir=runs/o --set zero_optimization.stage=2 o.yaml
    [ "$rc" = 0 ] || fail "$name, resumed: $(cat err)"
    same runs/o
  done <<'LIST'
Adam|{type: Adam, params: {lr: 2e-3, weight_decay: 0.01, adam_w_mode: false}}|{type: WarmupLR, params: {warmup_max_lr: auto, warmup_num_steps: 4}}
SGD|{type: SGD, params: {lr: 0.1}}|{type: WarmupDecayLR, params: {warmup_max_lr: auto, warmup_num_steps: 1}}
SGD Nesterov|{type: SGD, params: {lr: 0.03, momentum: 0.9, nesterov: true, weight_decay: 0.01}}|{type: Linear}
Lion|{type: Lion, params: {lr: 5e-4, weight_decay: 0.1}, decay: matrices}|{type: WSD, params: {warmup_num_steps: 4, decay_num_steps: 8}}
Adagrad|{type: Adagrad, params: {initial_accumulator_value: 0.01}}|{type: WarmupCosineLR, params: {warmup_num_steps: 4}}
OneCycle|{type: AdamW, params: {weight_decay: 0.1}}|{type: OneCycle, params: {cycle_min_lr: 1e-4, cycle_max_lr: 4e-3, cycle_first_step_size: 10}}
bf16 states|{type: AdamW, state_dtype: bf16, params: {lr: 2e-3}}|{type: Constant}
LIST
}

damage() {
  for ranks in 1 ${mpiexec:+2}; do
    rm -rf runs/bad
    run $ranks --set run.dir=runs/bad base.yaml
    local file=$(ls runs/bad/checkpoints/step-00000008/rank-*"$((ranks - 1))"-of-*)
    cp "$file" kept
    printf 'x' | dd of="$file" bs=1 seek=300000 conv=notrunc status=none
    run $ranks --set run.dir=runs/bad --set run.steps=9 --set checkpoint.ignore_options=true base.yaml
    [ "$rc" = 3 ] || fail "a damaged file on $ranks: exit code $rc: $(cat err)"
    [ "$(grep -c 'error:' err)" = 1 ] || fail "a damaged file on $ranks: $(cat err)"
    grep -q "$file is damaged" err || fail "a damaged file on $ranks: $(cat err)"
    truncate -s 2000 "$file"
    run $ranks --set run.dir=runs/bad --set run.steps=9 --set checkpoint.ignore_options=true base.yaml
    [ "$rc" = 3 ] && grep -q "$file is cut off" err || fail "a cut file on $ranks: $rc $(cat err)"
  done
}

wait_for() { # file pattern
  for _ in $(seq 200); do
    grep -q "$2" "$1" 2>/dev/null && return 0
    sleep 0.05
  done
  fail "no '$2' in $1"
}

signals() {
  for ranks in 1 ${mpiexec:+2}; do
    rm -rf runs/sig
    local launcher=()
    [ $ranks = 1 ] || launcher=("${under_mpi[@]}" -n $ranks)
    "${launcher[@]}" "$zerorun" --set run.dir=runs/sig --set run.steps=1000000 \
      --set run.eval_every=0 --set checkpoint.every=0 base.yaml >out 2>err &
    local job=$!
    wait_for runs/sig/log.jsonl '"step":3,'
    local pid=$(pgrep -f "run.dir=runs/sig" | tail -1)
    kill -USR1 "$pid"
    wait_for runs/sig/log.jsonl '"event":"save"'
    kill -TERM "$pid"
    wait $job
    rc=$?
    [ $rc = 0 ] || fail "SIGTERM on $ranks: exit code $rc: $(cat err)"
    grep -q '"reason":"stopped"' runs/sig/log.jsonl || fail "SIGTERM on $ranks: no end: $(cat err)"
    [ -e runs/sig/checkpoints/latest ] || fail "SIGTERM on $ranks: nothing saved"
  done
}

vanish() {
  [ -n "$mpiexec" ] || return
  rm -rf runs/gone
  "${under_mpi[@]}" -n 3 "$zerorun" --set run.dir=runs/gone --set run.steps=1000000 \
    --set train_batch_size=12 --set run.eval_every=0 base.yaml >out 2>err &
  local job=$!
  wait_for runs/gone/log.jsonl '"step":3,'
  local victim=$(pgrep -x -f "$zerorun --set run.dir=runs/gone.*" | tail -1)
  local begin=$(date +%s)
  kill -KILL "$victim"
  wait $job
  rc=$?
  [ $rc != 0 ] || fail "a killed rank: exit code 0"
  [ $(($(date +%s) - begin)) -le 10 ] || fail "a killed rank: the job took too long to end"
  [ "$(grep -c 'zerorun.*vanished' err)" = 1 ] || fail "a killed rank: $(cat err)"
}

json_lines() {
  run 1 --json --set run.dir=runs/json base.yaml
  python3 - <<'PY' || fail "--json"
import json
lines = [json.loads(line) for line in open("out")]
assert lines == [json.loads(line) for line in open("runs/json/log.jsonl")]
assert [e["event"] for e in lines].count("step") == 8
assert lines[0]["event"] == "start" and lines[-1]["event"] == "end"
step = next(e for e in lines if e["event"] == "step")
want = {"event", "step", "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "step_s", "exposed_s",
        "bound_s", "mfu", "skipped", "peak_bytes", "bytes", "digest_params", "digest_states"}
assert set(step) == want, set(step) ^ want
assert set(step["bytes"]) == {"comm", "h2d", "d2h", "disk_read", "disk_write"}
assert set(step["peak_bytes"]) == {"device", "host", "disk"}
assert len(step["digest_params"]) == 16 and step["tokens"] == 16 * 32
plan = json.load(open("runs/json/plan.json"))
assert plan["plans"]["step"]["tiers"]["device"]["arena_bytes"] == step["peak_bytes"]["device"]
PY
}

parts=${3:-commands bad_input full_disk json_lines exactness resume optimizers damage signals vanish}
for part in $parts; do
  before=$n_failed
  $part
  [ $n_failed = $before ] && echo "ok $part"
done
[ $n_failed = 0 ]
