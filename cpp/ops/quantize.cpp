#include "ops/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/half.hpp"
#include "core/parallel.hpp"
#include "core/read_block.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

// Rows that a task reads together: a matrix stored as (D, V) then comes in runs of two cache lines of float32.
constexpr int64_t kRowsTogether = 32;
// Elements that one thread has copied before a second has woken.
constexpr int64_t kSerialElements = 1 << 16;
// Adding and subtracting it rounds a double below 2^51 to an integer, ties to even.
constexpr double kRounding = 0x1.8p52;

template <class T> struct Bits;
template <> struct Bits<float> {
  using type = int32_t;
  static constexpr type infinity = 0x7f800000;
};
template <> struct Bits<double> {
  using type = int64_t;
  static constexpr type infinity = 0x7ff0000000000000;
};

// The bits of the greatest magnitude, which order as the magnitudes do; NaN is above infinity.
template <class T>
typename Bits<T>::type greatest(const T* w, int64_t n) {
  using U = typename Bits<T>::type;
  U most = 0;
  for (int64_t i = 0; i < n; ++i) {
    U u;
    std::memcpy(&u, w + i, sizeof(u));
    u &= std::numeric_limits<U>::max();
    most = u > most ? u : most;
  }
  return most;
}

float widened(const KernelTable& table, uint16_t half) {
  float x;
  table.widen_f16(&half, 1, &x);
  return x;
}

// A scale no further from max / limit than the next number, with which max rounds to no more than limit: limit + 1/2 of it cover max.
// 0 where there is none.
float float_scale(double max, int limit) {
  const double exact = max / limit;
  if (exact > std::numeric_limits<float>::max()) return 0;
  auto scale = static_cast<float>(exact);
  if (std::isinf(scale * static_cast<float>(limit))) scale = std::nextafter(scale, 0.0f);  // a row that reaches the end of float32
  return double(scale) * (limit + 0.5) >= max ? scale : std::nextafter(scale, std::numeric_limits<float>::infinity());
}
uint16_t half_scale(const KernelTable& table, double max, int limit) {
  const double exact = max / limit;
  if (exact > 65504 || exact < 0x1p-24) return 0;
  const uint16_t scale = narrow_f16(narrow_to_odd(exact));
  return double(widened(table, scale)) * (limit + 0.5) >= max ? scale : static_cast<uint16_t>(scale + 1);
}

template <class T>
void round_group(const T* w, int64_t n, double scale, int limit, int8_t* q) {
  const double most = limit;
  for (int64_t i = 0; i < n; ++i) {
    double x = double(w[i]) / scale;
    x = x + kRounding - kRounding;
    x = x > most ? most : x < -most ? -most : x;
    q[i] = static_cast<int8_t>(static_cast<int32_t>(x));
  }
}

void pack_nibbles(const int8_t* q, int64_t n, uint8_t* bytes) {
  for (int64_t first = 0; first < n; first += 32, bytes += 16)
    for (int64_t i = 0; i < 16; ++i) {
      const int low = first + i < n ? q[first + i] : 0, high = first + i + 16 < n ? q[first + i + 16] : 0;
      bytes[i] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
    }
}

template <class T>
class Quantizer {
 public:
  Quantizer(const Rows& weight, const QuantizeTarget& out, int threads)
      : table_(table()), weight_(weight), out_(out), scratch_(static_cast<size_t>(threads)) {}

  QuantizeRefusal run() {
    const auto threads = static_cast<int>(scratch_.size());
    const bool small = double(weight_.n_rows) * double(weight_.width) < kSerialElements;
    run_tasks(small ? 1 : threads, ceil_div(weight_.n_rows, kRowsTogether), [&](int worker, int64_t task) {
      Scratch& mine = scratch_[static_cast<size_t>(worker)];
      const int64_t first = task * kRowsTogether, n = std::min(kRowsTogether, weight_.n_rows - first);
      const T* found[kRowsTogether];
      read_block(table_, weight_, first, n, mine.rows.reserve(n * weight_.width), mine.temporary, found);
      for (int64_t i = 0; i < n; ++i) quantize_row(found[i], first + i, mine);
    });
    QuantizeRefusal first;
    for (const Scratch& mine : scratch_) {
      if (mine.refusal.reason == QuantizeRefusal::none) continue;
      if (first.reason == QuantizeRefusal::none || mine.refusal.row < first.row) first = mine.refusal;
    }
    return first;
  }

 private:
  struct Scratch {
    Buffer<T> rows;
    Buffer<int8_t> integers;
    Buffer<char> temporary;
    QuantizeRefusal refusal;  // the first of this worker, whose tasks come in ascending order
  };

  void quantize_row(const T* w, int64_t row, Scratch& mine) {
    const int64_t width = weight_.width, groups = ceil_div(width, out_.group);
    const int limit = quantized_limit(out_.bits);
    char* values = out_.values + row * out_.value_bytes;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * out_.group, n = std::min(out_.group, width - first);
      const auto bits = greatest(w + first, n);
      if (bits >= Bits<T>::infinity)
        return refuse(mine, QuantizeRefusal::not_finite, row, *std::find_if(w + first, w + first + n, [](T x) { return !std::isfinite(x); }));
      T max;
      std::memcpy(&max, &bits, sizeof(max));
      float scale = 0;
      const int64_t place = row * groups + g;
      if (out_.half_scales) {
        const uint16_t half = max > 0 ? half_scale(table_, max, limit) : uint16_t{0};
        scale = widened(table_, half);
        std::memcpy(out_.scales + 2 * place, &half, 2);
      } else {
        scale = max > 0 ? float_scale(max, limit) : 0;
        std::memcpy(out_.scales + 4 * place, &scale, 4);
      }
      if (scale == 0 && max > 0) return refuse(mine, max > 1 ? QuantizeRefusal::scale_too_large : QuantizeRefusal::scale_too_small, row, max);
      auto* q = out_.bits == 8 ? reinterpret_cast<int8_t*>(values) + first : mine.integers.reserve(n);
      if (max > 0) round_group(w + first, n, scale, limit, q);
      else std::fill(q, q + n, int8_t{0});
      if (out_.bits == 4) pack_nibbles(q, n, reinterpret_cast<uint8_t*>(values) + first / 2);
    }
  }

  static void refuse(Scratch& mine, QuantizeRefusal::Reason reason, int64_t row, T value) {
    if (mine.refusal.reason == QuantizeRefusal::none) mine.refusal = {reason, row, double(value)};
  }

  const KernelTable& table_;
  const Rows& weight_;
  const QuantizeTarget& out_;
  std::vector<Scratch> scratch_;
};

}  // namespace

QuantizeRefusal quantize(const Rows& weight, const QuantizeTarget& out, int threads) {
  if (weight.dtype == DType::float64) return Quantizer<double>(weight, out, threads).run();
  return Quantizer<float>(weight, out, threads).run();
}

}  // namespace lmhead
