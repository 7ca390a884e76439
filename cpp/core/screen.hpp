// A weight's screen: a quarter of float32's bytes, from which every logit is known within a bound (core/screen_bound.hpp proves it).
// It knows storage and how it is made; it refuses to know what is looked for.
#pragma once

#include "core/rows.hpp"
#include "core/screen_bound.hpp"

namespace lmhead {

class Screen {
 public:
  // weight (V, D) of float32, float16 or bfloat16, D <= kScreenWidth; it is not needed any more afterwards. Scratch: 16 rows of
  // float32 and of bytes a thread.
  Screen(const KernelTable& table, const Rows& weight, int threads);

  int64_t n_ids() const { return n_ids_; }
  int64_t width() const { return width_; }
  // Of the weight: rows of another one may differ from these by more than any bound.
  DType dtype() const { return dtype_; }
  int64_t padded_ids() const { return n_blocks_ * kScreenBlock; }
  int64_t padded_width() const { return 4 * n_chunks_; }
  int64_t bytes() const { return padded_ids() * (padded_width() + 3 * int64_t(sizeof(float))); }
  // The greatest b + e of a finite row.
  double greatest() const { return greatest_; }

  // Hidden rows as a scan of this table wants them; numbers: what screen_hidden() wrote for each of n_rows rows, padded_width() apart.
  struct Words {
    const void* numbers;
    const int32_t* corrections;
  };
  int64_t words_bytes(int64_t n_rows) const { return n_rows * 2 * padded_width(); }
  int64_t n_corrections(const KernelTable& table) const {
    return table.screen.part_bytes == 1 ? 2 : ceil_div(n_chunks_, table.screen.segment);
  }
  void interleave(const KernelTable& table, const int16_t* numbers, int64_t n_rows, void* words, int32_t* corrections) const;

  // Estimates and ends of ids [first_id, first_id + n_ids) of prepared rows, first_id a multiple of kScreenBlock; whole blocks are written.
  void scan(const KernelTable& table, const Words& words, const ScreenRow* rows, int64_t n_rows, int64_t first_id, int64_t n_ids,
            float* estimates, float* ends, ptrdiff_t stride) const;

 private:
  void make_block(const KernelTable& table, const Rows& weight, int64_t block, float* rows, uint8_t* bytes, Buffer<char>& temporary,
                  double& greatest);

  int64_t n_ids_, width_, n_blocks_, n_chunks_;
  DType dtype_;
  double greatest_ = 0;
  Buffer<uint8_t> plane_;
  Buffer<float> scales_, errors_, norms_;
};

}  // namespace lmhead
