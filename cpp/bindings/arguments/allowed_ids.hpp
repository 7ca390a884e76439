// Which ids a call may answer with: `mask`, `allowed_ids`, `vocab_ids`.
// It knows how callers write such sets down; what comes out of it is one set of bits, in memory of its own.
#pragma once

#include "bindings/arguments/operand.hpp"
#include "core/allowed.hpp"

namespace lmhead {

struct AllowedIds {
  Allowed allowed;
  int64_t vocabulary = 0;      // ids from 0 on, allowed or not: what k, targets and results count in
  std::vector<Memory> memory;  // of the arguments
};

// For the rows of hidden states, and of given logits.
AllowedIds allowed_argument(py::handle mask, py::handle allowed_ids, py::handle vocab_ids, const Head& head);
AllowedIds allowed_argument(py::handle mask, py::handle allowed_ids, const Operand& logits);

}  // namespace lmhead
