/* A GPT-2 training step as plain C loops: what the same model costs without any library. Built with
 * -Ofast -march=native -fopenmp. The yardstick of bench_step, not a part of zerorun.
 *
 * usage: gpt2_plain [BATCH] [SEQ_LEN] [STEPS]     prints seconds of the fastest step and the loss
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  VOCAB = 50257,
  HIDDEN = 768,
  LAYERS = 12,
  HEADS = 12,
  HEAD = HIDDEN / HEADS,
  POSITIONS = 1024
};
enum { INNER = 4 * HIDDEN };

static int batch = 4, seq = 64, rows;

/* A parameter, its gradient and moments. */
typedef struct {
  int64_t n;
  float *w, *g, *m, *v;
} param_t;

typedef struct {
  param_t ln1_w, ln1_b, qkv_w, qkv_b, proj_w, proj_b, ln2_w, ln2_b, fc_w, fc_b, out_w, out_b;
  float *x, *n1, *qkv, *prob, *att, *h, *n2, *fc, *act; /* what the backward needs */
} layer_t;

static param_t wte, wpe, lnf_w, lnf_b;
static layer_t layer[LAYERS];
static float *final_x, *final_n, *logits, *dx, *dn, *dqkv, *dfc, *datt, *y;

static float *floats(int64_t n) {
  float *memory = calloc((size_t)n, sizeof(float));
  if (memory == NULL) {
    fprintf(stderr, "gpt2_plain: out of memory\n");
    exit(1);
  }
  return memory;
}

static param_t param(int64_t n, float scale, float base) {
  param_t p = {n, floats(n), floats(n), floats(n), floats(n)};
  uint32_t state = (uint32_t)n;
  for (int64_t i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    p.w[i] = base + scale * ((float)(state >> 8) / 8388608.0f - 1.0f);
  }
  return p;
}

/* y [rows, out] = x [rows, in] w [in, out] + b */
static void linear(float *out_y, const float *x, const param_t *w, const param_t *b, int in,
                   int out) {
#pragma omp parallel for
  for (int t = 0; t < rows; t++) {
    float *to = out_y + (int64_t)t * out;
    memcpy(to, b->w, (size_t)out * sizeof(float));
    for (int i = 0; i < in; i++) {
      float a = x[(int64_t)t * in + i];
      const float *from = w->w + (int64_t)i * out;
      for (int o = 0; o < out; o++) to[o] += a * from[o];
    }
  }
}

/* dx (+)= dy w^T, dw += x^T dy, db += sum dy */
static void linear_back(float *dx_out, const float *dy, const float *x, param_t *w, param_t *b,
                        int in, int out) {
#pragma omp parallel for
  for (int t = 0; t < rows; t++)
    for (int i = 0; i < in; i++) {
      const float *from = w->w + (int64_t)i * out, *d = dy + (int64_t)t * out;
      float sum = 0;
      for (int o = 0; o < out; o++) sum += from[o] * d[o];
      dx_out[(int64_t)t * in + i] = sum;
    }
#pragma omp parallel for
  for (int i = 0; i < in; i++)
    for (int t = 0; t < rows; t++) {
      float a = x[(int64_t)t * in + i], *to = w->g + (int64_t)i * out;
      const float *d = dy + (int64_t)t * out;
      for (int o = 0; o < out; o++) to[o] += a * d[o];
    }
  for (int t = 0; t < rows; t++)
    for (int o = 0; o < out; o++) b->g[o] += dy[(int64_t)t * out + o];
}

static void moments(const float *x, float *mean, float *rstd) {
  float sum = 0, square = 0;
  for (int i = 0; i < HIDDEN; i++) sum += x[i];
  *mean = sum / HIDDEN;
  for (int i = 0; i < HIDDEN; i++) square += (x[i] - *mean) * (x[i] - *mean);
  *rstd = 1.0f / sqrtf(square / HIDDEN + 1e-5f);
}

static void layernorm(float *out_y, const float *x, const param_t *w, const param_t *b) {
#pragma omp parallel for
  for (int t = 0; t < rows; t++) {
    const float *from = x + (int64_t)t * HIDDEN;
    float mean, rstd;
    moments(from, &mean, &rstd);
    for (int i = 0; i < HIDDEN; i++)
      out_y[(int64_t)t * HIDDEN + i] = (from[i] - mean) * rstd * w->w[i] + b->w[i];
  }
}

/* dx_out += gradient */
static void layernorm_back(float *dx_out, const float *dy, const float *x, param_t *w, param_t *b) {
  for (int t = 0; t < rows; t++) {
    const float *from = x + (int64_t)t * HIDDEN, *d = dy + (int64_t)t * HIDDEN;
    float mean, rstd, a = 0, c = 0;
    moments(from, &mean, &rstd);
    for (int i = 0; i < HIDDEN; i++) {
      float norm = (from[i] - mean) * rstd, g = d[i] * w->w[i];
      a += g;
      c += g * norm;
      w->g[i] += d[i] * norm;
      b->g[i] += d[i];
    }
    for (int i = 0; i < HIDDEN; i++) {
      float norm = (from[i] - mean) * rstd;
      dx_out[(int64_t)t * HIDDEN + i] += (d[i] * w->w[i] - (a + norm * c) / HIDDEN) * rstd;
    }
  }
}

static void attention(layer_t *l) {
  const float scale = 1.0f / sqrtf(HEAD);
#pragma omp parallel for collapse(2)
  for (int s = 0; s < batch; s++)
    for (int head = 0; head < HEADS; head++)
      for (int t = 0; t < seq; t++) {
        const float *q = l->qkv + (int64_t)(s * seq + t) * 3 * HIDDEN + head * HEAD;
        float *p = l->prob + ((int64_t)(s * HEADS + head) * seq + t) * seq;
        float *to = l->att + (int64_t)(s * seq + t) * HIDDEN + head * HEAD, most = -1e30f, sum = 0;
        for (int u = 0; u <= t; u++) {
          const float *k = l->qkv + (int64_t)(s * seq + u) * 3 * HIDDEN + HIDDEN + head * HEAD;
          float dot = 0;
          for (int i = 0; i < HEAD; i++) dot += q[i] * k[i];
          p[u] = dot * scale;
          if (p[u] > most) most = p[u];
        }
        for (int u = 0; u <= t; u++) sum += p[u] = expf(p[u] - most);
        memset(to, 0, HEAD * sizeof(float));
        for (int u = 0; u <= t; u++) {
          const float *v = l->qkv + (int64_t)(s * seq + u) * 3 * HIDDEN + 2 * HIDDEN + head * HEAD;
          p[u] /= sum;
          for (int i = 0; i < HEAD; i++) to[i] += p[u] * v[i];
        }
      }
}

static void attention_back(const layer_t *l) {
  const float scale = 1.0f / sqrtf(HEAD);
  memset(dqkv, 0, (size_t)rows * 3 * HIDDEN * sizeof(float));
#pragma omp parallel for collapse(2)
  for (int s = 0; s < batch; s++)
    for (int head = 0; head < HEADS; head++)
      for (int t = 0; t < seq; t++) {
        const float *p = l->prob + ((int64_t)(s * HEADS + head) * seq + t) * seq;
        const float *d = datt + (int64_t)(s * seq + t) * HIDDEN + head * HEAD;
        int64_t base = (int64_t)(s * seq) * 3 * HIDDEN + head * HEAD;
        const float *q = l->qkv + base + (int64_t)t * 3 * HIDDEN;
        float *dq = dqkv + base + (int64_t)t * 3 * HIDDEN, dp[POSITIONS], sum = 0;
        for (int u = 0; u <= t; u++) {
          const float *v = l->qkv + base + (int64_t)u * 3 * HIDDEN + 2 * HIDDEN;
          float *dv = dqkv + base + (int64_t)u * 3 * HIDDEN + 2 * HIDDEN;
          dp[u] = 0;
          for (int i = 0; i < HEAD; i++) {
            dp[u] += v[i] * d[i];
            dv[i] += p[u] * d[i];
          }
          sum += dp[u] * p[u];
        }
        for (int u = 0; u <= t; u++) {
          const float *k = l->qkv + base + (int64_t)u * 3 * HIDDEN + HIDDEN;
          float *dk = dqkv + base + (int64_t)u * 3 * HIDDEN + HIDDEN,
                ds = p[u] * (dp[u] - sum) * scale;
          for (int i = 0; i < HEAD; i++) {
            dq[i] += ds * k[i];
            dk[i] += ds * q[i];
          }
        }
      }
}

static const float gelu_scale = 0.7978845608f;

static void block(layer_t *l, float *x_next) {
  int64_t n = (int64_t)rows * HIDDEN;
  layernorm(l->n1, l->x, &l->ln1_w, &l->ln1_b);
  linear(l->qkv, l->n1, &l->qkv_w, &l->qkv_b, HIDDEN, 3 * HIDDEN);
  attention(l);
  linear(y, l->att, &l->proj_w, &l->proj_b, HIDDEN, HIDDEN);
  for (int64_t i = 0; i < n; i++) l->h[i] = l->x[i] + y[i];
  layernorm(l->n2, l->h, &l->ln2_w, &l->ln2_b);
  linear(l->fc, l->n2, &l->fc_w, &l->fc_b, HIDDEN, INNER);
#pragma omp parallel for
  for (int64_t i = 0; i < (int64_t)rows * INNER; i++) {
    float x = l->fc[i];
    l->act[i] = 0.5f * x * (1.0f + tanhf(gelu_scale * (x + 0.044715f * x * x * x)));
  }
  linear(y, l->act, &l->out_w, &l->out_b, INNER, HIDDEN);
  for (int64_t i = 0; i < n; i++) x_next[i] = l->h[i] + y[i];
}

static void block_back(layer_t *l) { /* dx: in and out */
  linear_back(dfc, dx, l->act, &l->out_w, &l->out_b, INNER, HIDDEN);
#pragma omp parallel for
  for (int64_t i = 0; i < (int64_t)rows * INNER; i++) {
    float x = l->fc[i], t = tanhf(gelu_scale * (x + 0.044715f * x * x * x));
    float slope = (1.0f - t * t) * gelu_scale * (1.0f + 3.0f * 0.044715f * x * x);
    dfc[i] *= 0.5f * (1.0f + t) + 0.5f * x * slope;
  }
  linear_back(dn, dfc, l->n2, &l->fc_w, &l->fc_b, HIDDEN, INNER);
  layernorm_back(dx, dn, l->h, &l->ln2_w, &l->ln2_b);
  linear_back(datt, dx, l->att, &l->proj_w, &l->proj_b, HIDDEN, HIDDEN);
  attention_back(l);
  linear_back(dn, dqkv, l->n1, &l->qkv_w, &l->qkv_b, HIDDEN, 3 * HIDDEN);
  layernorm_back(dx, dn, l->x, &l->ln1_w, &l->ln1_b);
}

/* Forward and backward of the tied head; returns the mean loss. */
static double head(const int *target) {
  double loss = 0;
#pragma omp parallel for reduction(+ : loss)
  for (int t = 0; t < rows; t++) {
    float *z = logits + (int64_t)t * VOCAB, most = -1e30f, sum = 0;
    const float *x = final_n + (int64_t)t * HIDDEN;
    for (int v = 0; v < VOCAB; v++) {
      const float *w = wte.w + (int64_t)v * HIDDEN;
      float dot = 0;
      for (int i = 0; i < HIDDEN; i++) dot += w[i] * x[i];
      z[v] = dot;
      if (dot > most) most = dot;
    }
    for (int v = 0; v < VOCAB; v++) sum += expf(z[v] - most);
    loss += logf(sum) + most - z[target[t]];
    for (int v = 0; v < VOCAB; v++) z[v] = expf(z[v] - most) / sum / (float)rows;
    z[target[t]] -= 1.0f / (float)rows;
    float *d = dn + (int64_t)t * HIDDEN;
    memset(d, 0, HIDDEN * sizeof(float));
    for (int v = 0; v < VOCAB; v++)
      for (int i = 0; i < HIDDEN; i++) d[i] += z[v] * wte.w[(int64_t)v * HIDDEN + i];
  }
#pragma omp parallel for
  for (int v = 0; v < VOCAB; v++)
    for (int t = 0; t < rows; t++) {
      float d = logits[(int64_t)t * VOCAB + v];
      for (int i = 0; i < HIDDEN; i++)
        wte.g[(int64_t)v * HIDDEN + i] += d * final_n[(int64_t)t * HIDDEN + i];
    }
  return loss / rows;
}

static param_t *all_params[4 + 12 * LAYERS];
static int n_params;

static void update(int step) {
  double square = 0;
  for (int k = 0; k < n_params; k++) {
    const float *g = all_params[k]->g;
#pragma omp parallel for reduction(+ : square)
    for (int64_t i = 0; i < all_params[k]->n; i++) square += (double)g[i] * g[i];
  }
  float norm = (float)sqrt(square), clip = norm > 1.0f ? 1.0f / norm : 1.0f;
  float c1 = 1.0f - powf(0.9f, (float)step), c2 = 1.0f - powf(0.999f, (float)step);
  for (int k = 0; k < n_params; k++) {
    param_t *p = all_params[k];
#pragma omp parallel for
    for (int64_t i = 0; i < p->n; i++) {
      float g = p->g[i] * clip;
      p->m[i] = 0.9f * p->m[i] + 0.1f * g;
      p->v[i] = 0.999f * p->v[i] + 0.001f * g * g;
      p->w[i] -= 3e-4f * (p->m[i] / c1 / (sqrtf(p->v[i] / c2) + 1e-8f) + 0.01f * p->w[i]);
      p->g[i] = 0;
    }
  }
}

static double train_step(const int *token, const int *target, int step) {
  for (int t = 0; t < rows; t++)
    for (int i = 0; i < HIDDEN; i++)
      layer[0].x[t * HIDDEN + i] =
          wte.w[(int64_t)token[t] * HIDDEN + i] + wpe.w[(t % seq) * HIDDEN + i];
  for (int k = 0; k < LAYERS; k++) block(&layer[k], k + 1 < LAYERS ? layer[k + 1].x : final_x);
  layernorm(final_n, final_x, &lnf_w, &lnf_b);
  double loss = head(target);
  memset(dx, 0, (size_t)rows * HIDDEN * sizeof(float));
  layernorm_back(dx, dn, final_x, &lnf_w, &lnf_b);
  for (int k = LAYERS; k-- > 0;) block_back(&layer[k]);
  for (int t = 0; t < rows; t++)
    for (int i = 0; i < HIDDEN; i++) {
      wte.g[(int64_t)token[t] * HIDDEN + i] += dx[t * HIDDEN + i];
      wpe.g[(t % seq) * HIDDEN + i] += dx[t * HIDDEN + i];
    }
  update(step);
  return loss;
}

static void add(param_t *p, int64_t n, float scale, float base) {
  *p = param(n, scale, base);
  all_params[n_params++] = p;
}

static void build(void) {
  int64_t n = (int64_t)rows * HIDDEN;
  add(&wte, (int64_t)VOCAB * HIDDEN, 0.03f, 0);
  add(&wpe, (int64_t)POSITIONS * HIDDEN, 0.03f, 0);
  add(&lnf_w, HIDDEN, 0, 1);
  add(&lnf_b, HIDDEN, 0, 0);
  for (int k = 0; k < LAYERS; k++) {
    layer_t *l = &layer[k];
    add(&l->ln1_w, HIDDEN, 0, 1), add(&l->ln1_b, HIDDEN, 0, 0);
    add(&l->qkv_w, 3 * HIDDEN * HIDDEN, 0.03f, 0), add(&l->qkv_b, 3 * HIDDEN, 0, 0);
    add(&l->proj_w, HIDDEN * HIDDEN, 0.01f, 0), add(&l->proj_b, HIDDEN, 0, 0);
    add(&l->ln2_w, HIDDEN, 0, 1), add(&l->ln2_b, HIDDEN, 0, 0);
    add(&l->fc_w, HIDDEN * INNER, 0.03f, 0), add(&l->fc_b, INNER, 0, 0);
    add(&l->out_w, INNER * HIDDEN, 0.01f, 0), add(&l->out_b, HIDDEN, 0, 0);
    l->x = floats(n), l->n1 = floats(n), l->att = floats(n), l->h = floats(n), l->n2 = floats(n);
    l->qkv = floats(3 * n), l->fc = floats(4 * n), l->act = floats(4 * n);
    l->prob = floats((int64_t)rows * HEADS * seq);
  }
  final_x = floats(n), final_n = floats(n), dx = floats(n), dn = floats(n), datt = floats(n),
  y = floats(n);
  dqkv = floats(3 * n), dfc = floats(4 * n), logits = floats((int64_t)rows * VOCAB);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc > 1) batch = atoi(argv[1]);
  if (argc > 2) seq = atoi(argv[2]);
  int steps = argc > 3 ? atoi(argv[3]) : 3;
  if (batch < 1 || seq < 1 || seq > POSITIONS || steps < 1) return 2;
  rows = batch * seq;
  build();
  int *token = malloc((size_t)(rows + 1) * sizeof(int));
  if (token == NULL) return 1;
  for (int i = 0; i <= rows; i++) token[i] = (int)((uint32_t)i * 2654435761u % VOCAB);
  double best = 1e30, loss = 0;
  for (int step = 1; step <= steps; step++) {
    double begin = now();
    loss = train_step(token, token + 1, step);
    double seconds = now() - begin;
    if (seconds < best) best = seconds;
  }
  printf(
      "{\"bench\": \"plain C loops\", \"batch\": %d, \"seq_len\": %d, \"min_s\": %.4f, \"loss\": "
      "%.6f}\n",
      batch, seq, best, loss);
  return 0;
}
