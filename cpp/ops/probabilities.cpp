#include "ops/probabilities.hpp"

#include <limits>

#include "consumers/masses.hpp"
#include "core/log1p.hpp"
#include "ops/filtered_rows.hpp"

namespace lmhead {
namespace {

// False where there is nothing to draw from.
template <class T>
bool write_probabilities(Masses& masses, const T* y, int64_t n, const Filters& filters, Kept<T>& kept, double* out) {
  std::fill(out, out + n, 0.0);
  if (filters.greedy()) {
    if (kept.count() == 0) return false;
    out[kept.ids()[0]] = 1;
    return true;
  }
  const double max = double(kept.max()), total = kept.mass();
  if (!(max - max == 0)) return false;
  masses.start(max, filters.temperature);
  const int64_t count = kept.is_list() ? kept.count() : n;
  const T* values = kept.is_list() ? kept.values() : y;
  for (int64_t first = 0; first < count; first += Masses::kMost) {
    const int64_t most = std::min(Masses::kMost, count - first);
    const double* of = masses.of(values + first, most);
    for (int64_t i = first; i < first + most; ++i) {
      if (kept.is_list()) out[kept.ids()[i]] = of[i - first] / total;
      else if (kept.cut_off().keeps(y[i], i)) out[i] = of[i - first] / total;
    }
  }
  return true;
}

template <class T>
int64_t probabilities_as(const Rows& logits, const Allowed& allowed, const SampleOptions& options, double* out, int threads) {
  std::vector<Masses> masses;
  for (int worker = 0; worker < threads; ++worker) masses.emplace_back(table());
  std::vector<char> wrong(static_cast<size_t>(logits.n_rows), 0);
  filtered_rows<T>(logits, allowed, options, threads, [&](int worker, int64_t row, const T* y, Kept<T>& kept) {
    const Filters& filters = options.rows[static_cast<size_t>(row)].filters;
    wrong[static_cast<size_t>(row)] =
        !write_probabilities(masses[static_cast<size_t>(worker)], y, logits.width, filters, kept, out + row * logits.width);
  });
  const auto first = std::find(wrong.begin(), wrong.end(), 1);
  return first == wrong.end() ? -1 : first - wrong.begin();
}

}  // namespace

int64_t probabilities(const Rows& logits, const Allowed& allowed, const SampleOptions& options, double* out, int threads) {
  if (logits.dtype == DType::float64) return probabilities_as<double>(logits, allowed, options, out, threads);
  return probabilities_as<float>(logits, allowed, options, out, threads);
}

void logarithms(const Rows& numbers, double* out, int threads) {
  const Reader<double> reader(table(), numbers);
  struct Scratch {
    Buffer<double> row;
    Buffer<char> temporary;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  run_tasks(threads, numbers.n_rows, [&](int worker, int64_t row) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    const double* x = reader.read(row, 0, numbers.width, mine.row.reserve(numbers.width), mine.temporary);
    double* to = out + row * numbers.width;
    for (int64_t i = 0; i < numbers.width; ++i) to[i] = x[i] > 0 ? log_of(x[i]) : -std::numeric_limits<double>::infinity();
  });
}

}  // namespace lmhead
