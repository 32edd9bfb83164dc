"""Whole runs of zerorun: configuration, start alone or under mpirun, what it left.

Every process that a job started carries the job's mark in its environment; that is how ranks are
found and how whatever is left behind is ended.
"""

import atexit
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

LONG = os.environ.get("ZR_TEST_LONG", "0") not in ("", "0")
SLOW = float(os.environ.get("ZR_E2E_SLOW", "1"))  # sanitizers: how many times as slow
MARK = "ZR_E2E_JOB"
MPI_ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "self,vader",
}

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "tie_word_embeddings": False,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 3,
    "n_positions": 32,
}
CLIPPING = 1.35  # acts on some of the first steps of both models
EXACT = ("loss", "grad_norm", "lr", "tokens", "skipped", "digest_params", "digest_states")


def text_file(path, n_bytes, seed):
    """Words from a small generator: the same bytes everywhere, with something to learn in them."""
    words = [
        "the",
        "day",
        "of",
        "wind",
        "and",
        "sea",
        "was",
        "upon",
        "a",
        "river",
        "light",
        "said",
        "unto",
    ]
    state, text = seed, []
    length = 0
    while length < n_bytes:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        word = words[(state >> 33) % len(words)]
        word += ".\n" if (state >> 45) % 9 == 0 else " "
        text.append(word)
        length += len(word)
    with open(path, "w") as file:
        file.write("".join(text)[:n_bytes])


class Job:
    """A started command."""

    def __init__(self, command, env, folder):
        self.mark = uuid.uuid4().hex
        self.begun = time.monotonic()
        self.stdout_path = os.path.join(folder, self.mark + ".out")
        self.stderr_path = os.path.join(folder, self.mark + ".err")
        with open(self.stdout_path, "w") as out, open(self.stderr_path, "w") as err:
            self.process = subprocess.Popen(
                command,
                env=dict(os.environ, **MPI_ENV, **env, **{MARK: self.mark}),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _marked(self):
        """{process id: its environment} of the living processes of this job."""
        found = {}
        wanted = "%s=%s" % (MARK, self.mark)
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open("/proc/%s/environ" % name, "rb") as file:
                    pairs = file.read().decode(errors="replace").split("\0")
                with open("/proc/%s/stat" % name) as file:
                    state = file.read().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if wanted in pairs and state != "Z":
                found[int(name)] = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        return found

    def ranks(self):
        """{rank: process id}"""
        return {
            int(env["OMPI_COMM_WORLD_RANK"]): pid
            for pid, env in self._marked().items()
            if "OMPI_COMM_WORLD_RANK" in env
        }

    def is_running(self):
        return self.process.poll() is None

    def wait(self, timeout):
        """The result; what is still there after `timeout` seconds is ended and fails the test."""
        late = False
        try:
            self.process.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            late = True
        seconds = time.monotonic() - self.begun
        left = self._leftovers()
        if late:
            raise AssertionError(
                "still running after %g s: %s\n%s"
                % (timeout * SLOW, self.process.args, self.said())
            )
        assert not left, "processes left behind: %s" % left
        return Result(
            self.process.returncode, seconds, read(self.stdout_path), read(self.stderr_path)
        )

    def said(self):
        return read(self.stdout_path)[-3000:] + read(self.stderr_path)[-3000:]

    def _leftovers(self, patience=3.0):
        """Ends what is left; the ids of what had not ended by itself."""
        limit = time.monotonic() + (patience * SLOW if self.process.poll() is not None else 0)
        left = self._marked()
        while left and time.monotonic() < limit:
            time.sleep(0.05)
            left = self._marked()
        self.kill()
        return sorted(left)

    def kill(self):
        for pid in self._marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


class Result:
    def __init__(self, code, seconds, stdout, stderr):
        self.code, self.seconds, self.stdout, self.stderr = code, seconds, stdout, stderr

    def messages(self):
        """Lines of zerorun itself on standard error; mpirun adds its own."""
        return [line for line in self.stderr.splitlines() if line.startswith("zerorun")]


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


class Bench:
    """A temporary folder with data, configurations and run folders, and the programs."""

    def __init__(self):
        self.zerorun = os.path.abspath(sys.argv[1])
        self.preload = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
        self.mpirun = os.environ.get("ZR_MPIRUN", "mpirun")
        self.folder = tempfile.mkdtemp(prefix="zr-e2e-")
        self.jobs = []
        self.numbers = itertools.count(1)
        atexit.register(self.close)
        self.train = self.path("train.txt")
        self.eval = self.path("eval.txt")
        text_file(self.train, 6007, 1)
        text_file(self.eval, 1501, 2)

    def close(self):
        for job in self.jobs:
            if job.is_running():
                job.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def config(self, model, n_leaves, steps=6, **blocks):
        """A configuration with batches of `n_leaves` micro-batches of 2 x 16 tokens."""
        config = {
            "model": model,
            "data": {"train": self.train, "eval": self.eval, "tokenizer": "byte", "seq_len": 16},
            "run": {
                "steps": steps,
                "digest": "states",
                "eval_every": 3,
                "eval_batches": 2,
                "watchdog_s": 120,
            },
            "train_batch_size": 2 * n_leaves,
            "train_micro_batch_size_per_gpu": 2,
            "gradient_clipping": CLIPPING,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}},
            "scheduler": {
                "type": "Cosine",
                "params": {"warmup_num_steps": 2, "total_num_steps": steps, "min_lr": 1e-3},
            },
        }
        for key, value in blocks.items():
            if isinstance(value, dict) and key in config:
                config[key] = dict(config[key], **value)
            else:
                config[key] = value
        path = self.path("config-%d.json" % len(os.listdir(self.folder)))
        with open(path, "w") as file:
            json.dump(config, file)
        return path

    def new_dir(self):
        return self.path("run-%d" % next(self.numbers))

    def start(
        self, config, ranks=1, sets=None, run_dir=None, env=None, mpi=(), plan=False, before=()
    ):
        """`sets`: {key: value} for --set; ranks 1 runs without a launcher. `before`: a command that
        runs zerorun, on each rank."""
        arguments = [self.zerorun] + (["plan", "--json", "--ranks", str(ranks)] if plan else [])
        for key, value in dict(sets or {}, **({"run.dir": run_dir} if run_dir else {})).items():
            arguments += [
                "--set",
                "%s=%s" % (key, str(value).lower() if isinstance(value, bool) else value),
            ]
        launcher = [self.mpirun, "-n", str(ranks)] + list(mpi) if ranks > 1 and not plan else []
        job = Job(launcher + list(before) + arguments + [config], env or {}, self.folder)
        self.jobs.append(job)
        return job

    def run(
        self, config, ranks=1, sets=None, run_dir=None, env=None, timeout=120, code=0, before=()
    ):
        """One run that must end with `code`."""
        result = self.start(config, ranks, sets, run_dir, env, before=before).wait(timeout)
        assert result.code == code, "exit code %d, not %d\n%s%s" % (
            result.code,
            code,
            result.stdout[-3000:],
            result.stderr[-3000:],
        )
        return result

    def plan(self, config, ranks, sets=None):
        """The report of `zerorun plan`."""
        result = self.start(config, ranks, sets, plan=True).wait(60)
        assert result.code == 0, result.stderr
        return json.loads(result.stdout)

    def whole(self, config, ranks=1, sets=None, env=None):
        """A run from start to end: its log."""
        run_dir = self.new_dir()
        self.run(config, ranks, sets, run_dir, env)
        return Log(run_dir)


class Log:
    """log.jsonl of a run folder."""

    def __init__(self, run_dir):
        self.dir = run_dir
        path = os.path.join(run_dir, "log.jsonl")
        self.lines = []
        for line in read(path).split("\n") if os.path.exists(path) else []:
            try:
                self.lines.append(json.loads(line, parse_float=str))  # numbers as printed
            except ValueError:
                pass  # being written

    def events(self, name):
        return [line for line in self.lines if line["event"] == name]

    def facts(self, first=1):
        """What must not depend on the schedule, from step `first` on, numbers as printed."""
        steps = {line["step"]: {key: line[key] for key in EXACT} for line in self.events("step")}
        evals = {
            line["step"]: {key: line[key] for key in ("loss", "tokens")}
            for line in self.events("eval")
        }
        return (
            {step: facts for step, facts in steps.items() if step >= first},
            {step: facts for step, facts in evals.items() if step >= first},
        )

    def plan(self):
        return json.loads(read(os.path.join(self.dir, "plan.json")))


def assert_same(got, wanted, what):
    for one, other, kind in zip(got, wanted, ("step", "eval")):
        assert one.keys() == other.keys(), "%s: %ss %s, not %s" % (
            what,
            kind,
            sorted(one),
            sorted(other),
        )
        for step in sorted(one):
            assert one[step] == other[step], "%s: %s %d is\n  %s, not\n  %s" % (
                what,
                kind,
                step,
                one[step],
                other[step],
            )


def wait_for(condition, timeout, what):
    limit = time.monotonic() + timeout * SLOW
    while time.monotonic() < limit:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("not within %g s: %s" % (timeout * SLOW, what))


def main(tests):
    """Runs the tests: all, or those whose names are given after the two programs."""
    bench = Bench()
    if bench.mpirun == "":
        print("skipped: needs mpirun")
        sys.exit(77)
    failed = []
    for test in [test for test in tests if test.__name__ in sys.argv[3:] or len(sys.argv) <= 3]:
        begun = time.monotonic()
        try:
            print("%s ..." % test.__name__, flush=True)
            said = test(bench)
            print(
                "  ok, %.1f s%s" % (time.monotonic() - begun, "; " + said if said else ""),
                flush=True,
            )
        except AssertionError as error:
            failed.append(test.__name__)
            place = traceback.extract_tb(error.__traceback__)[-1]
            print("  FAILED: line %d, %s: %s" % (place.lineno, place.line, error), flush=True)
    bench.close()
    sys.exit(1 if failed else 0)
