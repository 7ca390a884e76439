// Masses exp((y - max) / temperature) of logits, in float64 whatever the logits are, by the tables' own exp: the same bits on every one.
// Masses: of a few values at a time, each a function of its value alone, so equal logits have equal masses wherever they stand.
// RowMass: of a whole row, from blocks of 256 ids that may come in any order and from any thread.
// It knows numbers relative to a maximum; it refuses to know what is kept.
#pragma once

#include "consumers/log_sum_exp.hpp"
#include "core/buffer.hpp"
#include "core/cut_off.hpp"

namespace lmhead {

class Masses {
 public:
  // Values a call takes: a block whose first place holds the maximum, which is what makes the block's masses relative to it.
  static constexpr int64_t kMost = kBlockIds - 1;

  explicit Masses(const KernelTable& table) : kernels_(table.f64), scratch_(2 * kBlockIds) {}

  void start(double max, double temperature) {
    max_ = max;
    temperature_ = temperature;
    inverse_ = inverse_temperature_of<double>(temperature);
    values()[0] = max;
  }
  double max() const { return max_; }
  double temperature() const { return temperature_; }

  // Of n <= kMost values <= max, until the next call. -inf has mass 0.
  template <class T>
  const double* of(const T* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) values()[1 + i] = double(y[i]);
    return of_values(n);
  }
  double of(double y) { return of(&y, 1)[0]; }
  // (max - y) / temperature, taken of halves: numbers at the two ends of the range do not overflow before they are divided.
  double distance(double y) const { return (0.5 * max_ - 0.5 * y) * (2 * inverse_); }

 private:
  double* values() const { return scratch_.get(); }
  double* masses() const { return scratch_.get() + kBlockIds; }
  const double* of_values(int64_t n) {
    double maximum, rest;
    kernels_.block_sums(values(), 1 + n, inverse_, masses(), {&maximum, &rest});
    return masses() + 1;
  }

  const RowKernels<double>& kernels_;
  Buffer<double> scratch_;
  double max_ = 0, temperature_ = 1, inverse_ = 1;
};

class RowMass {
 public:
  void start(int64_t n_ids, double temperature) {
    n_blocks_ = ceil_div(n_ids, kBlockIds);
    inverse_ = inverse_temperature_of<double>(temperature);
    sums_.reserve(2 * n_blocks_);
  }

  // Logits of ids first_id .. first_id + n - 1 of which those beyond `bound` count nothing: whole blocks, or the row's end. Every block
  // once, different ones from different threads.
  template <class T>
  void add(const KernelTable& table, const T* y, int64_t n, int64_t first_id, const CutOff<T>& bound = {}) {
    constexpr int64_t most = 8 * kBlockIds;  // 16 KiB beside the logits in L1
    double wide[most];
    for (int64_t i = 0; i < n; i += most) {
      const int64_t count = n - i < most ? n - i : most;
      if (bound.keeps_all())
        for (int64_t j = 0; j < count; ++j) wide[j] = double(y[i + j]);
      else
        for (int64_t j = 0; j < count; ++j)
          wide[j] = bound.keeps(y[i + j], first_id + i + j) ? double(y[i + j]) : -std::numeric_limits<double>::infinity();
      const int64_t block = (first_id + i) / kBlockIds;
      table.f64.block_sums(wide, count, inverse_, nullptr, {sums_.get() + block, sums_.get() + n_blocks_ + block});
    }
  }

  // (max, rest) of the row: its mass is 1 + rest.
  LogSum<double> sum(const KernelTable& table) const {
    return table.f64.merge_sums({sums_.get(), sums_.get() + n_blocks_}, n_blocks_, inverse_, nullptr);
  }

 private:
  Buffer<double> sums_;
  int64_t n_blocks_ = 0;
  double inverse_ = 1;
};

}  // namespace lmhead
