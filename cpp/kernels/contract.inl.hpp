// The two products of the backward pass as register tiles with lanes along the columns: rows of coefficients x a panel.
// Every element of the result is one chain of FMAs in the order of the terms that starts from what is there, so cutting terms,
// rows and columns into tiles changes no bit.
// It knows tiles; it refuses to know whether terms are ids or tokens.
#pragma once

#include "kernels/fetch.inl.hpp"
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

// What a term is. A word is the coefficient of a row, and one column of a panel's line; `half` counts the FMAs it takes.
template <class Element>
struct PlainTerms {
  using T = Element;
  using Word = Element;
  using Operand = Vector<T>;
  static constexpr int kHalves = 1;
  static Operand load(const Word* line, int) { return lmhead::load(line); }
  static Operand coefficient(const Word* c, int) { return broadcast(*c); }
  static Vector<T> multiply_add(Operand c, Operand x, Vector<T> sum) { return mul_add(c, x, sum); }
};

// Two terms of bfloat16 to a word: with the instruction,
template <class Dot>
struct Bf16DotTerms {
  using T = float;
  using Word = uint32_t;
  using Operand = typename Dot::Pairs;
  static constexpr int kHalves = 1;
  static Operand load(const Word* line, int) { return Dot::load(reinterpret_cast<const uint16_t*>(line)); }
  static Operand coefficient(const Word* c, int) { return Dot::broadcast(reinterpret_cast<const uint16_t*>(c)); }
  static VF multiply_add(Operand c, Operand x, VF sum) { return Dot::multiply_add(c, x, sum); }
};

// and without it, the odd one first.
struct Bf16PairTerms : PlainTerms<float> {
  using Word = uint32_t;
  static constexpr int kHalves = 2;
  static VF load(const Word* line, int half) {
    const uint16_t* pairs = reinterpret_cast<const uint16_t*>(line);
    return half == 0 ? load_bf16_odd(pairs) : load_bf16_even(pairs);
  }
  static VF coefficient(const Word* c, int half) {
    const uint16_t* pair = reinterpret_cast<const uint16_t*>(c);
    return half == 0 ? broadcast_bf16_odd(pair) : broadcast_bf16_even(pair);
  }
};

// Where the coefficients of M rows stand: side by side in each row,
template <class Word, int M>
struct RowCoefficients {
  static constexpr bool kRowsOuter = true;  // six rows of coefficients stay in L1 while panels pass
  const Word* row[M];
  RowCoefficients(const Contraction& c, int64_t first) {
    LMHEAD_UNROLL
    for (int m = 0; m < M; ++m) row[m] = reinterpret_cast<const Word*>(c.coefficients + (first + m) * c.coefficient_stride);
  }
  const Word* at(int m, ptrdiff_t k) const { return row[m] + k; }
};

// or those of all rows of a block side by side for each term.
template <class Word, int M>
struct BlockCoefficients {
  static constexpr bool kRowsOuter = false;  // a panel stays in L2 while the rows of the block pass
  const Word* base;
  BlockCoefficients(const Contraction& c, int64_t first) : base(reinterpret_cast<const Word*>(c.coefficients) + first) {}
  const Word* at(int m, ptrdiff_t k) const { return base + k * kBlockIds + m; }
};

// Loads after this are not done before it. GCC 12 would load the coefficients of all rows first, or keep those of one half of a
// term for the other, and push accumulators out of the 16 registers of AVX2 for them.
inline __attribute__((always_inline)) void load_later() { __asm__ volatile("" : : : "memory"); }

// One term of a tile.
template <class Terms, template <class, int> class Coefficients, int M>
inline __attribute__((always_inline)) void contract_term(const Coefficients<typename Terms::Word, M>& coefficients, ptrdiff_t k,
                                                         const typename Terms::Word* x, Vector<typename Terms::T> (&sum)[M][kContractVectors]) {
  constexpr int N = kContractVectors, lanes = kLanes<typename Terms::T>;
  LMHEAD_UNROLL
  for (int half = 0; half < Terms::kHalves; ++half) {
    typename Terms::Operand operand[N];
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      operand[n] = Terms::load(x + n * lanes, half);
      keep_in_register(operand[n]);
    }
    LMHEAD_UNROLL
    for (int m = 0; m < M; ++m) {
      if (Terms::kHalves > 1) load_later();
      typename Terms::Operand coefficient = Terms::coefficient(coefficients.at(m, k), half);
      keep_in_register(coefficient);
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) {
        sum[m][n] = Terms::multiply_add(coefficient, operand[n], sum[m][n]);
        if (Terms::kHalves > 1) keep_in_register(sum[m][n]);
      }
    }
  }
}

// What is fetched during a tile: the lines of the next one, and what the caller of the kernel reads next.
struct Fetchers {
  Fetcher& tile;
  Fetcher& call;
};

// Terms of a tile between two looks at what is to be fetched: 400 cycles, beside which the bookkeeping is nothing.
constexpr int64_t kTermsPerGroup = 16;

// M rows x kContractVectors vectors of a panel, all terms.
template <class Terms, template <class, int> class Coefficients, int M>
__attribute__((noinline)) void contract_tile(const Contraction& c, int64_t row, const char* panel, int64_t column, int64_t left, const Fetchers& fetchers) {
  using T = typename Terms::T;
  using Word = typename Terms::Word;
  constexpr int N = kContractVectors, lanes = kLanes<T>;
  constexpr ptrdiff_t line = kPanelBytes / sizeof(Word);
  const Coefficients<Word, M> coefficients(c, row);
  const Word* x = reinterpret_cast<const Word*>(panel);
  char* out_bytes = c.out + row * c.out_stride + column * static_cast<ptrdiff_t>(sizeof(T));
  Vector<T> sum[M][N];
  LMHEAD_UNROLL
  for (int m = 0; m < M; ++m)
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      const T* out = reinterpret_cast<const T*>(out_bytes + m * c.out_stride) + n * lanes;
      sum[m][n] = c.from_zero ? broadcast(T(0)) : left >= N * lanes ? load(out) : load_first(out, left - n * lanes, T(0));
    }
  for (ptrdiff_t k = 0; k < c.n_terms;) {
    fetchers.tile.fetch();
    fetchers.call.fetch();
    const ptrdiff_t end = k + kTermsPerGroup < c.n_terms ? k + kTermsPerGroup : c.n_terms;
    for (; k < end; ++k, x += line) contract_term<Terms, Coefficients, M>(coefficients, k, x, sum);
  }
  LMHEAD_UNROLL
  for (int m = 0; m < M; ++m)
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      T* out = reinterpret_cast<T*>(out_bytes + m * c.out_stride) + n * lanes;
      if (left >= N * lanes) store(out, sum[m][n]);
      else store_first(out, left - n * lanes, sum[m][n]);
    }
}

// M rows x one panel.
template <class Terms, template <class, int> class Coefficients, int M>
inline void contract_panel(const Contraction& c, int64_t row, int64_t panel, const Fetchers& fetchers) {
  using T = typename Terms::T;
  constexpr int64_t columns = kPanelBytes / sizeof(T), step = kContractVectors * kLanes<T>;
  const char* at = c.panels + panel * c.panel_stride;
  for (int64_t column = panel * columns; column < c.n_columns && column < (panel + 1) * columns; column += step)
    contract_tile<Terms, Coefficients, M>(c, row, at + (column - panel * columns) * static_cast<int64_t>(sizeof(T)), column, c.n_columns - column, fetchers);
}

// Calls run(Constant<M>, row) for tiles of kContractRows rows and then of 4, 2 and 1.
template <class Run>
inline void for_row_tiles(int64_t n_rows, Run run) {
  int64_t row = 0;
  for (; row + kContractRows <= n_rows; row += kContractRows) run(Constant<kContractRows>{}, row);
  if constexpr (kContractRows > 4) { if (row + 4 <= n_rows) { run(Constant<4>{}, row); row += 4; } }
  if constexpr (kContractRows > 2) { if (row + 2 <= n_rows) { run(Constant<2>{}, row); row += 2; } }
  if constexpr (kContractRows > 1) { if (row < n_rows) run(Constant<1>{}, row); }
}

template <class Terms, template <class, int> class Coefficients>
void contract(const Contraction& c) {
  using T = typename Terms::T;
  constexpr int64_t item = sizeof(T), columns = kPanelBytes / item;
  const int64_t n_panels = (c.n_columns + columns - 1) / columns;
  const int64_t groups = (c.n_terms + kTermsPerGroup - 1) / kTermsPerGroup * (columns / (kContractVectors * kLanes<T>));  // of M rows x a panel
  // What the next call reads need not stand in cache through all of this one: fetched in its second half it is 1 % faster.
  const int64_t all_groups = groups * n_panels * ((c.n_rows + kContractRows - 1) / kContractRows);
  Fetcher call(c.ahead, all_groups, all_groups / 2);
  const auto tile_after = [&](int64_t row, int64_t rows) { return row + rows < c.n_rows ? row + rows : 0; };
  const auto rows_of_tile = [&](int64_t row) { return c.n_rows - row < kContractRows ? c.n_rows - row : kContractRows; };
  if constexpr (Coefficients<typename Terms::Word, 1>::kRowsOuter) {
    const int64_t run = c.n_terms * static_cast<int64_t>(sizeof(typename Terms::Word));
    for_row_tiles(c.n_rows, [&](auto rows, int64_t row) {
      constexpr int M = decltype(rows)::value;
      // The coefficients of the next rows, or those that follow in the first rows.
      const int64_t next = tile_after(row, M);
      const char* at = c.coefficients + next * c.coefficient_stride + (next == 0 ? run : 0);
      Fetcher tile(rows_ahead(at, c.coefficient_stride, rows_of_tile(next), run), groups * n_panels, 0);
      for (int64_t panel = 0; panel < n_panels; ++panel) contract_panel<Terms, Coefficients, M>(c, row, panel, {tile, call});
    });
  } else {
    for (int64_t panel = 0; panel < n_panels; ++panel)
      for_row_tiles(c.n_rows, [&](auto rows, int64_t row) {
        constexpr int M = decltype(rows)::value;
        // What the next rows hold in these columns, or the first rows in the next panel's.
        const int64_t next = tile_after(row, M), column = (panel + (next == 0)) * columns, left = c.n_columns - column;
        const int64_t bytes = left <= 0 ? 0 : (left < columns ? left : columns) * item;
        Fetcher tile(rows_ahead(c.out + next * c.out_stride + column * item, c.out_stride, rows_of_tile(next), bytes), groups, 0);
        contract_panel<Terms, Coefficients, M>(c, row, panel, {tile, call});
      });
  }
}

}  // namespace
}  // namespace lmhead
