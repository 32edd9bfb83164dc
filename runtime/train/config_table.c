/* The option table: every key of the configuration, zerorun's own and DeepSpeed's. */
#include <math.h>
#include <stddef.h>

#include "runtime/train/config.h"

#define FIELD(name) .offset = offsetof(zr_config_t, name)
#define SHAPE(name) .offset = offsetof(zr_config_t, shape.name)
#define NUMERIC .kind = ZR_OPTION_NUMERIC
#define SCHEDULE .kind = ZR_OPTION_SCHEDULE
#define AT_LEAST(low) .min = (low), .max = (double)INFINITY
#define BETWEEN(low, high) .min = (low), .max = (high)
/* A value of that type is accepted and of no effect. */
#define NEEDLESS(name, value_type, why, text)                                         \
  {                                                                                   \
    .key = name, .type = value_type, .support = ZR_OPTION_NEEDLESS, .no_field = true, \
    .may_be_auto = (value_type) != ZR_OPTION_ANY, .reason = why, .help = text         \
  }
#define NEEDLESS_ANY(name, why, text) NEEDLESS(name, ZR_OPTION_ANY, why, text)
/* Anything but the default is an error. */
#define REFUSED(name, value_type, value, why, text)                                  \
  {                                                                                  \
    .key = name, .type = value_type, .support = ZR_OPTION_REFUSED, .no_field = true, \
    .default_text = value, .reason = why, .help = text                               \
  }

static const char *const model_types[] = {"gpt2", "llama", "auto", NULL};
static const char *const activations[] = {"auto", "silu", "gelu_new", NULL};
static const char *const documents[] = {"joined", "separate", NULL};
static const char *const digests[] = {"none", "params", "states", NULL};
static const char *const progresses[] = {"auto", "lines", "inplace", NULL};
static const char *const orders[] = {"depth", "breadth", "auto", NULL};
static const char *const recomputes[] = {"none", "auto", "all", NULL};
static const char *const reduces[] = {"tree", "fast", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const comms[] = {"auto", "self", "mpi", "nccl", NULL};
static const char *const optimizers[] = {"AdamW", "Adam", "SGD", "Lion", "Adagrad", NULL};
static const char *const decays[] = {"all", "matrices", NULL};
static const char *const schedulers[] = {"Constant", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR",
                                         "Cosine",   "Linear",   "OneCycle",      "LRRangeTest",
                                         "WSD",      NULL};
static const char *const warmup_types[] = {"log", "linear", NULL};
static const char *const dtypes[] = {"fp32", "bf16", "fp16", NULL};
static const char *const stages[] = {"0", "1", "2", "3", "auto", NULL};
static const char *const homes[] = {"none", "cpu", "nvme", "auto", NULL};

static const char not_built[] = "not built yet";
static const char no_offload[] = "nothing is offloaded yet, so there is nothing to tune";
static const char no_limit[] =
    "units are gathered and reduced one at a time; this limit is not applied yet";
static const char always_so[] = "the compiled plan always does what is best here";
static const char no_fp16[] = "fp16 is off";
static const char in_log[] = "log.jsonl, plan.txt and trace.json in run.dir have it";
static const char no_effect[] = "it does not change training here";
static const char no_dropout[] = "dropout is not built yet; set it to 0";

/* One row after the other, packed. */
/* clang-format off */
static const zr_option_t table[] = {
    /* --- model --------------------------------------------------------------------------- */
    {.key = "model.preset", .type = ZR_OPTION_STRING, NUMERIC, FIELD(model_preset),
     .help = "a named shape: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-tiny, ..."},
    {.key = "model.path", .type = ZR_OPTION_STRING, NUMERIC, FIELD(model_path),
     .help = "a Hugging Face directory to start from (not built yet)"},
    {.key = "model.architectures", .type = ZR_OPTION_LIST, NUMERIC, FIELD(architectures),
     .help = "GPT2LMHeadModel or LlamaForCausalLM"},
    {.key = "model.model_type", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(model_type),
     .names = model_types, .default_text = "auto", .help = "the same, as config.json also says it"},
    {.key = "model.vocab_size", .type = ZR_OPTION_INT, NUMERIC, SHAPE(vocab_size), AT_LEAST(1),
     .help = "tokens known; with the byte tokenizer 256 unless given"},
    {.key = "model.hidden_size", .alias = "model.n_embd", .type = ZR_OPTION_INT, NUMERIC,
     SHAPE(hidden_size), AT_LEAST(1), .help = "width"},
    {.key = "model.num_hidden_layers", .alias = "model.n_layer", .type = ZR_OPTION_INT, NUMERIC,
     SHAPE(n_layers), AT_LEAST(1), .help = "blocks"},
    {.key = "model.num_attention_heads", .alias = "model.n_head", .type = ZR_OPTION_INT, NUMERIC,
     SHAPE(n_heads), AT_LEAST(1), .help = "query heads"},
    {.key = "model.num_key_value_heads", .type = ZR_OPTION_INT, NUMERIC, SHAPE(n_kv_heads),
     AT_LEAST(1), .help = "key and value heads; default: as many as query heads"},
    {.key = "model.head_dim", .type = ZR_OPTION_INT, NUMERIC, SHAPE(head_dim), AT_LEAST(1),
     .help = "width of a head; default: hidden_size / num_attention_heads"},
    {.key = "model.intermediate_size", .alias = "model.n_inner", .type = ZR_OPTION_INT, NUMERIC,
     SHAPE(intermediate_size), AT_LEAST(1), .help = "width of the MLP; GPT-2: 4 n_embd"},
    {.key = "model.max_position_embeddings", .alias = "model.n_positions", .type = ZR_OPTION_INT,
     NUMERIC, SHAPE(max_positions), AT_LEAST(1), .help = "longest sequence the model can see"},
    {.key = "model.rms_norm_eps", .alias = "model.layer_norm_epsilon", .type = ZR_OPTION_DOUBLE,
     NUMERIC, SHAPE(norm_eps), AT_LEAST(1e-30), .help = "epsilon of the norms"},
    {.key = "model.rope_theta", .type = ZR_OPTION_DOUBLE, NUMERIC, SHAPE(rope_theta), AT_LEAST(1),
     .help = "base of the rotary angles"},
    {.key = "model.initializer_range", .type = ZR_OPTION_DOUBLE, NUMERIC, SHAPE(initializer_range),
     AT_LEAST(1e-30), .help = "standard deviation of initial weights"},
    {.key = "model.tie_word_embeddings", .type = ZR_OPTION_BOOL, NUMERIC,
     FIELD(tie_word_embeddings), .may_be_auto = true, .default_text = "auto",
     .help = "embedding and head share their weights; auto: as the architecture has it"},
    {.key = "model.hidden_act", .alias = "model.activation_function", .type = ZR_OPTION_ENUM,
     .no_field = true, .names = activations, .default_text = "auto",
     .help = "silu (Llama) or gelu_new (GPT-2): given by the architecture"},
    REFUSED("model.attention_bias", ZR_OPTION_BOOL, "false", not_built, "biases in attention"),
    REFUSED("model.mlp_bias", ZR_OPTION_BOOL, "false", not_built, "biases in the MLP"),
    REFUSED("model.rope_scaling", ZR_OPTION_ANY, NULL, not_built, "stretched rotary angles"),
    REFUSED("model.rope_scaling.*", ZR_OPTION_ANY, NULL, not_built, "stretched rotary angles"),
    REFUSED("model.attention_dropout", ZR_OPTION_DOUBLE, "0", no_dropout, "dropout"),
    REFUSED("model.attn_pdrop", ZR_OPTION_DOUBLE, "0", no_dropout, "dropout"),
    REFUSED("model.resid_pdrop", ZR_OPTION_DOUBLE, "0", no_dropout, "dropout"),
    REFUSED("model.embd_pdrop", ZR_OPTION_DOUBLE, "0", no_dropout, "dropout"),
    REFUSED("model.scale_attn_weights", ZR_OPTION_BOOL, "true", not_built, "scaled scores"),
    REFUSED("model.scale_attn_by_inverse_layer_idx", ZR_OPTION_BOOL, "false", not_built,
     "scores scaled by layer"),
    NEEDLESS_ANY("model.reorder_and_upcast_attn", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.torch_dtype", no_effect, "Hugging Face's; weights are fp32 for now"),
    NEEDLESS_ANY("model.dtype", no_effect, "Hugging Face's; weights are fp32 for now"),
    NEEDLESS_ANY("model.transformers_version", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model._name_or_path", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.use_cache", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.pretraining_tp", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.n_ctx", no_effect, "Hugging Face's; see n_positions"),
    NEEDLESS_ANY("model.bos_token_id", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.eos_token_id", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.pad_token_id", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.summary_activation", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.summary_first_dropout", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.summary_proj_to_labels", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.summary_type", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.summary_use_proj", no_effect, "Hugging Face's"),
    NEEDLESS_ANY("model.task_specific_params.*", no_effect, "Hugging Face's"),

    /* --- data ---------------------------------------------------------------------------- */
    {.key = "data.train", .type = ZR_OPTION_LIST, NUMERIC, FIELD(data_train),
     .help = "files or globs to train on: llm.c token files, or text with data.tokenizer: byte"},
    {.key = "data.eval", .type = ZR_OPTION_LIST, FIELD(data_eval),
     .help = "files or globs to evaluate on"},
    {.key = "data.tokenizer", .type = ZR_OPTION_STRING, NUMERIC, FIELD(tokenizer),
     .help = "byte: plain text, a token is a byte; not given: token files"},
    {.key = "data.seq_len", .type = ZR_OPTION_INT, NUMERIC, FIELD(seq_len), BETWEEN(1, 1 << 24),
     .help = "tokens of a sample"},
    {.key = "data.seed", .type = ZR_OPTION_INT, NUMERIC, FIELD(data_seed), .may_be_auto = true,
     .default_text = "auto", .help = "of the order of samples; auto: run.seed"},
    {.key = "data.shuffle", .type = ZR_OPTION_BOOL, NUMERIC, FIELD(shuffle), .default_text = "true",
     .help = "a new order of samples in each epoch"},
    {.key = "data.documents", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(documents), .names = documents,
     .default_text = "joined", .help = "joined: attention crosses documents (separate: later)"},

    /* --- run ----------------------------------------------------------------------------- */
    {.key = "run.steps", .type = ZR_OPTION_INT, FIELD(steps), AT_LEAST(1),
     .help = "updates to make (or run.tokens, or run.epochs)"},
    {.key = "run.tokens", .type = ZR_OPTION_INT, FIELD(tokens), AT_LEAST(1),
     .help = "tokens to train on"},
    {.key = "run.epochs", .type = ZR_OPTION_DOUBLE, FIELD(epochs), AT_LEAST(1e-9),
     .help = "passes over the data"},
    {.key = "run.dir", .type = ZR_OPTION_STRING, FIELD(run_dir),
     .help = "where everything is written; default runs/NAME of the configuration file"},
    {.key = "run.seed", .type = ZR_OPTION_INT, NUMERIC, FIELD(seed), .default_text = "1234",
     .help = "of initial weights and of the order of samples"},
    {.key = "run.log_every", .alias = "steps_per_print", .type = ZR_OPTION_INT, FIELD(log_every),
     AT_LEAST(1), .default_text = "10",
     .help = "steps between progress lines where the output is not a terminal"},
    {.key = "run.eval_every", .type = ZR_OPTION_INT, FIELD(eval_every), AT_LEAST(0),
     .default_text = "0", .help = "steps between evaluations; 0: at the end only"},
    {.key = "run.eval_batches", .type = ZR_OPTION_INT, FIELD(eval_batches), AT_LEAST(0),
     .default_text = "0", .help = "batches of an evaluation; 0: all of data.eval"},
    {.key = "run.threads", .type = ZR_OPTION_INT, SCHEDULE, FIELD(threads), BETWEEN(1, 1024),
     .may_be_auto = true, .default_text = "auto",
     .help = "threads of a rank; auto: its share of the node's cores"},
    {.key = "run.serial", .type = ZR_OPTION_BOOL, SCHEDULE, FIELD(serial), .default_text = "false",
     .help = "one operation at a time: the oracle"},
    {.key = "run.digest", .type = ZR_OPTION_ENUM, FIELD(digest), .names = digests,
     .default_text = "none", .help = "digests in each step's log line"},
    {.key = "run.trace", .type = ZR_OPTION_STRING, FIELD(trace),
     .help = "steps to write to trace.json, like 5 or 5-7 (counting skipped ones)"},
    {.key = "run.progress", .type = ZR_OPTION_ENUM, FIELD(progress), .names = progresses,
     .default_text = "auto",
     .help = "the progress line: one under the other, or in place; auto: in place on a terminal"},
    {.key = "run.max_skipped", .type = ZR_OPTION_INT, FIELD(max_skipped), AT_LEAST(1),
     .default_text = "20", .help = "steps skipped in a row that end the run"},
    {.key = "run.watchdog_s", .type = ZR_OPTION_DOUBLE, FIELD(watchdog_s), AT_LEAST(0),
     .default_text = "600", .help = "seconds after which a late operation ends the run; 0: never"},
    {.key = "run.delay_us", .type = ZR_OPTION_INT, SCHEDULE, FIELD(delay_us), BETWEEN(0, 1e6),
     .default_text = "0", .help = "test: a random delay of at most this before each operation"},
    {.key = "run.poison", .type = ZR_OPTION_INT, SCHEDULE, FIELD(poison), BETWEEN(-1, 255),
     .default_text = "-1", .help = "test: the byte that memory is filled with at the start"},

    /* --- checkpoint ---------------------------------------------------------------------- */
    {.key = "checkpoint.every", .type = ZR_OPTION_INT, FIELD(save_every), AT_LEAST(0),
     .default_text = "0", .help = "steps between checkpoints; 0: at the end only"},
    {.key = "checkpoint.at_end", .type = ZR_OPTION_BOOL, FIELD(save_at_end), .default_text = "true",
     .help = "a checkpoint when the run is done"},
    {.key = "checkpoint.keep_last", .type = ZR_OPTION_INT, FIELD(keep_last), AT_LEAST(1),
     .default_text = "2", .help = "the newest checkpoints that are kept"},
    {.key = "checkpoint.keep_every", .type = ZR_OPTION_INT, FIELD(keep_every), AT_LEAST(0),
     .default_text = "0", .help = "checkpoints of steps divisible by this are kept too; 0: none"},
    {.key = "checkpoint.resume", .type = ZR_OPTION_BOOL, FIELD(resume), .default_text = "true",
     .help = "continue from the last checkpoint in run.dir"},
    {.key = "checkpoint.ignore_options", .type = ZR_OPTION_BOOL, FIELD(ignore_options),
     .default_text = "false", .help = "resume although numeric options are others"},
    {.key = "checkpoint.async", .type = ZR_OPTION_BOOL, FIELD(save_async), .default_text = "false",
     .help = "save while training goes on (not built yet)"},
    {.key = "checkpoint.export_hf", .type = ZR_OPTION_STRING, FIELD(export_hf),
     .help = "write a Hugging Face directory too (not built yet)"},
    NEEDLESS_ANY("checkpoint.tag_validation", "checkpoints are named by their step", "DeepSpeed's"),
    NEEDLESS_ANY("checkpoint.load_universal", "every checkpoint here is universal", "DeepSpeed's"),
    NEEDLESS_ANY("checkpoint.use_node_local_storage", no_effect, "DeepSpeed's"),
    NEEDLESS_ANY("checkpoint.parallel_write.*", "each rank writes its own file", "DeepSpeed's"),

    /* --- memory, plan, backend ----------------------------------------------------------- */
    {.key = "memory.device", .type = ZR_OPTION_BYTES, SCHEDULE, FIELD(memory_device), AT_LEAST(1),
     .may_be_auto = true, .default_text = "auto",
     .help = "budget of a rank's device; on a CPU: of its share of the memory"},
    {.key = "memory.host", .type = ZR_OPTION_BYTES, SCHEDULE, FIELD(memory_host), AT_LEAST(1),
     .may_be_auto = true, .default_text = "auto", .help = "budget of pinned host memory"},
    {.key = "memory.disk", .type = ZR_OPTION_BYTES, SCHEDULE, FIELD(memory_disk), AT_LEAST(1),
     .may_be_auto = true, .default_text = "auto", .help = "budget of disk"},
    {.key = "memory.headroom", .type = ZR_OPTION_BYTES, SCHEDULE, FIELD(headroom),
     .default_text = "10%", .help = "left free when a budget is auto"},
    {.key = "plan.order", .type = ZR_OPTION_ENUM, SCHEDULE, FIELD(order), .names = orders,
     .default_text = "auto",
     .help = "depth: a micro-batch runs through all units, then the next; breadth: all "
     "micro-batches pass a unit before the next unit"},
    {.key = "plan.group", .type = ZR_OPTION_INT, SCHEDULE, FIELD(group), BETWEEN(0, 30),
     .may_be_auto = true, .default_text = "auto",
     .help = "a: 2^a micro-batches are summed on the rank before they are reduced"},
    {.key = "plan.prefetch", .type = ZR_OPTION_INT, SCHEDULE, FIELD(prefetch), BETWEEN(0, 1024),
     .may_be_auto = true, .default_text = "auto", .help = "units gathered ahead of their use"},
    {.key = "plan.recompute", .type = ZR_OPTION_ENUM, SCHEDULE, FIELD(recompute),
     .names = recomputes, .default_text = "auto",
     .help = "activations computed again in the backward: none for now"},
    REFUSED("plan.home.*", ZR_OPTION_ANY, NULL, not_built, "where states live between uses"),
    {.key = "plan.logits_chunk", .type = ZR_OPTION_INT, NUMERIC, FIELD(logits_chunk), AT_LEAST(1),
     .default_text = "1024", .help = "rows of logits that exist at once"},
    {.key = "reduce", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(reduce), .names = reduces,
     .default_text = "tree", .help = "tree: bits do not depend on the ranks (fast: later)"},
    {.key = "backend.device", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(device), .names = devices,
     .default_text = "auto", .help = "cpu (cuda: later)"},
    {.key = "backend.comm", .type = ZR_OPTION_ENUM, SCHEDULE, FIELD(comm), .names = comms,
     .default_text = "auto", .help = "auto: mpi under mpirun, else self (nccl: later)"},
    {.key = "backend.isa", .type = ZR_OPTION_STRING, NUMERIC, FIELD(isa), .default_text = "auto",
     .help = "vector instructions: auto, avx512, avx2, baseline"},

    /* --- DeepSpeed: batch, optimizer, schedule ------------------------------------------- */
    {.key = "train_batch_size", .type = ZR_OPTION_INT, NUMERIC, FIELD(train_batch_size),
     AT_LEAST(1), .may_be_auto = true, .help = "samples of a step, all ranks"},
    {.key = "train_micro_batch_size_per_gpu", .type = ZR_OPTION_INT, NUMERIC,
     FIELD(micro_batch_size), AT_LEAST(1), .may_be_auto = true,
     .help = "samples that go through the model at once"},
    {.key = "gradient_accumulation_steps", .type = ZR_OPTION_INT, SCHEDULE, FIELD(grad_accum_steps),
     AT_LEAST(1), .may_be_auto = true, .help = "micro-batches of a rank in a step"},
    {.key = "gradient_clipping", .type = ZR_OPTION_DOUBLE, NUMERIC, FIELD(gradient_clipping),
     AT_LEAST(0), .may_be_auto = true, .default_text = "0",
     .help = "the gradient's largest norm; 0: no clipping; auto: 1"},
    {.key = "optimizer.type", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(optimizer),
     .names = optimizers, .default_text = "AdamW", .help = "AdamW or Adam for now"},
    {.key = "optimizer.state_dtype", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(state_dtype),
     .names = dtypes, .default_text = "fp32", .help = "type of the moments: fp32 for now"},
    {.key = "optimizer.decay", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(decay), .names = decays,
     .default_text = "all", .help = "which tensors decay: all, or those of two dimensions"},
    {.key = "optimizer.params.lr", .type = ZR_OPTION_DOUBLE, NUMERIC, FIELD(lr), AT_LEAST(0),
     .may_be_auto = true, .default_text = "0.001", .help = "learning rate"},
    {.key = "optimizer.params.betas", .type = ZR_OPTION_LIST, NUMERIC, FIELD(betas),
     .default_text = "[0.9, 0.999]", .help = "decay of the two moments"},
    {.key = "optimizer.params.eps", .type = ZR_OPTION_DOUBLE, NUMERIC, FIELD(eps), AT_LEAST(0),
     .may_be_auto = true, .default_text = "1e-08", .help = "added to the root"},
    {.key = "optimizer.params.weight_decay", .type = ZR_OPTION_DOUBLE, NUMERIC, FIELD(weight_decay),
     AT_LEAST(0), .may_be_auto = true, .default_text = "0", .help = "as DeepSpeed's default: none"},
    {.key = "optimizer.params.bias_correction", .type = ZR_OPTION_BOOL, NUMERIC,
     FIELD(bias_correction), .default_text = "true", .help = "as torch"},
    {.key = "optimizer.params.adam_w_mode", .type = ZR_OPTION_BOOL, NUMERIC, FIELD(adam_w_mode),
     .default_text = "true", .help = "Adam: decay apart from the gradient, as DeepSpeed's default"},
    REFUSED("optimizer.params.amsgrad", ZR_OPTION_BOOL, "false", not_built, "torch's variant"),
    REFUSED("optimizer.params.max_grad_norm", ZR_OPTION_DOUBLE, "0",
     "write gradient_clipping at the top level", "old form of gradient_clipping"),
    NEEDLESS("optimizer.params.torch_adam", ZR_OPTION_BOOL, always_so, "DeepSpeed's"),
    NEEDLESS("optimizer.params.fused", ZR_OPTION_BOOL, always_so, "torch's"),
    NEEDLESS("optimizer.legacy_fusion", ZR_OPTION_BOOL, always_so, "DeepSpeed's"),
    {.key = "scheduler.type", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(scheduler),
     .names = schedulers, .default_text = "Constant",
     .help = "how the learning rate goes (OneCycle, LRRangeTest, WSD: later)"},
    {.key = "scheduler.params.warmup_min_lr", .type = ZR_OPTION_DOUBLE, NUMERIC,
     FIELD(warmup_min_lr), AT_LEAST(0), .may_be_auto = true, .default_text = "0",
     .help = "where the warm-up begins; WarmupDecayLR ends there too"},
    {.key = "scheduler.params.warmup_max_lr", .type = ZR_OPTION_DOUBLE, NUMERIC,
     FIELD(warmup_max_lr), AT_LEAST(0), .may_be_auto = true,
     .help = "WarmupLR, WarmupDecayLR: the learning rate after it; as DeepSpeed, 0.001 if not "
     "given; auto: optimizer.params.lr"},
    {.key = "scheduler.params.warmup_num_steps", .type = ZR_OPTION_INT, NUMERIC,
     FIELD(warmup_steps), AT_LEAST(0), .may_be_auto = true,
     .help = "steps of the warm-up; DeepSpeed's types 1000 if not given, Cosine and Linear 0"},
    {.key = "scheduler.params.warmup_type", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(warmup_type),
     .names = warmup_types, .default_text = "log",
     .help = "of DeepSpeed's types; Cosine and Linear warm up linearly"},
    {.key = "scheduler.params.warmup_min_ratio", .type = ZR_OPTION_DOUBLE, NUMERIC,
     FIELD(warmup_min_ratio), BETWEEN(0, 1), .default_text = "0",
     .help = "WarmupCosineLR: where the warm-up begins, as a share of the learning rate"},
    {.key = "scheduler.params.cos_min_ratio", .type = ZR_OPTION_DOUBLE, NUMERIC,
     FIELD(cos_min_ratio), BETWEEN(0, 1), .default_text = "0.0001",
     .help = "WarmupCosineLR: where it ends, as a share of the learning rate"},
    {.key = "scheduler.params.min_lr", .type = ZR_OPTION_DOUBLE, NUMERIC, FIELD(min_lr),
     AT_LEAST(0), .default_text = "0", .help = "Cosine, Linear: where it ends"},
    {.key = "scheduler.params.total_num_steps", .type = ZR_OPTION_INT, NUMERIC, FIELD(total_steps),
     AT_LEAST(1), .may_be_auto = true,
     .help = "step at which a decaying schedule ends; not given or auto: the run's last"},
    REFUSED("scheduler.params.last_batch_iteration", ZR_OPTION_INT, "-1",
     "a run continues by its checkpoint", "DeepSpeed's"),

    /* --- DeepSpeed: types ---------------------------------------------------------------- */
    {.key = "bf16.enabled", .alias = "bfloat16.enabled", .type = ZR_OPTION_BOOL, NUMERIC,
     FIELD(bf16), .may_be_auto = true, .default_text = "false", .help = "not built yet; auto: off"},
    {.key = "fp16.enabled", .type = ZR_OPTION_BOOL, NUMERIC, FIELD(fp16), .may_be_auto = true,
     .default_text = "false", .help = "not built yet; auto: off"},
    NEEDLESS("fp16.auto_cast", ZR_OPTION_BOOL, no_fp16, "DeepSpeed's"),
    NEEDLESS("fp16.loss_scale", ZR_OPTION_DOUBLE, no_fp16, "0: dynamic"),
    NEEDLESS("fp16.initial_scale_power", ZR_OPTION_INT, no_fp16, "first loss scale"),
    NEEDLESS("fp16.loss_scale_window", ZR_OPTION_INT, no_fp16, "good steps before it doubles"),
    NEEDLESS("fp16.hysteresis", ZR_OPTION_INT, no_fp16, "overflows before it halves"),
    NEEDLESS("fp16.min_loss_scale", ZR_OPTION_DOUBLE, no_fp16, "least loss scale"),
    NEEDLESS("fp16.consecutive_hysteresis", ZR_OPTION_BOOL, no_fp16, "DeepSpeed's"),
    NEEDLESS("fp16.fp16_master_weights_and_grads", ZR_OPTION_BOOL, no_fp16, "DeepSpeed's"),
    {.key = "data_types.grad_accum_dtype", .type = ZR_OPTION_ENUM, NUMERIC, FIELD(grad_accum_dtype),
     .names = dtypes, .default_text = "fp32",
     .help = "type of every partial sum of gradients: fp32 for now"},
    {.key = "communication_data_type", .type = ZR_OPTION_ENUM, FIELD(comm_dtype), .names = dtypes,
     .default_text = "fp32", .help = "must be data_types.grad_accum_dtype"},

    /* --- DeepSpeed: ZeRO ----------------------------------------------------------------- */
    {.key = "zero_optimization.stage", .type = ZR_OPTION_ENUM, SCHEDULE, FIELD(stage),
     .names = stages, .default_text = "0",
     .help = "what is sharded: 1 optimizer states, 2 gradients too, 3 parameters too"},
    {.key = "zero_optimization.offload_optimizer.device", .type = ZR_OPTION_ENUM, SCHEDULE,
     FIELD(offload_optimizer), .names = homes, .default_text = "none", .help = "none for now"},
    {.key = "zero_optimization.offload_param.device", .type = ZR_OPTION_ENUM, SCHEDULE,
     FIELD(offload_param), .names = homes, .default_text = "none", .help = "none for now"},
#define OFFLOAD(block, name, value_type) \
  NEEDLESS("zero_optimization." block "." name, value_type, no_offload, "see device")
    OFFLOAD("offload_optimizer", "nvme_path", ZR_OPTION_ANY),
    OFFLOAD("offload_optimizer", "pin_memory", ZR_OPTION_BOOL),
    OFFLOAD("offload_optimizer", "ratio", ZR_OPTION_DOUBLE),
    OFFLOAD("offload_optimizer", "buffer_count", ZR_OPTION_INT),
    OFFLOAD("offload_optimizer", "pipeline_read", ZR_OPTION_BOOL),
    OFFLOAD("offload_optimizer", "pipeline_write", ZR_OPTION_BOOL),
    OFFLOAD("offload_optimizer", "fast_init", ZR_OPTION_BOOL),
    OFFLOAD("offload_param", "nvme_path", ZR_OPTION_ANY),
    OFFLOAD("offload_param", "pin_memory", ZR_OPTION_BOOL),
    OFFLOAD("offload_param", "buffer_count", ZR_OPTION_INT),
    OFFLOAD("offload_param", "buffer_size", ZR_OPTION_INT),
    OFFLOAD("offload_param", "max_in_cpu", ZR_OPTION_INT),
    REFUSED("zero_optimization.cpu_offload", ZR_OPTION_BOOL, "false", not_built,
     "old form of offload_optimizer"),
    REFUSED("zero_optimization.zero_hpz_partition_size", ZR_OPTION_INT, "1", not_built,
     "a second copy of parameters in each node"),
    REFUSED("zero_optimization.zero_quantized_weights", ZR_OPTION_BOOL, "false", not_built,
     "8-bit gathers"),
    REFUSED("zero_optimization.zero_quantized_gradients", ZR_OPTION_BOOL, "false", not_built,
     "4-bit reductions"),
    REFUSED("zero_optimization.mics_shard_size", ZR_OPTION_INT, "-1", not_built,
     "shards over a part of the ranks"),
#define LIMIT(name, text) NEEDLESS("zero_optimization." name, ZR_OPTION_INT, no_limit, text)
    LIMIT("reduce_bucket_size", "elements reduced at once"),
    LIMIT("allgather_bucket_size", "elements gathered at once"),
    LIMIT("sub_group_size", "elements updated at once"),
    LIMIT("stage3_prefetch_bucket_size", "elements gathered ahead; see plan.prefetch"),
    LIMIT("stage3_max_live_parameters", "parameters gathered at a time"),
    LIMIT("stage3_max_reuse_distance", "parameters kept until they are used again"),
    LIMIT("stage3_param_persistence_threshold", "tensors kept whole"),
    LIMIT("stage3_model_persistence_threshold", "parameters kept whole"),
#define SETTLED(name) NEEDLESS("zero_optimization." name, ZR_OPTION_BOOL, always_so, "DeepSpeed's")
    SETTLED("overlap_comm"),
    SETTLED("contiguous_gradients"),
    SETTLED("reduce_scatter"),
    SETTLED("allgather_partitions"),
    SETTLED("round_robin_gradients"),
    SETTLED("use_multi_rank_bucket_allreduce"),
    SETTLED("elastic_checkpoint"),
    SETTLED("load_from_fp32_weights"),
    SETTLED("ignore_unused_parameters"),
    SETTLED("legacy_stage1"),
    SETTLED("use_all_reduce_for_fetch_params"),
    {.key = "zero_optimization.stage3_gather_16bit_weights_on_model_save",
     .alias = "zero_optimization.stage3_gather_fp16_weights_on_model_save", .type = ZR_OPTION_BOOL,
     .support = ZR_OPTION_NEEDLESS, .no_field = true, .may_be_auto = true,
     .reason = "a checkpoint does not know the topology", .help = "DeepSpeed's"},

    /* --- DeepSpeed: the rest ------------------------------------------------------------- */
    NEEDLESS("aio.block_size", ZR_OPTION_INT, no_offload, "bytes of a disk request"),
    NEEDLESS("aio.queue_depth", ZR_OPTION_INT, no_offload, "disk requests in flight"),
    {.key = "aio.intra_op_parallelism", .alias = "aio.thread_count", .type = ZR_OPTION_INT,
     .support = ZR_OPTION_NEEDLESS, .no_field = true, .reason = no_offload, .help = "DeepSpeed's"},
    NEEDLESS("aio.single_submit", ZR_OPTION_BOOL, no_offload, "DeepSpeed's"),
    NEEDLESS("aio.overlap_events", ZR_OPTION_BOOL, no_offload, "DeepSpeed's"),
    REFUSED("aio.use_gds", ZR_OPTION_BOOL, "false", not_built, "disk to GPU directly"),
    REFUSED("activation_checkpointing.number_checkpoints", ZR_OPTION_INT, NULL, not_built,
     "activations kept of the blocks"),
    REFUSED("activation_checkpointing.cpu_checkpointing", ZR_OPTION_BOOL, "false", not_built,
     "kept activations in host memory"),
    NEEDLESS("activation_checkpointing.partition_activations", ZR_OPTION_BOOL, no_effect,
     "DeepSpeed's"),
    NEEDLESS("activation_checkpointing.contiguous_memory_optimization", ZR_OPTION_BOOL, always_so,
     "DeepSpeed's"),
    NEEDLESS("activation_checkpointing.synchronize_checkpoint_boundary", ZR_OPTION_BOOL, no_effect,
     "DeepSpeed's"),
    NEEDLESS("activation_checkpointing.profile", ZR_OPTION_BOOL, in_log, "DeepSpeed's"),
    NEEDLESS("wall_clock_breakdown", ZR_OPTION_BOOL, in_log, "DeepSpeed's"),
    NEEDLESS("memory_breakdown", ZR_OPTION_BOOL, in_log, "DeepSpeed's"),
    NEEDLESS("dump_state", ZR_OPTION_BOOL, in_log, "DeepSpeed's"),
    NEEDLESS_ANY("flops_profiler.*", in_log, "DeepSpeed's"),
    NEEDLESS_ANY("comms_logger.*", in_log, "DeepSpeed's"),
    NEEDLESS_ANY("tensorboard.*", in_log, "DeepSpeed's"),
    NEEDLESS_ANY("wandb.*", in_log, "DeepSpeed's"),
    NEEDLESS_ANY("csv_monitor.*", in_log, "DeepSpeed's"),
    NEEDLESS("zero_allow_untested_optimizer", ZR_OPTION_BOOL, no_effect, "DeepSpeed's"),
    NEEDLESS("zero_force_ds_cpu_optimizer", ZR_OPTION_BOOL, no_effect, "DeepSpeed's"),
    NEEDLESS("prescale_gradients", ZR_OPTION_BOOL,
     "the loss is divided by the step's tokens before the backward", "DeepSpeed's"),
    NEEDLESS("gradient_predivide_factor", ZR_OPTION_DOUBLE,
     "the loss is divided by the step's tokens before the backward", "DeepSpeed's"),
    REFUSED("sparse_gradients", ZR_OPTION_BOOL, "false", not_built, "DeepSpeed's"),
    REFUSED("amp.enabled", ZR_OPTION_BOOL, "false", "apex's AMP does not exist here",
     "DeepSpeed's"),
    REFUSED("elasticity.enabled", ZR_OPTION_BOOL, "false",
     "any checkpoint continues on any rank count without it", "DeepSpeed's"),
    NEEDLESS_ANY("elasticity.*", "elasticity is off", "DeepSpeed's"),
    REFUSED("autotuning.enabled", ZR_OPTION_BOOL, "false", not_built, "DeepSpeed's"),
    NEEDLESS_ANY("autotuning.*", "autotuning is off", "DeepSpeed's"),
    REFUSED("data_efficiency.enabled", ZR_OPTION_BOOL, "false", not_built, "DeepSpeed's"),
    NEEDLESS_ANY("data_efficiency.*", "data_efficiency is off", "DeepSpeed's"),
    REFUSED("curriculum_learning.enabled", ZR_OPTION_BOOL, "false", not_built, "DeepSpeed's"),
    NEEDLESS_ANY("curriculum_learning.*", "curriculum_learning is off", "DeepSpeed's"),
    REFUSED("compression_training.*", ZR_OPTION_ANY, NULL, not_built, "DeepSpeed's"),
};
/* clang-format on */

const zr_option_t *zr_config_table(size_t *out_n_rows) {
  *out_n_rows = sizeof table / sizeof table[0];
  return table;
}
