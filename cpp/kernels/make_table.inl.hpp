// Every kernel of one ISA in one table. An ISA's translation unit includes its vocabulary and then this file.
#pragma once

#include "kernels/adjust.inl.hpp"
#include "kernels/contract.inl.hpp"
#include "kernels/contract_active.inl.hpp"
#include "kernels/log_sum_exp.inl.hpp"
#include "kernels/loss.inl.hpp"
#include "kernels/pack_panels.inl.hpp"
#include "kernels/project.inl.hpp"
#include "kernels/project_columns.inl.hpp"
#include "kernels/project_quantized.inl.hpp"
#include "kernels/race.inl.hpp"
#include "kernels/roofs.inl.hpp"
#include "kernels/screen.inl.hpp"
#include "kernels/select.inl.hpp"
#include "kernels/softmax.inl.hpp"
#include "kernels/table.hpp"
#include "kernels/transpose.inl.hpp"
#include "kernels/widen.inl.hpp"

namespace lmhead {
namespace {

template <class T>
constexpr RowKernels<T> make_row_kernels() {
  return {adjust_row<T>,    block_sums<T>,   merge_sums<T>, scale_exps<T>,   shift_logits<T>,   select_above<T>,
          adjust_slopes<T>, weighted_gap<T>, find_first<T>, gradient_row<T>, find_active<T>,
          contract_active<T>, filter_gradient<T>, count_better<T>,
          race<T>};
}

// What multiplies pairs of bfloat16: the instruction, where there is one, else their halves, or nothing. As these are templates, the
// branch that is not taken is not compiled.
template <class Dot = DotBf16>
constexpr auto project_bf16_dot() -> decltype(&project<PlainRow<float>>) {
  if constexpr (kHasDotBf16) return project<Bf16DotRow<Dot>>;
  else return nullptr;
}
template <template <class, int> class Coefficients, class Dot = DotBf16>
constexpr auto contract_bf16() {
  if constexpr (kHasDotBf16) return contract<Bf16DotTerms<Dot>, Coefficients>;
  else return contract<Bf16PairTerms, Coefficients>;
}
template <class Dot = DotBf16>
constexpr auto roof_of_bf16() -> decltype(&multiply_f32) {
  if constexpr (kHasDotBf16) return multiply_bf16<Dot>;
  else return nullptr;
}

constexpr KernelTable make_table(const char* isa) {
  return {
      isa,
      {project<PlainRow<float>>, project<F16Row>, project<Bf16Row>, project<Bf16PairRow>, project_bf16_dot(),
       project<PlainRow<double>>},
      {project_columns<PlainRow<float>>, project_columns<F16Row>, project_columns<Bf16Row>, project_columns<Bf16PairRow>,
       nullptr, project_columns<PlainRow<double>>},
      make_row_kernels<float>(),
      make_row_kernels<double>(),
      {pack_panels<PlainRow<float>>, pack_panels<PlainRow<double>>, pack_panels<F16Row>, pack_panels<Bf16Row>, pack_pairs},
      {contract<PlainTerms<float>, RowCoefficients>, contract<PlainTerms<double>, RowCoefficients>, contract_bf16<RowCoefficients>()},
      {contract<PlainTerms<float>, BlockCoefficients>, contract<PlainTerms<double>, BlockCoefficients>, contract_bf16<BlockCoefficients>()},
      stream_fence,
      widen_f16,
      widen_bf16,
      widen_bf16_pairs,
      narrow_bf16,
      transpose_words,
      dequantize,
      project_quantized,
      read_all,
      multiply_f32,
      roof_of_bf16(),
      {kScreenOutrunsFma, kScreenPartBytes, kScreenSegment, scan_screen, max_abs, screen_row},
  };
}

}  // namespace
}  // namespace lmhead
