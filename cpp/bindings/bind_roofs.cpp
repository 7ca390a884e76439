// What the machine can do: the roofs that `lmhead-native info` and the benches show beside every figure.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "bindings/arguments/operand.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/topics.hpp"
#include "core/parallel.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Rates of `run`, which returns units of work, over rounds that together take about `seconds`, in ascending order.
template <class Run>
std::vector<double> rates(double seconds, Run run) {
  std::vector<double> all;
  const double end = now() + seconds;
  do {
    const double start = now();
    const double work = run();
    all.push_back(work / (now() - start));
  } while (now() < end || all.size() < 3);
  std::sort(all.begin(), all.end());
  return all;
}

double median(const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; }

// GB/s of the best of several stream counts, each the median of its rounds, over the array's own memory; chunks are handed out as the kernels hand out rows.
double read_bandwidth(const py::array& array, double seconds, py::handle threads) {
  const int n_threads = threads_option(threads);
  const auto* data = static_cast<const char*>(array.data());
  const int64_t bytes = array.nbytes();
  if (!(array.flags() & py::array::c_style)) value_error("array", "a C-contiguous array", "a strided one");
  if (bytes < (1 << 16)) value_error("array", "64 KiB or more", std::to_string(bytes) + " bytes");
  double best = 0;
  const py::gil_scoped_release release;
  constexpr int64_t chunk = 1 << 20;
  const int stream_counts[] = {1, 2, 4, 6};
  for (const int streams : stream_counts)
    best = std::max(best, median(rates(seconds / 4, [&] {
      std::atomic<int64_t> read{0};
      run_tasks(n_threads, ceil_div(bytes, chunk), [&](int, int64_t task) {
        const int64_t size = std::min(chunk, bytes - task * chunk);
        read += static_cast<int64_t>(table().read_all(data + task * chunk, size, streams));
      });
      return static_cast<double>(read.load());
    })));
  return best / 1e9;
}

// GFLOP/s of register-only FMAs, or of bfloat16 dot products where the table has them.
double fma_peak(const std::string& kind, double seconds, py::handle threads) {
  if (kind != "f32" && kind != "bf16") value_error("kind", "'f32' or 'bf16'", "'" + kind + "'");
  const int n_threads = threads_option(threads);
  const KernelTable& kernels = table();
  // Without the instruction bfloat16 is multiplied as float32, so that is its roof.
  const auto loop = kind == "bf16" && kernels.multiply_bf16 ? kernels.multiply_bf16 : kernels.multiply_f32;
  const py::gil_scoped_release release;
  constexpr int64_t rounds = 200000;  // about a millisecond
  return rates(seconds, [&] {
    std::atomic<int64_t> flops{0};
    run_workers(n_threads, [&](int) { flops += static_cast<int64_t>(loop(rounds)); });
    return static_cast<double>(flops.load());
  }).back() / 1e9;  // the best: nothing but another process makes it slower
}

}  // namespace

void bind_roofs(py::module_& m) {
  m.def("read_bandwidth", &read_bandwidth, py::arg("array"), py::arg("seconds") = 0.2, py::arg("threads") = py::none());
  m.def("fma_peak", &fma_peak, py::arg("kind") = "f32", py::arg("seconds") = 0.1, py::arg("threads") = py::none());
}

}  // namespace lmhead
