/* Fits a line to noisy points from plain C: what examples/linear_regression.cpp does. */
#include <arete/c_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program where a call failed. */
static void check(arete_status status) {
  if (status != ARETE_OK) {
    fprintf(stderr, "error %d: %s\n", (int)status, arete_last_error());
    exit(1);
  }
}

/* An operator with one result. */
static arete_tensor* call(const char* op, const arete_arg* args, size_t n) {
  arete_tensor* result = NULL;
  size_t count = 1;
  check(arete_call(op, args, n, &result, &count));
  return result;
}
static arete_tensor* binary(const char* op, const arete_tensor* a, const arete_tensor* b) {
  const arete_arg args[] = {arete_of(a), arete_of(b)};
  return call(op, args, 2);
}

static arete_tensor* parameter(void) {
  const int64_t sizes[] = {1};
  const float zero = 0;
  arete_tensor* t = NULL;
  check(arete_tensor_from_data(&zero, sizes, 1, ARETE_FLOAT32, NULL, &t));
  check(arete_tensor_set_requires_grad(t, 1));
  return t;
}

/* p -= rate * p.grad, and forgets the gradient. */
static void step(arete_tensor* p, double rate) {
  arete_tensor* grad = NULL;
  check(arete_tensor_grad(p, &grad));
  const arete_arg args[] = {arete_of(p), arete_of(grad), arete_named("alpha", arete_float(rate))};
  int32_t before;
  check(arete_set_grad_enabled(0, &before));
  arete_tensor_free(call("sub_", args, 3));
  check(arete_set_grad_enabled(before, NULL));
  check(arete_tensor_set_grad(p, NULL));
  arete_tensor_free(grad);
}

int main(void) {
  enum { kPoints = 200 };
  float xs[kPoints], ys[kPoints];
  uint32_t random = 1;
  for (int i = 0; i < kPoints; ++i) {
    random = random * 1664525u + 1013904223u;
    xs[i] = 10.0f * i / kPoints;
    ys[i] = 3 * xs[i] - 5 + ((random >> 8) / 16777216.0f - 0.5f);
  }
  /* The memory stays ours: it lives longer than the tensors. */
  const int64_t sizes[] = {kPoints};
  arete_tensor *x = NULL, *y = NULL;
  check(arete_tensor_from_memory(xs, sizes, NULL, 1, ARETE_FLOAT32, NULL, NULL, NULL, &x));
  check(arete_tensor_from_memory(ys, sizes, NULL, 1, ARETE_FLOAT32, NULL, NULL, NULL, &y));

  arete_tensor *slope = parameter(), *offset = parameter();
  for (int i = 0; i < 600; ++i) {
    arete_tensor* product = binary("mul", x, slope);
    arete_tensor* line = binary("add", product, offset);
    arete_tensor* loss = binary("mse_loss", line, y);
    check(arete_tensor_backward(loss, NULL, 0, 0));
    if (i % 200 == 0) {
      double value;
      check(arete_tensor_item(loss, &value));
      printf("step %3d  loss %.3f\n", i, value);
    }
    step(slope, 0.02);
    step(offset, 0.02);
    arete_tensor_free(loss);
    arete_tensor_free(line);
    arete_tensor_free(product);
  }

  double a, b;
  check(arete_tensor_item(slope, &a));
  check(arete_tensor_item(offset, &b));
  printf("y = %.2f x %+.2f\n", a, b);
  arete_tensor_free(offset);
  arete_tensor_free(slope);
  arete_tensor_free(y);
  arete_tensor_free(x);
  return fabs(a - 3) < 0.1 && fabs(b + 5) < 0.2 ? 0 : 1;
}
