#include "core/screen.hpp"

#include <algorithm>
#include <limits>

#include "core/page_tasks.hpp"
#include "core/parallel.hpp"
#include "core/read_block.hpp"

namespace lmhead {
namespace {

// The sum of -128 times some numbers, modulo 2^32.
template <class Number>
int32_t correction(const Number* numbers, int64_t n) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<uint32_t>(numbers[i]);
  return static_cast<int32_t>(-128u * sum);
}

}  // namespace

Screen::Screen(const KernelTable& table, const Rows& weight, int threads)
    : n_ids_(weight.n_rows), width_(weight.width), n_blocks_(ceil_div(weight.n_rows, kScreenBlock)), n_chunks_(ceil_div(weight.width, 4)),
      dtype_(weight.dtype), plane_(n_blocks_ * n_chunks_ * 4 * kScreenBlock), scales_(padded_ids()), errors_(padded_ids()), norms_(padded_ids()) {
  struct Scratch {
    Buffer<float> rows;
    Buffer<uint8_t> bytes;
    Buffer<char> temporary;
    double greatest = 0;
  };
  const PageTasks tasks(n_blocks_, n_chunks_ * 4 * kScreenBlock);
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  run_tasks(double(n_ids_) * double(width_) < kSerialWork ? 1 : threads, tasks.size(), [&](int worker, int64_t task) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    float* rows = mine.rows.reserve(kScreenBlock * width_);
    uint8_t* bytes = mine.bytes.reserve(kScreenBlock * round_up(width_, 16));
    for (int64_t block = tasks.first(task); block < tasks.end(task); ++block)
      make_block(table, weight, block, rows, bytes, mine.temporary, mine.greatest);
  });
  for (const Scratch& of_worker : scratch) greatest_ = std::max(greatest_, of_worker.greatest);
}

void Screen::make_block(const KernelTable& table, const Rows& weight, int64_t block, float* rows, uint8_t* bytes, Buffer<char>& temporary,
                        double& greatest) {
  const int64_t first = block * kScreenBlock, n = std::min(kScreenBlock, n_ids_ - first), stride = round_up(width_, 16);
  // A row stays in the first-level cache while it is looked at twice, but for those of a (D, V) weight, whose lines hold several.
  const bool together = !weight.contiguous();
  const float* wide[kScreenBlock];
  if (together) read_block(table, weight, first, n, rows, temporary, wide);
  for (int64_t i = 0; i < kScreenBlock; ++i) {
    if (!together && i < n) read_block(table, weight, first + i, 1, rows, temporary, wide + i);
    uint8_t* q = bytes + i * stride;
    float scale = 0;
    RowNorms norms{0, 0};
    const float largest = i < n ? table.screen.max_abs(wide[i], width_) : 0.0f;
    if (largest >= kLeastWeight) {
      scale = largest / 127;
      const char* next = together ? reinterpret_cast<const char*>(wide[std::min(n - 1, i + 1)]) : weight.row(std::min(n_ids_ - 1, first + i + 1));
      const ptrdiff_t item = together ? ptrdiff_t(sizeof(float)) : item_size(weight.dtype);
      norms = screen_norms(table.screen.make_row(wide[i], width_, scale, q, next, item), scale, width_);
    } else {
      std::fill(q, q + stride, uint8_t(128));
      if (largest > 0) norms.error = norm_above(wide[i], width_);
      else if (largest != 0) norms.error = std::numeric_limits<float>::quiet_NaN();
    }
    scales_[first + i] = scale;
    errors_[first + i] = norms.error;
    norms_[first + i] = norms.norm;
    if (largest == largest) greatest = std::max(greatest, double(norms.error) + double(norms.norm));
  }
  uint8_t* to = plane_.get() + block * n_chunks_ * 4 * kScreenBlock;
  table.transpose_words(reinterpret_cast<const uint32_t*>(bytes), stride / 4, kScreenBlock, n_chunks_, reinterpret_cast<uint32_t*>(to),
                        kScreenBlock);
}

void Screen::interleave(const KernelTable& table, const int16_t* numbers, int64_t n_rows, void* words, int32_t* corrections) const {
  const int64_t width = padded_width(), per_row = n_corrections(table);
  for (int64_t r = 0; r < n_rows; ++r) {
    const int16_t* row = numbers + r * width;
    int32_t* mine = corrections + r * per_row;
    if (table.screen.part_bytes == 2) {
      for (int64_t c = 0; c < n_chunks_; ++c) {
        const int16_t even_first[4] = {row[4 * c], row[4 * c + 2], row[4 * c + 1], row[4 * c + 3]};
        std::memcpy(static_cast<int16_t*>(words) + 4 * (c * n_rows + r), even_first, 8);
      }
      for (int64_t i = 0; i < per_row; ++i) {
        const int64_t first = 4 * i * table.screen.segment;
        mine[i] = correction(row + first, std::min(4 * table.screen.segment, width - first));
      }
      continue;
    }
    uint32_t high = 0, low = 0;
    for (int64_t c = 0; c < n_chunks_; ++c) {
      int8_t* to = static_cast<int8_t*>(words) + 8 * (c * n_rows + r);
      for (int64_t j = 0; j < 4; ++j) {
        const int number = row[4 * c + j], upper = (number + 128) >> 8, lower = number - 256 * upper;  // -127 .. 127 and -128 .. 127
        to[j] = static_cast<int8_t>(upper);
        to[4 + j] = static_cast<int8_t>(lower);
        high += static_cast<uint32_t>(upper);
        low += static_cast<uint32_t>(lower);
      }
    }
    mine[0] = static_cast<int32_t>(-128u * high);
    mine[1] = static_cast<int32_t>(-128u * low);
  }
}

void Screen::scan(const KernelTable& table, const Words& words, const ScreenRow* rows, int64_t n_rows, int64_t first_id, int64_t n_ids,
                  float* estimates, float* ends, ptrdiff_t stride) const {
  table.screen.scan({plane_.get() + first_id * padded_width(), ceil_div(n_ids, kScreenBlock), n_chunks_, scales_.get() + first_id,
                     errors_.get() + first_id, norms_.get() + first_id, words.numbers, words.corrections, n_corrections(table), rows, n_rows,
                     estimates, ends, stride});
}

}  // namespace lmhead
