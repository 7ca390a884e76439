// A draw of each row: what is asked of it, where it goes, why there is none.
// It knows parameters by row; it refuses to know logits.
#pragma once

#include <vector>

#include "core/edits.hpp"
#include "core/filters.hpp"

namespace lmhead {

struct SampleRow {
  Filters filters;
  uint64_t seed = 0, position = 0;

  bool greedy() const { return filters.greedy(); }
};

// Of which distribution logarithms are returned: of the logits before edits at temperature 1, or of what is drawn from.
enum class Logprobs { none, raw, processed };

struct SampleOptions {
  std::vector<SampleRow> rows;
  std::vector<Edit> edits;
  std::vector<int64_t> first_edit;  // of each row, and the end; empty: no edits
  Logprobs logprobs = Logprobs::raw;
  int64_t top_n = 0;

  // Those of some rows, in this order.
  SampleOptions some_rows(const std::vector<int64_t>& wanted) const;
  RowEdits edits_of(int64_t row) const {
    if (first_edit.empty()) return {};
    return {edits.data() + first_edit[static_cast<size_t>(row)], edits.data() + first_edit[static_cast<size_t>(row) + 1]};
  }
};

// Where results go: (N,) and (N, top_n) of float, or of double where the operands are; null where nobody asked.
struct SampleTarget {
  int64_t* token = nullptr;
  void* logprob = nullptr;
  int64_t* top_ids = nullptr;
  void* top_logprobs = nullptr;

  // From a row on.
  template <class T>
  SampleTarget from(int64_t row, int64_t top_n) const {
    const auto after = [](void* p, int64_t n) { return p ? static_cast<void*>(static_cast<T*>(p) + n) : p; };
    return {token + row, after(logprob, row), top_ids ? top_ids + row * top_n : nullptr, after(top_logprobs, row * top_n)};
  }
};

// Why nothing can be drawn from a row.
enum class Fault : uint8_t { none, nan, infinite, nothing };

struct RowFault {
  int64_t row = -1;  // the first one, or -1
  Fault fault = Fault::none;
};

}  // namespace lmhead
