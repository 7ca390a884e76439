#include "consumers/write.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

template <class T>
void logits_as(const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed, const Target& out, int threads) {
  const KernelTable& kernels = table();
  const Projection projection(kernels, hidden, weight);
  Write<T> write(out);
  fold<T>(kernels, projection, Adjust<T>{static_cast<const T*>(options.bias), options.softcap, options.scale}, write, threads,
          allowed);
}

}  // namespace

void logits(const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed, const Target& out, int threads) {
  if (weight.dtype == DType::float64) logits_as<double>(hidden, weight, options, allowed, out, threads);
  else logits_as<float>(hidden, weight, options, allowed, out, threads);
}

}  // namespace lmhead
