// The public operations. Arguments have been checked: shapes agree, dtypes fit, nothing overlaps.
#pragma once

#include "consumers/top_k.hpp"
#include "core/allowed.hpp"
#include "core/rows.hpp"
#include "core/target.hpp"

namespace lmhead {

class Screen;

// bias, softcap, scale as the caller gave them; bias holds (V,) of the result's type or is null.
struct HeadOptions {
  const void* bias = nullptr;
  double softcap = 0;  // 0: none
  double scale = 1;
};

void logits(const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed, const Target& out, int threads);
void logits_top_k(const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed, const TopKTarget& out, int threads);
// Whether `screened_top_k` of this many tries its screen at all; and whether logits of a part of the rows may have other bits than those of
// all (subnormals of bfloat16 on a (D, V) weight, which few rows meet in other kernels): then all rows of a call go one way.
bool worth_a_screen(const Rows& hidden, const Rows& weight, const HeadOptions& options, int64_t k);
bool rows_go_together(const Rows& hidden, const Rows& weight);
// The same lists by way of a screen made from this weight, of float32, float16 or bfloat16; rescored: [n_rows], how many logits were
// computed. Where not every id is allowed, the screen is not used.
void screened_top_k(const Screen& screen, const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed,
                    const TopKTarget& out, int64_t* rescored, int threads);
void top_k(const Rows& logits, const TopKTarget& out, int threads);

// Rows ids[0 .. n) of a weight, or its first n where ids is null, side by side as float32 (float64 of float64).
void gather(const Rows& weight, const int64_t* ids, int64_t n, void* out, int threads);

void softmax(const Rows& logits, double temperature, const Target& out, int threads);
void log_softmax(const Rows& logits, double temperature, const Target& out, int threads);
void log_sum_exp(const Rows& logits, double temperature, const Target& out, int threads);

// gain and bias: null, or (D,) of float64.
void layer_norm(const Rows& x, const double* gain, const double* bias, double eps, const Target& out, int threads);
void rms_norm(const Rows& x, const double* gain, double eps, const Target& out, int threads);

}  // namespace lmhead
