// Running one function on several threads. The rest of the package sees workers and task numbers, never a thread library.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace lmhead {

constexpr int kMaxThreads = 1024;
// Multiplications below which a second thread costs more than it brings (a parallel region takes a few microseconds).
constexpr double kSerialWork = 1 << 17;

// "openmp" or "threads": how workers are made in this build.
const char* parallel_backend();
// What omp_get_max_threads() leaves now, and the affinity mask and the cgroup's CPU quota left when first asked; at least 1.
int available_threads();
// The default of a call without `threads`: LMHEAD_NUM_THREADS, else available_threads(); set_default_threads changes it.
int default_threads();
void set_default_threads(int threads);

// Calls run(context, worker) for worker = 0 .. threads - 1 at once and returns when all have. The first exception
// thrown by a worker is thrown again here. In a forked child, where the thread pool of the parent is gone, the
// workers run one after the other.
void run_workers(int threads, void (*run)(void* context, int worker), void* context);

template <class Run>
void run_workers(int threads, Run&& run) {
  using Bare = std::remove_reference_t<Run>;
  run_workers(threads, [](void* context, int worker) { (*static_cast<Bare*>(context))(worker); },
              const_cast<void*>(static_cast<const void*>(&run)));
}

// Tasks 0 .. n - 1, each done once; `run(worker, task)`. A worker takes runs of neighbouring tasks in ascending order, long ones
// first (a quarter of its share of what is left), so that memory is read in long stretches and a late worker still costs little.
template <class Run>
void run_tasks(int threads, int64_t n_tasks, Run&& run) {
  if (threads > n_tasks) threads = n_tasks > 0 ? static_cast<int>(n_tasks) : 1;
  if (threads <= 1) {
    for (int64_t task = 0; task < n_tasks; ++task) run(0, task);
    return;
  }
  std::atomic<int64_t> next{0};
  run_workers(threads, [&](int worker) {
    for (;;) {
      int64_t first = next.load(std::memory_order_relaxed), last = 0;
      do {
        if (first >= n_tasks) return;
        const int64_t share = (n_tasks - first) / (4 * threads);
        last = first + (share > 1 ? share : 1);
      } while (!next.compare_exchange_weak(first, last, std::memory_order_relaxed));
      for (int64_t task = first; task < last; ++task) run(worker, task);
    }
  });
}

}  // namespace lmhead
