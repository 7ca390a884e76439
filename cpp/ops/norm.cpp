// layer_norm and rms_norm: the final norm before the head. Sums, mean and scale in float64, one rounding at the end; a row of
// D is a thousandth of the head's work, so plain C++ that every CPU runs alike is enough.
#include <cmath>
#include <vector>

#include "core/buffer.hpp"
#include "core/parallel.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

// Eight sums side by side (so that the additions do not wait for each other), then a tree.
template <class Term>
double sum_of(int64_t n, Term term) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += term(i + j);
  for (int j = 0; i < n; ++i, ++j) sums[j] += term(i);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// Elements below which one thread is done before a second has woken.
constexpr double kSerialElements = 1 << 14;

template <class T>
void norm_as(const Rows& x, bool centred, const double* gain, const double* bias, double eps, const Target& out, int threads) {
  const int64_t width = x.width;
  if (width == 0) return;
  if (double(x.n_rows) * double(width) < kSerialElements) threads = 1;
  const KernelTable& kernels = table();
  const Reader<T> reader(kernels, x);
  struct Scratch {
    Buffer<T> values, result;
    Buffer<char> temporary;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  run_tasks(threads, x.n_rows, [&](int worker, int64_t row) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    const T* z = reader.read(row, 0, width, mine.values.reserve(width), mine.temporary);
    T* to = mine.result.reserve(width);
    const double mean = centred ? sum_of(width, [&](int64_t i) { return double(z[i]); }) / double(width) : 0.0;
    const double square = sum_of(width, [&](int64_t i) { return (z[i] - mean) * (z[i] - mean); }) / double(width);
    const double factor = 1 / std::sqrt(square + eps);
    for (int64_t i = 0; i < width; ++i) {
      double y = (z[i] - mean) * factor;
      if (gain) y = y * gain[i];
      if (bias) y = y + bias[i];
      to[i] = static_cast<T>(y);
    }
    out.put(row, 0, to, width);
  });
}

void norm(const Rows& x, bool centred, const double* gain, const double* bias, double eps, const Target& out, int threads) {
  if (x.dtype == DType::float64) norm_as<double>(x, centred, gain, bias, eps, out, threads);
  else norm_as<float>(x, centred, gain, bias, eps, out, threads);
}

}  // namespace

void layer_norm(const Rows& x, const double* gain, const double* bias, double eps, const Target& out, int threads) {
  norm(x, true, gain, bias, eps, out, threads);
}

void rms_norm(const Rows& x, const double* gain, double eps, const Target& out, int threads) {
  norm(x, false, gain, nullptr, eps, out, threads);
}

}  // namespace lmhead
